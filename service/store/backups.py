"""Backups: one file of one moment, which either kind of database restores."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from service import __version__
from service.errors import BackupRefused, StartupError
from service.store.database import complaint, migrate, refuse_unknown, revision_in
from service.store.engine import alone, in_utc, lift_time_limits, open_engine, reading, writing
from service.store.tables import METADATA

LAST_LINE = b"\ntraincost backup; sha256 of all before this line: "
DIGEST_CHARACTERS = 64
END_BYTES = len(LAST_LINE) + DIGEST_CHARACTERS + 1
BLOCK_BYTES = 1 << 20
ONLY_THE_OWNER = 0o600
"""File mode: a backup holds digests of keys and signing secrets."""


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file that appears whole or not at all, readable by its owner alone."""
    if path.exists():
        raise BackupRefused(f"{path} is there already, and may be the only backup; name another file")
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, ONLY_THE_OWNER))
        yield part
        with part.open("ab") as file:
            file.write(LAST_LINE + _digest(part, part.stat().st_size).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that the name is on disk too
        finally:
            os.close(folder)
    except OSError as error:
        raise BackupRefused(f"{path} cannot be written: {_reason(error)}") from None
    finally:
        for left in (part, *(part.with_name(part.name + end) for end in ("-wal", "-shm", "-journal"))):
            with suppress(OSError):
                left.unlink(missing_ok=True)


def refuse_damaged(path: Path) -> None:
    """Read a whole backup, and compare it with its last line."""
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


@contextmanager
def _opened_file(path: Path) -> Iterator[sa.Connection]:
    """A connection that reads a backup and writes nothing, not even beside it."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    engine = sa.create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(address, uri=True), poolclass=sa.NullPool, hide_parameters=True
    )
    with engine.connect() as connection:
        yield connection


def _digest(path: Path, length: int) -> str:
    digest, left_bytes = sha256(), length
    with path.open("rb") as file:
        while left_bytes > 0 and (block := file.read(min(left_bytes, BLOCK_BYTES))):
            digest.update(block)
            left_bytes -= len(block)
    return digest.hexdigest()


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


REVISION_TABLE = "alembic_version"

FORMER_TABLES: frozenset[str] = frozenset()
"""Tables of earlier revisions that a contraction dropped: their rows belong in a backup."""

ROWS_AT_ONCE, LARGE_ROWS_AT_ONCE = 1_000, 16
"""Rows in memory at a time; fewer of tables that hold files."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tally:
    """Count and digest of the rows of a table."""

    rows: int
    digest: str
    """Sum of the SHA-256 of all rows modulo 2^256, independent of their order."""


def our_tables(connection: sa.Connection) -> list[str]:
    """Names of this program's tables in a database, whatever its revision."""
    return sorted((METADATA.tables.keys() | FORMER_TABLES).intersection(sa.inspect(connection).get_table_names()))


def described_tables(connection: sa.Connection) -> list[sa.Table]:
    metadata = sa.MetaData()
    metadata.reflect(connection, only=our_tables(connection))
    for table in metadata.sorted_tables:
        for column in table.columns:
            if isinstance(column.type, sa.JSON):
                column.type.none_as_null = bool(column.nullable)
    return metadata.sorted_tables


def copy_rows(
    source: sa.Connection, target: sa.Connection, tables: Sequence[sa.Table] | None = None
) -> dict[str, Tally]:
    """Copy every row of a database into empty tables of another."""
    into = {table.name: table for table in (described_tables(target) if tables is None else tables)}
    copied = {
        table.name: _tally(source, table, partial(target.execute, sa.insert(into[table.name])))
        for table in described_tables(source)
    }
    if target.dialect.name == "postgresql":  # its own sequences go on after the numbers that exist
        for column in (column for table in into.values() for column in table.primary_key):
            sequence = target.execute(
                sa.select(sa.func.pg_get_serial_sequence(f'"{column.table.name}"', column.name))
            ).scalar()
            last = target.execute(sa.select(sa.func.max(column))).scalar() if sequence else None
            if last is not None:
                target.execute(sa.select(sa.func.setval(sequence, last)))
    return copied


def tally_rows(connection: sa.Connection, tables: Sequence[sa.Table] | None = None) -> dict[str, Tally]:
    """Count and digest every row of a database."""
    described = described_tables(connection) if tables is None else tables
    return {table.name: _tally(connection, table, lambda _: None) for table in described}


def _tally(connection: sa.Connection, table: sa.Table, write: Callable[[Sequence[Record]], object]) -> Tally:
    names = sorted(table.columns.keys())
    is_large = any(isinstance(column.type, sa.LargeBinary) for column in table.columns)
    options = {"yield_per": LARGE_ROWS_AT_ONCE if is_large else ROWS_AT_ONCE}
    count, total = 0, 0
    for part in connection.execute(sa.select(table), execution_options=options).mappings().partitions():
        rows = [{name: _in_utc(value) for name, value in row.items()} for row in part]
        write(rows)
        count += len(rows)
        for row in rows:
            written = json.dumps([_plain(row[name]) for name in names], sort_keys=True, separators=(",", ":"))
            total += int.from_bytes(sha256(written.encode()).digest())
    return Tally(count, f"{total % (1 << 256):064x}")


def _in_utc(value: Any) -> Any:
    return in_utc(value).astimezone(UTC) if isinstance(value, datetime) else value


def _plain(value: Any) -> Any:
    """The normalised value: PostgreSQL sorts the keys of some JSON and writes whole numbers without a point."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return sha256(value).hexdigest() if isinstance(value, bytes) else value


FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    revision: str
    version: str
    made_at: str
    tables: dict[str, Tally]

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(tally.rows for tally in self.tables.values())

    def __str__(self) -> str:
        return f"{self.rows:,} rows of {len(self.tables)} tables at revision {self.revision}, as of {self.made_at}"


def make_backup(url: str, file: Path) -> Backup:
    """Write a backup of a database into a file, while others read and write."""
    with _opened(url) as engine, new_file(file) as part:
        revision = _revision_of(engine)
        copied = None
        if engine.dialect.name == "sqlite":  # the pages of one moment; writers go on in the write-ahead log
            with closing(sqlite3.connect(part)) as target, engine.connect() as source:
                driver: Any = source.connection.driver_connection
                driver.backup(target)
        else:
            copied = _copied_rows(engine, part)
        with closing(sqlite3.connect(part)) as database:
            database.execute("PRAGMA journal_mode=DELETE")
        with _opened_file(part) as file_connection:
            stored = tally_rows(file_connection)
        if copied not in (None, stored):
            raise BackupRefused(f"{file} would not hold what the database does; the backup is given up")
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        backup = Backup(revision=revision, version=__version__, made_at=made_at, tables=stored)
        header = [(name, json.dumps(value)) for name, value in {"format": FORMAT, **asdict(backup)}.items()]
        with closing(sqlite3.connect(part)) as database, database:
            database.execute("CREATE TABLE traincost_backup (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            database.executemany("INSERT INTO traincost_backup VALUES (?, ?)", header)
    return backup


def restore_backup(url: str, file: Path, *, replace: bool = False) -> Backup:
    """Restore a backup into a database of either kind; all of it or nothing."""
    refuse_damaged(file)
    with _opened_file(file) as source:
        backup = _description(source, file)
        refuse_unknown(backup.revision, "the backup", BackupRefused)
        engine = open_engine(url)
        with _one_line_errors(engine), writing(engine) as target:
            alone(target, patient=True)
            if (existing := our_tables(target)) and not replace:
                raise BackupRefused(
                    f"the database holds {len(existing)} tables of traincost already; "
                    "name an empty one in TRAINCOST_DATABASE_URL, or say --replace to give up what it holds"
                )
            metadata = sa.MetaData()
            revision_table = [REVISION_TABLE] if sa.inspect(target).has_table(REVISION_TABLE) else []
            metadata.reflect(target, only=[*existing, *revision_table])
            metadata.drop_all(target)
            migrate(target, backup.revision)
            tables = described_tables(target)
            copy_rows(source, target, tables)
            if tally_rows(target, tables) != backup.tables:
                raise BackupRefused("the database does not hold what the backup does; nothing of it was kept")
    return backup


@contextmanager
def _opened(url: str) -> Iterator[sa.Engine]:
    engine = open_engine(url, makes_folder=False)
    if engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).is_file():
        raise BackupRefused(f"there is no database at {engine.url.database}; name one in TRAINCOST_DATABASE_URL")
    with _one_line_errors(engine):
        yield engine


@contextmanager
def _one_line_errors(engine: sa.Engine) -> Iterator[None]:
    """The error of a database in one line; its connections are released in any case."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise BackupRefused(complaint(engine, error)) from None
    finally:
        engine.dispose()


def _revision_of(engine: sa.Engine) -> str:
    with reading(engine) as connection:
        revision = revision_in(connection)
    if revision is None:
        raise BackupRefused("the database holds nothing of traincost; name another one in TRAINCOST_DATABASE_URL")
    refuse_unknown(revision, "the database", StartupError)
    return revision


def _copied_rows(engine: sa.Engine, part: Path) -> dict[str, Tally]:
    into = open_engine(URL.create("sqlite", database=str(part)))
    try:
        with reading(engine) as source, writing(into) as target:
            lift_time_limits(source)
            migrate(target, str(revision_in(source)))
            copied = copy_rows(source, target)
    finally:
        into.dispose()
    return copied


def _description(source: sa.Connection, file: Path) -> Backup:
    rows = source.exec_driver_sql("SELECT name, value FROM traincost_backup").all()
    header = {name: json.loads(value) for name, value in rows}
    if header.pop("format") != FORMAT:
        raise BackupRefused(f"{file} was made by a newer traincost; install that to restore it")
    tables = {name: Tally(**tally) for name, tally in header.pop("tables").items()}
    return Backup(**header, tables=tables)
