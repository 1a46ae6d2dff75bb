"""What does a request write in one transaction, whichever functions write it, and what is done once it is kept?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine


@dataclass(frozen=True, slots=True)
class _Joined:
    connection: Connection
    afterwards: list[Callable[[], None]] = field(default_factory=list)


_JOINED: ContextVar[_Joined | None] = ContextVar("joined", default=None)


@contextmanager
def joining(connection: Connection) -> Iterator[list[Callable[[], None]]]:
    """Have all that this context reads and writes go through one connection.

    Args:
        connection: the database, inside a writing transaction

    Yields:
        what is to be done once the transaction is committed
    """
    joined = _Joined(connection)
    token = _JOINED.set(joined)
    try:
        yield joined.afterwards
    finally:
        _JOINED.reset(token)


def joined_connection(engine: Engine) -> Connection | None:
    """The connection that this context goes through.

    Args:
        engine: the database

    Returns:
        the connection; None where each function begins a transaction of its own
    """
    joined = _JOINED.get()
    return joined.connection if joined is not None and joined.connection.engine is engine else None


def afterwards(act: Callable[[], None]) -> None:
    """Do something once what was written is kept: at the end of a joined transaction, or at once.

    Args:
        act: what to do
    """
    joined = _JOINED.get()
    if joined is None:
        act()
    else:
        joined.afterwards.append(act)
