"""What stands in for a probe on a cluster: it notes where it runs, waits, and says so in its record.

python -m tests.worker.placed TASK.json FOLDER
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TOLD = ("TRAINCOST_NODE", "CUDA_VISIBLE_DEVICES", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def main(file: str, folder: str) -> None:
    task = json.loads(Path(file).read_text(encoding="utf-8"))
    where: dict[str, Any] = {**{name: os.environ.get(name) for name in TOLD}, "pid": os.getpid()}
    with Path(task["notes"]).open("a", encoding="utf-8") as notes:
        notes.write(json.dumps(where) + "\n")
    time.sleep(task["seconds"])
    rank = int(where["RANK"] or 0)
    (Path(folder) / "found.txt").write_text("found", encoding="utf-8")
    name = "record.json" if rank == 0 else f"rank-{rank}.json"
    record = {"probe": task["probe"], "status": "succeeded", "summary": {"where": where, "files": ["found.txt"]}}
    (Path(folder) / name).write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
