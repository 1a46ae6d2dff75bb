"""What does a driver complain of, and whose fault is it? Callers are told of the outside world's, not of our own."""

import sqlite3
from collections.abc import Callable

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError

from service.errors import Busy, Unreachable

NO_ANSWER = "the database does not answer"
NOT_WRITTEN = "the database takes no changes now: its disk is full or fails, or it may only be read"
OTHERS_WRITE = "other changes are being written; nothing of this one was"

_BUSY_SQLITE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_BUSY_POSTGRESQL = {"40001", "40P01", "55P03"}
"""serialization_failure, deadlock_detected, lock_not_available."""
_UNWRITTEN_SQLITE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}
_UNWRITTEN_POSTGRESQL = {"53100", "25006"}
"""disk_full, read_only_sql_transaction: the latter by a server that has become somebody's replica."""


def refusal_of(error: DBAPIError) -> Unreachable | None:
    """What to tell a caller of what a driver complains of, by SQLite's result code or PostgreSQL's SQLSTATE.

    Args:
        error: the complaint

    Returns:
        the refusal; None where the complaint is about what was asked
    """
    if not (_is_of_the_world(error) or error.connection_invalidated):
        return None
    code, state = getattr(error.orig, "sqlite_errorcode", None), getattr(error.orig, "sqlstate", None)
    result = None if code is None else code & 0xFF
    if result in _BUSY_SQLITE or state in _BUSY_POSTGRESQL:
        return Busy(OTHERS_WRITE)
    return Unreachable(NOT_WRITTEN if result in _UNWRITTEN_SQLITE or state in _UNWRITTEN_POSTGRESQL else NO_ANSWER)


def watch_errors(engine: Engine, tell: Callable[[str], None]) -> None:
    """Hear of every error that the database answers, however it is handled.

    Args:
        engine: the database
        tell: called with busy where others wrote for too long, and with unreachable where it did not answer
    """

    def heard(context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        refusal = refusal_of(error) if isinstance(error, DBAPIError) else None
        if refusal is not None:
            tell("busy" if isinstance(refusal, Busy) else "unreachable")

    event.listen(engine, "handle_error", heard)


def _is_of_the_world(error: DBAPIError) -> bool:
    """Whether it is about the database itself; a damaged file is a DatabaseError of no narrower kind."""
    return isinstance(error, OperationalError | InterfaceError | InternalError) or type(error) is DatabaseError
