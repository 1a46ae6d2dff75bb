"""What stands in for a probe: it starts a process that leaves its session and one that loses its parent, and sleeps.

python -m tests.worker.sleeper TASK.json FOLDER
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SLEEP = "import time; time.sleep(600)"
LOSE_PARENT = f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, "-S", "-c", {SLEEP!r}], stdout=subprocess.DEVNULL).pid)
"""


def main(file: str, folder: str) -> None:
    task = json.loads(Path(file).read_text(encoding="utf-8"))
    if task.get("is_stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "pids" in task:
        note(Path(task["pids"]), started())
    for step in range(10):
        tell(Path(folder) / "progress.json", {"done_fraction": step / 10, "note": "sleeping"})
        time.sleep(task["seconds"] / 10)
    for name, text in task.get("files", {}).items():
        (Path(folder) / name).write_text(text, encoding="utf-8")
    if task.get("record") is not None:
        (Path(folder) / "record.json").write_text(task["record"], encoding="utf-8")
    else:
        summary = {"files": list(task.get("files", {})), "pid": os.getpid()}
        tell(Path(folder) / "record.json", {"probe": task["probe"], "status": "succeeded", "summary": summary})


def started() -> list[int]:
    """This process, the one that started it, and what it starts."""
    apart = subprocess.Popen([sys.executable, "-S", "-c", SLEEP], start_new_session=True)
    lost = subprocess.run([sys.executable, "-S", "-c", LOSE_PARENT], stdout=subprocess.PIPE, text=True, check=True)
    return [os.getppid(), os.getpid(), apart.pid, int(lost.stdout)]


def note(file: Path, pids: list[int]) -> None:
    """Add a line at once, so that nobody reads half of it."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(" ".join(map(str, pids)) + "\n")


def tell(file: Path, content: object) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
