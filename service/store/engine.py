"""Engine, transactions, the database's clock and pages of rows, for SQLite and PostgreSQL."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import TimeoutError as NoFreeConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from service.errors import Busy, StartupError, Unreachable
from service.settings import DATABASE_CONNECTIONS


@dataclass(frozen=True, slots=True)
class _Joined:
    connection: sa.Connection
    afterwards: list[Callable[[], None]] = field(default_factory=list)


_JOINED: ContextVar[_Joined | None] = ContextVar("joined", default=None)
"""The transaction that covers all reads and writes of this context."""


def _joined_connection(engine: sa.Engine) -> sa.Connection | None:
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

_BUSY_SQLITE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_BUSY_POSTGRESQL = {"40001", "40P01", "55P03"}
"""serialization_failure, deadlock_detected, lock_not_available."""
_UNWRITTEN_SQLITE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}
_UNWRITTEN_POSTGRESQL = {"53100", "25006"}
"""disk_full, read_only_sql_transaction: the latter from a server that has become a replica."""


def refusal_of(error: exc.DBAPIError) -> Unreachable | None:
    """The error for the caller, by SQLite's result code or PostgreSQL's SQLSTATE; None for a fault of the statement."""
    is_of_database = (
        isinstance(error, exc.OperationalError | exc.InterfaceError | exc.InternalError)
        or type(error) is exc.DatabaseError
    )
    if not (is_of_database or error.connection_invalidated):  # a damaged file is a DatabaseError of no narrower kind
        return None
    code, state = getattr(error.orig, "sqlite_errorcode", None), getattr(error.orig, "sqlstate", None)
    result = None if code is None else code & 0xFF
    if result in _BUSY_SQLITE or state in _BUSY_POSTGRESQL:
        return Busy("other changes are being written; nothing of this one was")
    if result in _UNWRITTEN_SQLITE or state in _UNWRITTEN_POSTGRESQL:
        return Unreachable("the database takes no changes now: its disk is full or fails, or it may only be read")
    return Unreachable(NO_ANSWER)


def watch_errors(engine: sa.Engine, report: Callable[[str], None]) -> None:
    """Call a function on every error of the database, however it is handled."""

    def handle(context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        refusal = refusal_of(error) if isinstance(error, exc.DBAPIError) else None
        if refusal is not None:
            report("busy" if isinstance(refusal, Busy) else "unreachable")

    sa.event.listen(engine, "handle_error", handle)


IDLE_SECONDS = 60
"""Time after which PostgreSQL ends an idle transaction, which frees its locks."""
BUSY_SECONDS = 10
"""Longest wait for another process's write lock, and for a free connection."""
ANSWER_SECONDS = 20.0
"""Longest wait for the result of a statement; longer than the server lets a statement wait for a lock."""
CONNECT_SECONDS = 5
KEPT_CONNECTIONS = 5
RECYCLE_SECONDS = 1800
"""Connections older than this are replaced: firewalls drop idle ones silently."""

_POSTGRESQL = {"postgres", "postgresql", "postgresql+psycopg"}
_SQLITE = {"sqlite", "sqlite+pysqlite"}
_READ_ONLY: dict[str, dict[str, Any]] = {
    "sqlite": {"read_only": True},
    "postgresql": {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"},
}
_WRITING: dict[str, dict[str, Any]] = {"sqlite": {}, "postgresql": {"isolation_level": "READ COMMITTED"}}
"""Whatever the server's default: a writer that waited sees what was written."""
_INSERT: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_LOCK = 0x7472_6169_6E63_6F73
"""Key of the advisory lock: "traincos" in ASCII, to avoid other programs' locks."""


def open_engine(url: str | URL, *, makes_folder: bool = True, connections: int = DATABASE_CONNECTIONS) -> sa.Engine:
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
        engine = sa.create_engine(parsed, connect_args={"connect_timeout": CONNECT_SECONDS}, **pool)
        _bound_waits(engine)
        return engine
    if makes_folder:
        make_folder(parsed)
    engine = sa.create_engine(parsed, **pool)
    sa.event.listen(engine, "connect", _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    sa.event.listen(engine, "handle_error", _close_read_only)
    return engine


def _bound_waits(engine: sa.Engine) -> None:
    """Close connections to a PostgreSQL server without a response: TCP would wait a quarter of an hour or more."""
    import psycopg  # takes 9 MB that SQLite has no use for
    from psycopg.errors import _WaitTimeout

    class Bounded(psycopg.Connection[Any]):
        """A connection with a longest wait; None for no limit."""

        answer_seconds: float | None = None

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            """Wait for the server's response."""
            try:
                return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)
            except _WaitTimeout:
                if timeout is not None:
                    raise
                self.pgconn.finish()
                raise psycopg.OperationalError(f"no answer from the server in {self.answer_seconds:g} s") from None

    @sa.event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, given: Any, named: Any) -> Bounded:
        return Bounded.connect(*given, **named)

    @sa.event.listens_for(engine, "checkout")
    def _check_out(connection: Any, _record: object, _proxy: object) -> None:
        connection.answer_seconds = ANSWER_SECONDS


def place_of(engine: sa.Engine) -> str:
    """Address of the database, for messages."""
    return engine.url.set(query={}).render_as_string()


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A read-only transaction: it sees one state of the database and never waits for a writer."""
    shared = _joined_connection(engine)
    if shared is not None:
        yield shared
        return
    options = _READ_ONLY[engine.dialect.name]
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A writing transaction; on SQLite one at a time."""
    shared = _joined_connection(engine)
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
def together(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction for all functions that read and write inside: all of it commits, or nothing."""
    with writing(engine) as connection:
        joined = _Joined(connection)
        token = _JOINED.set(joined)
        try:
            yield connection
        finally:
            _JOINED.reset(token)
    for act in joined.afterwards:
        act()


def alone(connection: sa.Connection, *, patient: bool = False) -> None:
    """Take an exclusive lock until the transaction ends, after other processes have released it."""
    if patient:
        lift_time_limits(connection)
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def lift_time_limits(connection: sa.Connection) -> None:
    """Lift the time limits of the current transaction: for locks, and for long statements."""
    if connection.dialect.name == "postgresql":
        _bound_locks(connection, 0, 0)
        driver: Any = connection.connection.driver_connection
        driver.answer_seconds = None


def _bound_locks(connection: sa.Connection, wait_seconds: float, idle_seconds: float) -> None:
    """Set the limits for waiting on locks in a transaction; 0 for none."""
    connection.exec_driver_sql(
        f"SET LOCAL lock_timeout = '{wait_seconds}s'; SET LOCAL idle_in_transaction_session_timeout = '{idle_seconds}s'"
    )


def insert_new(connection: sa.Connection, table: sa.Table) -> sa.Insert:
    """An insert that skips rows whose key exists."""
    statement: sa.Insert = insert_or(connection, table).on_conflict_do_nothing()
    return statement


def insert_or(connection: sa.Connection, table: sa.Table) -> Any:
    """An insert to which you may add an update of rows whose key exists."""
    return _INSERT[connection.dialect.name](table)


@contextmanager
def answering() -> Iterator[None]:
    """Translate errors of an unreachable or busy database."""
    try:
        yield
    except NoFreeConnection as error:
        raise Unreachable(NO_ANSWER) from error
    except exc.DBAPIError as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        raise refusal from error


def _parse(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
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
    """Close all connections of the pool: one that SQLite opened read-only stays so, also when it may write again."""
    if getattr(context.original_exception, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
        context.is_disconnect = True


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging, so that readers do not wait; SQLite's busy timeout does not cover the switch."""
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


def _begin_sqlite(connection: sa.Connection) -> None:
    is_read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql("BEGIN" if is_read_only else "BEGIN IMMEDIATE")


_CHANGE_NOTHING = {
    "sqlite": "PRAGMA user_version = 0",
    "postgresql": "SELECT txid_current() IS NOT NULL AND current_setting('transaction_read_only') = 'off'",
}
"""A write that leaves a trace in the write-ahead log only; a transaction without a write would prove nothing."""


def takes_changes(engine: sa.Engine) -> bool:
    """Whether the database answers and can be written."""
    try:
        with writing(engine) as connection:
            result = connection.exec_driver_sql(_CHANGE_NOTHING[engine.dialect.name])
            return bool(result.scalar()) if result.returns_rows else True
    except exc.SQLAlchemyError:
        return False


Kind = TypeVar("Kind")
Moment = TypeVar("Moment", datetime, datetime | None)

_SQLITE_FORM = "'%Y-%m-%d %H:%M:%f'"
"""Format of a moment in SQLite, in which texts sort as moments do."""


class _Later(FunctionElement[Any]):
    """A moment some seconds after another; arguments are both."""

    type, inherit_cache, name = sa.DateTime(timezone=True), True, "later"


class _Now(FunctionElement[Any]):
    """The moment at which the statement runs; its transaction may have begun earlier and waited."""

    type, inherit_cache, name = sa.DateTime(timezone=True), True, "database_now"


def now() -> sa.ColumnElement[Any]:
    """The present moment by the database's clock, which alone decides on leases; on SQLite it is the host's."""
    return _Now()


def later(seconds: float | sa.ColumnElement[Any], start: sa.ColumnElement[Any] | None = None) -> sa.ColumnElement[Any]:
    """A moment some time after another."""
    wait = sa.literal(float(seconds)) if isinstance(seconds, int | float) else seconds
    return _Later(now() if start is None else start, wait)


@compiles(_Now)
def _compile_now(_element: _Now, compiler: SQLCompiler, **_given: Any) -> str:
    return "clock_timestamp()" if compiler.dialect.name == "postgresql" else f"strftime({_SQLITE_FORM}, 'now')"


@compiles(_Later)
def _compile_later(element: _Later, compiler: SQLCompiler, **given: Any) -> str:
    start, seconds = (compiler.process(clause, **given) for clause in element.clauses)
    if compiler.dialect.name == "postgresql":
        return f"({start} + make_interval(secs => {seconds}))"
    return f"strftime({_SQLITE_FORM}, {start}, ({seconds}) || ' seconds')"


def moment_in(connection: sa.Connection) -> datetime:
    """The present by the database's clock."""
    moment: datetime = connection.execute(sa.select(now())).scalar_one()
    return in_utc(moment)


def database_time(engine: sa.Engine) -> datetime:
    """The present by the database's clock."""
    with answering(), reading(engine) as connection:
        return moment_in(connection)


def in_utc(moment: Moment) -> Moment:
    """A moment with its zone, UTC, which SQLite leaves out."""
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def utc_text(moment: datetime) -> str:
    """A moment as text, to the second.

    >>> utc_text(datetime(2026, 11, 21, 16, 30))
    '2026-11-21T16:30:00Z'
    """
    return in_utc(moment).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_BYTEWISE = {"postgresql": "C", "sqlite": "BINARY"}
"""Collation that compares texts as Python does, by kind of database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    most: int
    newest_first: bool = False
    """Newest first; else by key."""
    before: datetime | None = None
    """Of the newest, those before this moment; None for all."""
    behind: str | None = None
    """By key, those after this key; None for all."""


def part_of(
    query: sa.Select[Any],
    engine: sa.Engine,
    part: RowPart | None,
    key: sa.ColumnElement[str],
    moment: sa.ColumnElement[datetime],
) -> sa.Select[Any]:
    """A query restricted to a page."""
    if part is None:
        return query
    if part.newest_first:
        older = query if part.before is None else query.where(moment < part.before)
        return older.order_by(moment.desc()).limit(part.most)
    text = key.collate(_BYTEWISE[engine.dialect.name])
    later = query if part.behind is None else query.where(text > part.behind)
    return later.order_by(text).limit(part.most)


def row_as(kind: type[Kind], row: Mapping[Any, Any], **changes: Any) -> Kind:
    """A row as a dataclass: moments are in UTC, or texts where the field is one; lists become tuples."""
    values: dict[str, Any] = {}
    for name, is_text, is_tuple in _forms(kind):  # type: ignore[arg-type]  # a class is hashable
        value = changes[name] if name in changes else row[name]
        if isinstance(value, datetime):
            value = utc_text(value) if is_text else in_utc(value)
        values[name] = tuple(value) if is_tuple else value
    return kind(**values)


@cache
def _forms(kind: Any) -> tuple[tuple[str, bool, bool], ...]:
    """Fields of a dataclass, and whether each is a text or a tuple."""
    types = ((field.name, str(field.type)) for field in fields(kind))
    return tuple((name, "str" in form, form.startswith("tuple")) for name, form in types)


def values_of(table: sa.Table, record: Any) -> dict[str, Any]:
    """Fields of a dataclass as values of a table's columns: texts of moments become moments."""
    values = {column.name: getattr(record, column.name) for column in table.columns if hasattr(record, column.name)}
    texts = (name for name in values if isinstance(table.c[name].type, sa.DateTime) and isinstance(values[name], str))
    return values | {name: datetime.fromisoformat(values[name]) for name in texts}
