"""Where does a job leave its files until they are handed in? In a folder of its own; a killed worker leaves it behind.

A worker holds a lock in each of its folders, which the kernel drops when the worker ends, however it ends. So the next
one knows which folders are nobody's any more. It removes those alone that bear the name, the owner and the lock of such
a folder.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "traincost-job-"
LOCK, WORK = "held-by-worker", "work"
"""What stands in such a folder: the lock, and the folder that the job sees."""


@contextmanager
def job_folder() -> Iterator[Path]:
    """An empty folder for one job, gone afterwards.

    Yields:
        the folder
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / LOCK).open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / WORK).mkdir()
            yield folder / WORK
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> int:
    """Remove folders of workers that are gone.

    Returns:
        how many there were
    """
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
