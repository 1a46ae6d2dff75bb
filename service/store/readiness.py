"""Can the database be read and written? A write tells that changes nothing and is committed: full disks refuse it."""

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from service.store.engine import writing

_CHANGE_NOTHING = {
    "sqlite": "PRAGMA user_version = 0",
    "postgresql": "SELECT txid_current() IS NOT NULL AND current_setting('transaction_read_only') = 'off'",
}
"""What leaves a trace in the write-ahead log and nowhere else; PostgreSQL numbers what is only allowed to read, too."""


def takes_changes(engine: Engine) -> bool:
    """Whether the database answers, and takes changes.

    Args:
        engine: the database

    Returns:
        true if it took one just now
    """
    try:
        with writing(engine) as connection:
            found = connection.exec_driver_sql(_CHANGE_NOTHING[engine.dialect.name])
            is_so = bool(found.scalar()) if found.returns_rows else True
    except SQLAlchemyError:
        return False
    return is_so
