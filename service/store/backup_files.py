"""How is a backup kept as a file? An SQLite database that any tool opens, with a digest of all of it as its last line.

SQLite knows from its first page how many pages there are, and passes over what follows them.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine, NullPool, create_engine

from service.errors import BackupRefused

LAST_LINE = b"\ntraincost backup; sha256 of all before this line: "
DIGEST_CHARACTERS = 64
END_BYTES = len(LAST_LINE) + DIGEST_CHARACTERS + 1
BLOCK_BYTES = 1 << 20
ONLY_THE_OWNER = 0o600
"""Who reads a backup reads everything, the digests of keys and what links are signed with among it."""


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file that is there whole or not at all, for nobody but its owner.

    Args:
        path: where it will be

    Yields:
        where to write it until then: an empty file, which becomes the backup where nothing goes wrong

    Raises:
        BackupRefused: there is a file already, or it cannot be written
    """
    if path.exists():
        raise BackupRefused(f"{path} is there already, and may be the only backup; name another file")
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, ONLY_THE_OWNER))
        yield part
        _seal(part)
        part.rename(path)
        _write_folder(path.parent)
    except OSError as error:
        raise BackupRefused(f"{path} cannot be written: {_reason(error)}") from None
    finally:
        for left in (part, *(part.with_name(part.name + end) for end in ("-wal", "-shm", "-journal"))):
            with suppress(OSError):
                left.unlink(missing_ok=True)


def refuse_damaged(path: Path) -> None:
    """Read a whole backup, and compare it with its last line.

    Args:
        path: the backup

    Raises:
        BackupRefused: it cannot be read, is no backup, or is not what was written
    """
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END) - END_BYTES
            file.seek(max(length, 0))
            end = file.read()
            if length < 0 or not end.startswith(LAST_LINE):
                raise BackupRefused(f"{path} is no backup of traincost, or its end is missing; name another file")
            is_whole = end[len(LAST_LINE) : -1] == _digest(path, length).encode()
    except OSError as error:
        raise BackupRefused(f"{path} cannot be read: {_reason(error)}") from None
    if not is_whole:
        raise BackupRefused(f"{path} is damaged: it does not hold what was written into it; restore another backup")


def engine_on(path: Path) -> Engine:
    """An engine that reads a backup, and writes nothing, not even beside it.

    Args:
        path: the backup, whole

    Returns:
        the engine
    """
    address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    return create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(address, uri=True, check_same_thread=False),
        poolclass=NullPool,
        hide_parameters=True,
    )


def _seal(part: Path) -> None:
    """Write the last line, and have the disk keep it all."""
    line = LAST_LINE + _digest(part, part.stat().st_size).encode() + b"\n"
    with part.open("ab") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _write_folder(folder: Path) -> None:
    """Have the disk keep the name too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(path: Path, length: int) -> str:
    found, left = sha256(), length
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
            found.update(block)
            left -= len(block)
    return found.hexdigest()


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
