"""A job sees only its own devices, and its leftovers are removed."""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from service.worker import runners
from service.worker.command import record_of
from service.worker.ray_nodes import NodeRunner
from service.worker.runners import LOCK, PREFIX, LocalRunner, Task, job_folder, remove_abandoned
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("device", "before", "after"),
    [("B", None, "1,2"), ("A", "4,5,6", "4"), (None, "4,5,6", "4,5,6"), ("C", None, None)],
)
def test_a_job_sees_the_gpus_of_its_name_alone(
    device: str | None, before: str | None, after: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "gpus_here", lambda: [("A", 8e10), ("B", 4e10), ("B", 4e10)])
    if before is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    runner = LocalRunner()
    assert [(one["name"], one["count"]) for one in runner.capabilities()["devices"]] == [("A", 1), ("B", 2)]
    task = {"probe": "placed", "notes": str(tmp_path / "notes"), "seconds": 0}
    (tmp_path / "work").mkdir()
    running = runner.start(Task(task=task, folder=tmp_path / "work", module="tests.worker.placed", device=device))
    wait_until(lambda: running.poll() is not None)
    assert json.loads((tmp_path / "notes").read_text(encoding="utf-8"))["CUDA_VISIBLE_DEVICES"] == after


def test_what_a_killed_seat_leaves_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = (
        "import os, signal\nfrom service.worker.ray_nodes import NodeRunner\n"
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


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for temporary files that is this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def hold(place: str) -> None:
    """Be at a job until somebody ends this process."""
    tempfile.tempdir = place
    with job_folder() as folder:
        (folder / "trace.json").write_text("[]", encoding="utf-8")
        (folder / "outside").symlink_to(Path(place) / "kept")
        (Path(place) / "ready").touch()
        time.sleep(60)


def test_a_folder_is_empty_and_gone_with_its_job(temporary: Path) -> None:
    with job_folder() as folder:
        assert list(folder.iterdir()) == []
        assert folder.parent.parent == temporary
        (folder / "a").mkdir()
    assert list(temporary.iterdir()) == []


def test_a_killed_worker_s_folder_is_removed_by_the_next_one_and_nothing_else_is(temporary: Path) -> None:
    (temporary / "kept").mkdir()
    (temporary / "kept" / "file").touch()
    (temporary / f"{PREFIX}of-somebody").mkdir()
    (temporary / f"{PREFIX}of-somebody" / "file").touch()
    (temporary / f"{PREFIX}link").symlink_to(temporary / "kept")
    (temporary / "kept" / LOCK).touch()
    worker = multiprocessing.get_context("spawn").Process(target=hold, args=(str(temporary),))
    worker.start()
    wait_until((temporary / "ready").exists)
    with job_folder():
        assert remove_abandoned() == 0
    worker.kill()
    worker.join()
    assert remove_abandoned() == 1
    left = {"kept", "ready", f"{PREFIX}of-somebody", f"{PREFIX}link"}
    assert {path.name for path in temporary.iterdir()} == left
    assert (temporary / "kept" / "file").exists()


WAITS_SECONDS, MOST_SECONDS = 0.5, 0.3


class Place:
    """A cluster that has no place for a while, and may lose what runs once."""

    def __init__(self, runs_seconds: float, *, is_lost_once: bool = False) -> None:
        self.runs_seconds, self.is_killed = runs_seconds, False
        self.begins = [time.monotonic() + WAITS_SECONDS]
        if is_lost_once:
            self.begins.append(self.begins[0] + 0.8 * MOST_SECONDS)

    def start(self, *_: Any) -> "Place":
        return self

    def began_seconds(self) -> float | None:
        begun = [moment for moment in self.begins if moment <= time.monotonic()]
        return begun[-1] if begun else None

    def poll(self) -> dict[str, Any] | None:
        return {"status": "succeeded"} if time.monotonic() > self.begins[-1] + self.runs_seconds else None

    def progress(self) -> dict[str, Any]:
        return {}

    def kill(self) -> None:
        self.is_killed = True


@pytest.mark.parametrize(
    ("place", "ends_well"),
    [(Place(0.1), True), (Place(0.2, is_lost_once=True), True), (Place(60.0), False)],
    ids=["waits", "waits and runs again", "takes too long"],
)
def test_waiting_for_a_place_is_no_part_of_the_time(place: Any, ends_well: bool, tmp_path: Path) -> None:
    begun = time.monotonic()
    place.begins = [moment - place.begins[0] + begun + WAITS_SECONDS for moment in place.begins]
    errand = Task(task={}, folder=tmp_path, most_seconds=MOST_SECONDS)
    record = asyncio.run(record_of(place, errand, lambda _: None))
    assert (record is not None, place.is_killed) == (ends_well, True)
    assert time.monotonic() - begun >= WAITS_SECONDS
