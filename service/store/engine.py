"""Engine and transactions for SQLite and PostgreSQL, with errors of drivers in the service's terms.

SQLite's driver would begin a transaction at the first write only: two processes that read and then write would
overwrite each other. So every transaction begins explicitly: a writer takes the write lock before it reads, a reader
never waits.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Connection, Engine, Insert, Table, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from service.errors import Busy, StartupError, Unreachable
from service.settings import DATABASE_CONNECTIONS


@dataclass(frozen=True, slots=True)
class _Joined:
    connection: Connection
    afterwards: list[Callable[[], None]] = field(default_factory=list)


_JOINED: ContextVar[_Joined | None] = ContextVar("joined", default=None)


@contextmanager
def joining(connection: Connection) -> Iterator[list[Callable[[], None]]]:
    """Run all reads and writes of this context on one connection."""
    joined = _Joined(connection)
    token = _JOINED.set(joined)
    try:
        yield joined.afterwards
    finally:
        _JOINED.reset(token)


def joined_connection(engine: Engine) -> Connection | None:
    """The connection of this context."""
    joined = _JOINED.get()
    return joined.connection if joined is not None and joined.connection.engine is engine else None


def afterwards(act: Callable[[], None]) -> None:
    """Run a function after the commit: at the end of a joined transaction, or at once."""
    joined = _JOINED.get()
    if joined is None:
        act()
    else:
        joined.afterwards.append(act)


NO_ANSWER = "the database does not answer"
NOT_WRITTEN = "the database takes no changes now: its disk is full or fails, or it may only be read"
OTHERS_WRITE = "other changes are being written; nothing of this one was"

_BUSY_SQLITE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_BUSY_POSTGRESQL = {"40001", "40P01", "55P03"}
"""serialization_failure, deadlock_detected, lock_not_available."""
_UNWRITTEN_SQLITE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}
_UNWRITTEN_POSTGRESQL = {"53100", "25006"}
"""disk_full, read_only_sql_transaction: the latter from a server that has become a replica."""


def refusal_of(error: DBAPIError) -> Unreachable | None:
    """The error for the caller, by SQLite's result code or PostgreSQL's SQLSTATE."""
    if not (_is_about_the_database(error) or error.connection_invalidated):
        return None
    code, state = getattr(error.orig, "sqlite_errorcode", None), getattr(error.orig, "sqlstate", None)
    result = None if code is None else code & 0xFF
    if result in _BUSY_SQLITE or state in _BUSY_POSTGRESQL:
        return Busy(OTHERS_WRITE)
    return Unreachable(NOT_WRITTEN if result in _UNWRITTEN_SQLITE or state in _UNWRITTEN_POSTGRESQL else NO_ANSWER)


def watch_errors(engine: Engine, tell: Callable[[str], None]) -> None:
    """Call a function on every error of the database, however it is handled."""

    def heard(context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        refusal = refusal_of(error) if isinstance(error, DBAPIError) else None
        if refusal is not None:
            tell("busy" if isinstance(refusal, Busy) else "unreachable")

    event.listen(engine, "handle_error", heard)


def _is_about_the_database(error: DBAPIError) -> bool:
    """Whether an error concerns the database itself; a damaged file is a DatabaseError of no narrower kind."""
    return isinstance(error, OperationalError | InterfaceError | InternalError) or type(error) is DatabaseError


IDLE_SECONDS = 60
"""Time after which PostgreSQL ends an idle transaction, which frees its locks."""
BUSY_SECONDS = 10
"""Longest wait for another process's write lock, and for a free connection."""
CONNECT_SECONDS = 5
"""Longest wait for a PostgreSQL server to accept a connection."""
KEPT_CONNECTIONS = 5
RECYCLE_SECONDS = 1800
"""Connections older than this are replaced: firewalls drop idle ones silently."""

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
"""Key of the advisory lock: "traincos" in ASCII, to avoid other programs' locks."""


def open_engine(url: str | URL, *, makes_folder: bool = True, connections: int = DATABASE_CONNECTIONS) -> Engine:
    """An engine for a database; it connects on first use."""
    parsed = _parse(url)
    pool: dict[str, Any] = {
        "pool_pre_ping": True,
        "pool_recycle": RECYCLE_SECONDS,
        "pool_size": min(KEPT_CONNECTIONS, connections),
        "max_overflow": max(0, connections - KEPT_CONNECTIONS),
        "pool_timeout": BUSY_SECONDS,
        "hide_parameters": True,
    }
    if parsed.drivername in _POSTGRESQL:
        parsed = parsed.set(drivername="postgresql+psycopg")
        from service.store.postgresql import bound_waits  # its driver takes 9 MB that SQLite has no use for

        engine = create_engine(parsed, connect_args={"connect_timeout": CONNECT_SECONDS}, **pool)
        bound_waits(engine)
        return engine
    if makes_folder:
        make_folder(parsed)
    engine = create_engine(parsed, **pool)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    event.listen(engine, "handle_error", _close_read_only)
    return engine


def place_of(engine: Engine) -> str:
    """Address of the database, for messages."""
    return engine.url.set(query={}).render_as_string()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A read-only transaction: it sees one state of the database and never waits for a writer."""
    shared = joined_connection(engine)
    if shared is not None:
        yield shared
        return
    options = _READ_ONLY[engine.dialect.name]
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A writing transaction; on SQLite one at a time."""
    shared = joined_connection(engine)
    if shared is not None:
        with shared.begin_nested():
            yield shared
        return
    options = _WRITING[engine.dialect.name]
    with engine.connect().execution_options(**options) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            _bound_locks(connection, BUSY_SECONDS, IDLE_SECONDS)
        yield connection


@contextmanager
def together(engine: Engine) -> Iterator[Connection]:
    """One transaction for all functions that read and write inside: all of it commits, or nothing."""
    with writing(engine) as connection, joining(connection) as afterwards:
        yield connection
    for act in afterwards:
        act()


def alone(connection: Connection, *, patient: bool = False) -> None:
    """Take an exclusive lock until the transaction ends, after other processes have released it."""
    if patient:
        lift_time_limits(connection)
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def lift_time_limits(connection: Connection) -> None:
    """Lift the time limits of the current transaction: for locks, and for long statements."""
    if connection.dialect.name == "postgresql":
        _bound_locks(connection, 0, 0)
        driver: Any = connection.connection.driver_connection
        driver.answer_seconds = None


def _bound_locks(connection: Connection, wait_seconds: float, idle_seconds: float) -> None:
    """Set the limits for waiting on locks in a transaction; 0 for none."""
    connection.exec_driver_sql(
        f"SET LOCAL lock_timeout = '{wait_seconds}s'; SET LOCAL idle_in_transaction_session_timeout = '{idle_seconds}s'"
    )


def insert_new(connection: Connection, table: Table) -> Insert:
    """An insert that skips rows whose key exists."""
    found: Insert = insert_or(connection, table).on_conflict_do_nothing()
    return found


def insert_or(connection: Connection, table: Table) -> Any:
    """An insert to which you may add an update of rows whose key exists."""
    return _INSERT[connection.dialect.name](table)


@contextmanager
def answering() -> Iterator[None]:
    """Translate errors of an unreachable or busy database."""
    try:
        yield
    except NoFreeConnection as error:
        raise Unreachable(NO_ANSWER) from error
    except DBAPIError as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        raise refusal from error


def _parse(url: str | URL) -> URL:
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


def make_folder(url: URL) -> None:
    """Create the folder of an SQLite file; StartupError where that fails."""
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


def _close_read_only(context: ExceptionContext) -> None:
    """Close all connections of the pool where one of them is read-only.

    SQLite opens a file read-only where it may not write, and the connection stays so when it may again.
    """
    code = getattr(context.original_exception, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_READONLY:
        context.is_disconnect = True


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging, so that readers and a writer work side by side.

    Processes that switch a new file at the same moment are refused at once: the busy timeout does not apply here.
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


_CHANGE_NOTHING = {
    "sqlite": "PRAGMA user_version = 0",
    "postgresql": "SELECT txid_current() IS NOT NULL AND current_setting('transaction_read_only') = 'off'",
}
"""A write that leaves a trace in the write-ahead log only; a transaction without a write would prove nothing."""


def takes_changes(engine: Engine) -> bool:
    """Whether the database answers and can be written."""
    try:
        with writing(engine) as connection:
            found = connection.exec_driver_sql(_CHANGE_NOTHING[engine.dialect.name])
            is_so = bool(found.scalar()) if found.returns_rows else True
    except SQLAlchemyError:
        return False
    return is_so
