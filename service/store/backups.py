"""How does the data survive its database? A backup is one file, of one moment, that any of our databases takes back.

On SQLite the online backup API copies the pages, on PostgreSQL one snapshot is read, so nobody who writes meanwhile
waits, and nothing of what they write is in it by half. Both give the same kind of file. A restore is one transaction:
it is kept once what was written, read again, is what the backup counted.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from service import __version__
from service.errors import BackupRefused, StartupError
from service.store.backup_files import engine_on, new_file, refuse_damaged
from service.store.backup_rows import Tally, copy_rows, described_tables, drop_tables, our_tables, tally_rows
from service.store.engine import alone, be_patient, open_engine, reading, writing
from service.store.prepare import complaint, migrate, refuse_unknown, revision_in

FORMAT = 1
"""Version of the file's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup says of itself."""

    revision: str
    """Revision of the schema."""
    version: str
    """Version of traincost that made it."""
    made_at: str
    """When, in UTC."""
    tables: dict[str, Tally]
    """What each table held."""

    @property
    def rows(self) -> int:
        """How many rows there are in all tables together."""
        return sum(tally.rows for tally in self.tables.values())


def make_backup(url: str, file: Path) -> Backup:
    """Write all that a database holds into a file, while others read and write.

    Args:
        url: the database
        file: where to; only its owner may read it

    Returns:
        what is in it

    Raises:
        BackupRefused: there is no database of this program, or the file cannot be written or is there already
        StartupError: the URL is wrong, or the database is newer than this version
    """
    with _opened(url) as engine, new_file(file) as part:
        revision = _revision_of(engine)
        read = _copy_pages(engine, part) if engine.dialect.name == "sqlite" else _copied_rows(engine, part)
        held = _tallied(part)
        if read not in (None, held):
            raise BackupRefused(f"{file} would not hold what the database does; the backup is given up")
        backup = Backup(revision=revision, version=__version__, made_at=_now(), tables=held)
        _describe(part, backup)
    return backup


def restore_backup(url: str, file: Path, *, replace: bool = False) -> Backup:
    """Write all that a backup holds into a database, of whichever kind; all of it or nothing.

    Args:
        url: the database
        file: the backup
        replace: whether what the database holds is given up for it

    Returns:
        what was in it

    Raises:
        BackupRefused: the backup is damaged or newer than this version, or the database holds something
        StartupError: the URL is wrong
    """
    refuse_damaged(file)
    source = engine_on(file)
    try:
        backup = _description(source, file)
        refuse_unknown(backup.revision, "the backup", BackupRefused)
        engine = open_engine(url)
        with _said(engine), source.connect() as held, writing(engine) as target:
            alone(target, patient=True)
            if (there := our_tables(target)) and not replace:
                raise BackupRefused(
                    f"the database holds {len(there)} tables of traincost already; "
                    "name an empty one in TRAINCOST_DATABASE_URL, or say --replace to give up what it holds"
                )
            drop_tables(target)
            migrate(target, backup.revision)
            tables = described_tables(target)
            copy_rows(held, target, tables)
            if tally_rows(target, tables) != backup.tables:
                raise BackupRefused("the database does not hold what the backup does; nothing of it was kept")
    finally:
        source.dispose()
    return backup


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    engine = open_engine(url, makes_folder=False)
    if engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).is_file():
        raise BackupRefused(f"there is no database at {engine.url.database}; name one in TRAINCOST_DATABASE_URL")
    with _said(engine):
        yield engine


@contextmanager
def _said(engine: Engine) -> Iterator[None]:
    """Say what a database complains of in one line, and let go of it in any case."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise BackupRefused(complaint(engine, error)) from None
    finally:
        engine.dispose()


def _revision_of(engine: Engine) -> str:
    with reading(engine) as connection:
        revision = revision_in(connection)
    if revision is None:
        raise BackupRefused("the database holds nothing of traincost; name another one in TRAINCOST_DATABASE_URL")
    refuse_unknown(revision, "the database", StartupError)
    return revision


def _copy_pages(engine: Engine, part: Path) -> dict[str, Tally] | None:
    """Copy the pages of an SQLite database as they are at one moment; writers go on in the write-ahead log."""
    with closing(sqlite3.connect(part)) as target, engine.connect() as source:
        driver: Any = source.connection.driver_connection
        driver.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")
    return None


def _copied_rows(engine: Engine, part: Path) -> dict[str, Tally]:
    """The rows of a PostgreSQL database in one snapshot, written into the same tables of an SQLite database."""
    into = open_engine(URL.create("sqlite", database=str(part)))
    try:
        with reading(engine) as source, writing(into) as target:
            be_patient(source)
            migrate(target, str(revision_in(source)))
            copied = copy_rows(source, target)
    finally:
        into.dispose()
    with closing(sqlite3.connect(part)) as file:
        file.execute("PRAGMA journal_mode=DELETE")
    return copied


def _tallied(part: Path) -> dict[str, Tally]:
    engine = engine_on(part)
    try:
        with engine.connect() as connection:
            return tally_rows(connection)
    finally:
        engine.dispose()


def _describe(part: Path, backup: Backup) -> None:
    rows = {"format": FORMAT, **asdict(backup)}
    with closing(sqlite3.connect(part)) as file, file:
        file.execute("CREATE TABLE traincost_backup (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        file.executemany(
            "INSERT INTO traincost_backup VALUES (?, ?)", [(name, json.dumps(value)) for name, value in rows.items()]
        )


def _description(source: Engine, file: Path) -> Backup:
    with source.connect() as connection:
        found = connection.exec_driver_sql("SELECT name, value FROM traincost_backup").all()
    said = {name: json.loads(value) for name, value in found}
    if said.pop("format") != FORMAT:
        raise BackupRefused(f"{file} was made by a newer traincost; install that to restore it")
    tables = {name: Tally(**tally) for name, tally in said.pop("tables").items()}
    return Backup(**said, tables=tables)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
