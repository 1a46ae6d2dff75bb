"""Is a job's folder removed with it, or by the next worker, and is nothing removed that is somebody else's?"""

import multiprocessing
import tempfile
import time
from pathlib import Path

import pytest

from service.worker.runners import LOCK, PREFIX, job_folder, remove_abandoned


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
    ends = time.monotonic() + 60
    while not (temporary / "ready").exists():
        assert time.monotonic() < ends
        time.sleep(0.02)
    with job_folder():
        assert remove_abandoned() == 0
    worker.kill()
    worker.join()
    assert remove_abandoned() == 1
    left = {"kept", "ready", f"{PREFIX}of-somebody", f"{PREFIX}link"}
    assert {path.name for path in temporary.iterdir()} == left
    assert (temporary / "kept" / "file").exists()
