"""Parts of queries: the database's clock, moments as text, and pages of rows.

Leases compare moments of the database's clock alone: neither the clocks of workers nor those of several servers have to
agree. On SQLite, which serves one host, it is the host's clock.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, DateTime, Engine, Select, literal, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from service.store.engine import answering, reading

Moment = TypeVar("Moment", datetime, datetime | None)

_SQLITE_FORM = "'%Y-%m-%d %H:%M:%f'"
"""Format of a moment in SQLite, in which texts sort as moments do."""


class _Later(FunctionElement[Any]):
    """A moment some seconds after another; arguments are both."""

    type = DateTime(timezone=True)
    inherit_cache = True
    name = "later"


class _Now(FunctionElement[Any]):
    """The moment at which the statement runs; its transaction may have begun earlier and waited."""

    type = DateTime(timezone=True)
    inherit_cache = True
    name = "database_now"


def now() -> ColumnElement[Any]:
    """The present moment."""
    return _Now()


def later(seconds: float | ColumnElement[Any], start: ColumnElement[Any] | None = None) -> ColumnElement[Any]:
    """A moment some time after another."""
    wait = literal(float(seconds)) if isinstance(seconds, int | float) else seconds
    return _Later(now() if start is None else start, wait)


def moment_in(connection: Connection) -> datetime:
    """The present by the database's clock."""
    found: datetime = connection.execute(select(now())).scalar_one()
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@compiles(_Now, "sqlite")
def _now_on_sqlite(_element: _Now, _compiler: SQLCompiler, **_given: Any) -> str:
    return f"strftime({_SQLITE_FORM}, 'now')"


@compiles(_Now, "postgresql")
def _now_on_postgresql(_element: _Now, _compiler: SQLCompiler, **_given: Any) -> str:
    return "clock_timestamp()"


@compiles(_Later, "sqlite")
def _later_on_sqlite(element: _Later, compiler: SQLCompiler, **given: Any) -> str:
    start, seconds = (compiler.process(clause, **given) for clause in element.clauses)
    return f"strftime({_SQLITE_FORM}, {start}, ({seconds}) || ' seconds')"


@compiles(_Later, "postgresql")
def _later_on_postgresql(element: _Later, compiler: SQLCompiler, **given: Any) -> str:
    start, seconds = (compiler.process(clause, **given) for clause in element.clauses)
    return f"({start} + make_interval(secs => {seconds}))"


def database_time(engine: Engine) -> datetime:
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
    known = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return known.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


BYTEWISE = {"postgresql": "C", "sqlite": "BINARY"}
"""Collation that compares texts as Python does, by kind of database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """A page of rows of a table."""

    most: int
    """Page size."""
    newest_first: bool = False
    """Newest first; else by key."""
    before: datetime | None = None
    """Of the newest, those before this moment; None for all."""
    behind: str | None = None
    """By key, those after this key; None for all."""


def part_of(
    query: Select[Any], engine: Engine, part: RowPart | None, key: ColumnElement[str], moment: ColumnElement[datetime]
) -> Select[Any]:
    """A query restricted to a page."""
    if part is None:
        return query
    if part.newest_first:
        older = query if part.before is None else query.where(moment < part.before)
        return older.order_by(moment.desc()).limit(part.most)
    text = key.collate(BYTEWISE[engine.dialect.name])
    later = query if part.behind is None else query.where(text > part.behind)
    return later.order_by(text).limit(part.most)
