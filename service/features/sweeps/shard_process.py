"""Process that computes one shard of a sweep.

    python -m service.features.sweeps.shard_process TASK.json FOLDER

It reads `sweep.json` in the folder and writes `rows.parquet` and `record.json` there, and `progress.json` while it
runs. It computes a sweep only with the version of the formulas that the sweep was created with.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from service.estimator import FORMULAS_VERSION
from service.features.launch_checks.finished_jobs import ROWS_FILE
from service.features.sweeps.axes import Sweep
from service.features.sweeps.local import SWEEP_FILE, sweep_in
from service.features.sweeps.sweeps import Shard
from service.features.sweeps.tables import write_shard

RECORD, PROGRESS = "record.json", "progress.json"


def main(words: Sequence[str]) -> int:
    """Compute a shard and write its rows and its record."""
    task, folder = map(Path, words)
    payload = json.loads(task.read_text(encoding="utf-8"))
    record = carried_out(payload, folder)
    _write_json(record, folder / RECORD)
    return int(record["status"] != "succeeded")


def carried_out(payload: Any, folder: Path) -> dict[str, Any]:
    """Compute the shard of a job in this process."""
    return compute_shard(sweep_in(folder), shard_of(payload), folder)


def shard_of(payload: Any) -> Shard:
    """Shard of a job."""
    return Shard(number=payload["number"], first=payload["first"], rows=payload["rows"])


def compute_shard(sweep: Sweep, shard: Shard, folder: Path) -> dict[str, Any]:
    """Compute a shard and write its rows."""
    if sweep.versions.formulas != FORMULAS_VERSION:
        reason = (
            f"this worker answers by formulas {FORMULAS_VERSION}, and the sweep was asked under "
            f"{sweep.versions.formulas}: have workers of that version resume it, or ask for it again"
        )
        return {"status": "failed", "reason": reason, "final": True}
    counts = write_shard(folder / ROWS_FILE, sweep, shard, lambda done: _write_json({"rows": done}, folder / PROGRESS))
    return {"status": "succeeded", "reason": None, "counts": asdict(counts)}


def _write_json(content: Any, path: Path) -> None:
    """Write a file atomically."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
