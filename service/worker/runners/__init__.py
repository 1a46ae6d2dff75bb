"""The interface of runners, which is the same for a host and a cluster, and the folders of jobs."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol

PROBE_PROCESS = "service.worker.probe_process"
"""The module that runs a probe: it takes a task's file and a folder, and writes record.json there."""

RECORD, PROGRESS, TASK = "record.json", "progress.json", "task.json"
"""Files of a task's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A process to be run."""

    task: Mapping[str, Any]
    """Its input, as JSON."""
    folder: Path
    """An empty folder for its files."""
    most_seconds: float = inf
    """Timeout from its start: waiting for a place does not count."""
    module: str = PROBE_PROCESS
    """Its module."""
    device: str | None = None
    """Name of the device that it is for, as the runner reports it; None for any."""

    def failed(self, reason: str, status: str = "failed") -> dict[str, Any]:
        """The record of a task that left none."""
        return {"probe": self.task.get("probe"), "status": status, "reason": reason, "seconds": 0.0}


class Running(Protocol):
    """A started process."""

    def poll(self) -> dict[str, Any] | None:
        """The record; None while it runs."""

    def began_seconds(self) -> float | None:
        """Start of the run, which may be later than the call, and changes where it runs again."""

    def progress(self) -> dict[str, Any]:
        """The last progress report."""

    def kill(self) -> None:
        """End it and everything that it started; returns once that has ended."""


class Runner(Protocol):
    """Runs processes. Its methods may block; several threads call them."""

    def capabilities(self) -> dict[str, Any]:
        """Capabilities for the service."""

    def slots(self) -> int:
        """Useful number of parallel jobs."""

    def lacking(self) -> str | None:
        """Reason why measurements cannot run; None where they can."""

    def start(self, task: Task) -> Running:
        """Start a process."""

    def close(self) -> None:
        """Release the runner's resources."""


PREFIX = "traincost-job-"
LOCK, WORK = "held-by-worker", "work"
"""Entries of such a folder: the lock, and the folder that the job sees."""


@contextmanager
def job_folder() -> Iterator[Path]:
    """An empty folder for one job, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / LOCK).open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / WORK).mkdir()
            yield folder / WORK
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> int:
    """Remove folders of workers that have ended."""
    return sum(_removed(folder) for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def _removed(folder: Path) -> bool:
    """Remove one folder, if this user owns it and its worker has ended."""
    lock = folder / LOCK
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not lock.is_file():
            return False
        with lock.open("r+", encoding="utf-8") as own:
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its worker runs, or another one removes it
        return False
    return True
