"""Bounded waits for a PostgreSQL server: a connection that does not respond is closed.

A client that is cut off from a server without a reset waits for as long as TCP retries, a quarter of an hour and more;
behind a proxy that keeps the connection open, for ever.
"""

from typing import Any

import psycopg
from psycopg.errors import _WaitTimeout
from sqlalchemy import Engine, event

ANSWER_SECONDS = 20.0
"""Longest wait for the result of a statement; longer than the server lets a statement wait for a lock."""


class Bounded(psycopg.Connection[Any]):
    """A connection that closes where the server does not respond in time."""

    answer_seconds: float | None = None
    """Longest wait; None for no limit."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for the server's response."""
        try:
            return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)
        except _WaitTimeout:
            if timeout is not None:
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer from the server in {self.answer_seconds:g} s") from None


def bound_waits(engine: Engine) -> None:
    """Have an engine make connections that wait no longer than ANSWER_SECONDS."""

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, given: Any, named: Any) -> Bounded:
        return Bounded.connect(*given, **named)

    @event.listens_for(engine, "checkout")
    def _lend(connection: Any, _record: object, _proxy: object) -> None:
        connection.answer_seconds = ANSWER_SECONDS
