"""How is the database reached? One engine for SQLite and PostgreSQL, with transactions that lose no writes.

SQLite's driver would begin a transaction at the first write only: two processes that read, then write, overwrite
each other. So every transaction begins explicitly: a writer takes the write lock before it reads, a reader never waits.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Connection, Engine, Insert, Table, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from service.errors import Busy, StartupError, Unreachable

BUSY_SECONDS = 10
"""Longest wait for another process's write lock, and for a free connection."""
CONNECT_SECONDS = 5
"""Longest wait for a PostgreSQL server to answer."""
REQUEST_THREADS = 40
"""Threads that the web framework runs database routes on; each may hold one connection."""
KEPT_CONNECTIONS = 5
RECYCLE_SECONDS = 1800
"""Connections older than this are replaced: firewalls drop idle ones without a word."""

NO_ANSWER = "the database does not answer"
OTHERS_WRITE = "other changes are being written; nothing of this one was"

_POSTGRESQL = {"postgres", "postgresql", "postgresql+psycopg"}
_SQLITE = {"sqlite", "sqlite+pysqlite"}
_READ_ONLY: dict[str, dict[str, Any]] = {
    "sqlite": {"read_only": True},
    "postgresql": {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"},
}
_WRITING: dict[str, dict[str, Any]] = {
    "sqlite": {},
    "postgresql": {
        "isolation_level": "READ COMMITTED"
    },  # whatever the server's default: who waited sees what was written
}
_INSERT: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_LOCK = 0x7472_6169_6E63_6F73
"""Key of the advisory lock: "traincos" in ASCII, so that no other program's lock is meant."""


def open_engine(url: str) -> Engine:
    """An engine for a database; nothing is connected yet.

    Args:
        url: sqlite:////folder/file.db or postgresql://user:password@host/name

    Returns:
        the engine

    Raises:
        StartupError: the URL is wrong, or the folder of the SQLite file cannot be made
    """
    parsed = _parse(url)
    pool: dict[str, Any] = {
        "pool_pre_ping": True,
        "pool_recycle": RECYCLE_SECONDS,
        "pool_size": KEPT_CONNECTIONS,
        "max_overflow": REQUEST_THREADS - KEPT_CONNECTIONS,
        "pool_timeout": BUSY_SECONDS,
        "hide_parameters": True,
    }
    if parsed.drivername in _POSTGRESQL:
        parsed = parsed.set(drivername="postgresql+psycopg")
        return create_engine(parsed, connect_args={"connect_timeout": CONNECT_SECONDS}, **pool)
    _make_folder(parsed)
    engine = create_engine(parsed, **pool)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads: it sees one state of the database and never waits for a writer.

    Args:
        engine: the database

    Yields:
        a connection inside the transaction
    """
    options = _READ_ONLY[engine.dialect.name]
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that reads and writes; on SQLite it is alone in doing so.

    Args:
        engine: the database

    Yields:
        a connection inside the transaction, committed at the end and rolled back by an exception
    """
    options = _WRITING[engine.dialect.name]
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def alone(connection: Connection, *, patient: bool = False) -> None:
    """Wait until no other process is in the same place, then keep the others out until the transaction ends.

    Args:
        connection: the database, inside a writing transaction; on SQLite that is enough
        patient: whether to wait as long as it takes, and not BUSY_SECONDS
    """
    if connection.dialect.name == "postgresql":
        if not patient:
            connection.execute(text(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def insert_new(connection: Connection, table: Table) -> Insert:
    """A statement that inserts rows, but for those whose key is there already.

    Args:
        connection: the database
        table: where to

    Returns:
        the statement
    """
    found: Insert = _INSERT[connection.dialect.name](table).on_conflict_do_nothing()
    return found


@contextmanager
def answering() -> Iterator[None]:
    """Say in the service's own words that the database does not answer, or not in time.

    Yields:
        nothing; what is done inside asks the database

    Raises:
        Busy: others have written for so long that waiting came to an end
        Unreachable: it does not answer
    """
    try:
        yield
    except (OperationalError, InterfaceError, NoFreeConnection) as error:
        raise (Busy(OTHERS_WRITE) if _is_busy(error) else Unreachable(NO_ANSWER)) from error


def _is_busy(error: SQLAlchemyError) -> bool:
    """Whether a wait for a lock came to an end: SQLite's result code, PostgreSQL's lock_not_available."""
    cause = getattr(error, "orig", None)
    code = getattr(cause, "sqlite_errorcode", None)
    return (code is not None and code & 0xFF == sqlite3.SQLITE_BUSY) or getattr(cause, "sqlstate", None) == "55P03"


def is_reachable(engine: Engine) -> bool:
    """Whether the database answers.

    Args:
        engine: the database

    Returns:
        true if it answered just now
    """
    try:
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
    except SQLAlchemyError:
        return False
    return True


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StartupError(f"the database URL cannot be read; {_FORMS}") from None
    if parsed.drivername not in _POSTGRESQL | _SQLITE:
        raise StartupError(f"the database URL names a database that traincost does not speak; {_FORMS}")
    if parsed.drivername in _SQLITE and parsed.database in {None, "", ":memory:"}:
        raise StartupError(f"the database URL names no file, so nothing would be kept; {_FORMS}")
    return parsed


_FORMS = "use sqlite:////folder/traincost.db or postgresql://user:password@host/name"


def _make_folder(url: URL) -> None:
    folder = Path(str(url.database)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StartupError(f"the database folder {folder} cannot be made: {reason}") from None


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver begins no transactions of its own
    connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work side by side.

    Processes that switch a new file at the same moment get a refusal at once: the busy timeout does not hold here.
    """
    deadline = monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
            sleep(0.01)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    is_read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql("BEGIN" if is_read_only else "BEGIN IMMEDIATE")
