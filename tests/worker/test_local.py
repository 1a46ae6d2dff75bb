"""Does a job see the devices that it is for, where others are beside them, and is what it leaves removed?"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from service.worker.runners import Task, local
from service.worker.runners.local import LocalRunner
from service.worker.runners.nodes import NodeRunner


@pytest.mark.parametrize(
    ("device", "before", "after"),
    [("B", None, "1,2"), ("A", "4,5,6", "4"), (None, "4,5,6", "4,5,6"), ("C", None, None)],
)
def test_a_job_sees_the_gpus_of_its_name_alone(
    device: str | None, before: str | None, after: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "gpus_here", lambda: [("A", 8e10), ("B", 4e10), ("B", 4e10)])
    if before is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    runner = LocalRunner()
    assert [(one["name"], one["count"]) for one in runner.capabilities()["devices"]] == [("A", 1), ("B", 2)]
    task = {"probe": "placed", "notes": str(tmp_path / "notes"), "seconds": 0}
    (tmp_path / "work").mkdir()
    running = runner.start(Task(task=task, folder=tmp_path / "work", module="tests.worker.placed", device=device))
    ends = time.monotonic() + 60
    while running.poll() is None:
        assert time.monotonic() < ends
        time.sleep(0.01)
    assert json.loads((tmp_path / "notes").read_text(encoding="utf-8"))["CUDA_VISIBLE_DEVICES"] == after


def test_what_a_killed_seat_leaves_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = (
        "import os, signal\nfrom service.worker.runners.nodes import NodeRunner\n"
        "kept = NodeRunner()\nos.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program], check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    (left,) = tmp_path.iterdir()
    assert (killed.returncode, left.is_dir()) == (-9, True)
    seat = NodeRunner()
    (own,) = tmp_path.iterdir()
    assert own != left
    seat.end()
    assert [*tmp_path.iterdir()] == []
