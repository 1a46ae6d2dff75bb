"""What time is it? The database says: neither the clocks of workers nor those of several servers have to agree.

Moments that leases rest on are written and compared inside the database alone. On SQLite, which is one host's, that is
the host's clock.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, DateTime, literal, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

_SQLITE_FORM = "'%Y-%m-%d %H:%M:%f'"
"""How SQLite writes a moment, so that texts are in the order of moments."""


class _Later(FunctionElement[Any]):
    """A moment some seconds after another; arguments are both."""

    type = DateTime(timezone=True)
    inherit_cache = True
    name = "later"


class _Now(FunctionElement[Any]):
    """The moment at which the statement runs, not that at which its transaction began: it may have waited since."""

    type = DateTime(timezone=True)
    inherit_cache = True
    name = "database_now"


def now() -> ColumnElement[Any]:
    """The present moment.

    Returns:
        an SQL expression
    """
    return _Now()


def later(seconds: float | ColumnElement[Any], start: ColumnElement[Any] | None = None) -> ColumnElement[Any]:
    """A moment some time after another.

    Args:
        seconds: how long after; negative for before [second]
        start: the other moment; None for the present one

    Returns:
        an SQL expression
    """
    wait = literal(float(seconds)) if isinstance(seconds, int | float) else seconds
    return _Later(now() if start is None else start, wait)


def moment_in(connection: Connection) -> datetime:
    """The present moment, as the database tells it.

    Args:
        connection: the database

    Returns:
        the moment, in UTC
    """
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
