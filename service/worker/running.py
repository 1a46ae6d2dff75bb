"""Where does a worker run what it is given? Behind one small interface, so that a host and a cluster look the same."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

PROBE_PROCESS = "service.worker.probe_process"
"""The module that carries out a probe: it takes a task's file and a folder, and leaves record.json there."""

RECORD, PROGRESS, TASK = "record.json", "progress.json", "task.json"
"""Files of a task's folder."""


class Running(Protocol):
    """Something that was started."""

    def poll(self) -> dict[str, Any] | None:
        """What came of it."""

    def began_seconds(self) -> float | None:
        """When it began to run, which may be later than it was started, and anew where it is run again."""

    def progress(self) -> dict[str, Any]:
        """How far it is."""

    def kill(self) -> None:
        """End it and everything that it started; returns when that is gone."""


class Runner(Protocol):
    """A place to run things. Its methods may take a while; they are called from threads, several at a time."""

    def capabilities(self) -> dict[str, Any]:
        """What can be run here."""

    def slots(self) -> int:
        """How many jobs it makes sense to have here at the same time."""

    def lacking(self) -> str | None:
        """What keeps measurements from running here."""

    def start(
        self, task: Mapping[str, Any], folder: Path, module: str = PROBE_PROCESS, device: str | None = None
    ) -> Running:
        """Start something."""

    def close(self) -> None:
        """Give back what the runner holds itself."""


PREFIX = "traincost-job-"
LOCK, WORK = "held-by-worker", "work"
"""What stands in such a folder: the lock, and the folder that the job sees."""


@contextmanager
def job_folder() -> Iterator[Path]:
    """An empty folder for one job, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / LOCK).open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / WORK).mkdir()
            yield folder / WORK
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> int:
    """Remove folders of workers that are gone."""
    return sum(_removed(folder) for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def _removed(folder: Path) -> bool:
    """Remove one folder, if it is this user's and its worker is gone."""
    lock = folder / LOCK
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not lock.is_file():
            return False
        with lock.open("r+", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its worker is at work, or somebody else removes it
        return False
    return True
