"""Files that the kernel refuses to change, also for root and through descriptors that are open: `chattr +i` on ext4.

File modes bind no process of root's, and a mount cannot be made read-only while a file on it is open for writing.
"""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile


def files_of(database: Path) -> list[Path]:
    """Files of an SQLite database that a change writes to; the index of its log is mapped, and left out."""
    return [database, database.with_name(f"{database.name}-wal")]


def set_immutable(files: Sequence[Path], *, is_so: bool) -> None:
    """Let files be immutable, or no longer."""
    subprocess.run(["chattr", "+i" if is_so else "-i", *map(str, files)], check=True, capture_output=True)


@contextmanager
def immutable(files: Sequence[Path]) -> Iterator[None]:
    """Let files be immutable for a while."""
    set_immutable(files, is_so=True)
    try:
        yield
    finally:
        set_immutable(files, is_so=False)


def lacks_immutable_files() -> str | None:
    """Why no file can be immutable here; None where it can."""
    if shutil.which("chattr") is None:
        return "chattr not found: apt-get install e2fsprogs"
    with NamedTemporaryFile() as file:
        try:
            with immutable([Path(file.name)]):
                return None
        except subprocess.CalledProcessError as error:
            return f"no file can be made immutable here: {error.stderr.decode().strip()}"
