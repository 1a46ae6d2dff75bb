"""What does a scrape learn from the database? What it knows now, if it answers in time; a scrape never waits longer.

Looks run on a thread of their own, one at a time: a database that hangs keeps one thread, whoever scrapes how often,
and none of those that requests run on.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from time import monotonic

from service.store import Figures

PATIENCE_SECONDS = 2.0
"""Longest wait for the database. Source: a choice; Prometheus itself waits 10 s."""
FRESH_SECONDS = 5.0
"""Time for which figures are told again without a look. Source: a choice; scrapers ask every 15 s."""

log = logging.getLogger(__name__)


class DatabaseFigures:
    """Figures of the database, as of a moment ago.

    Args:
        read: looks; what it raises means that the database does not answer
        patience_seconds: longest wait for a look [second]
        fresh_seconds: time for which figures are told again [second]
    """

    def __init__(
        self,
        read: Callable[[], Figures],
        patience_seconds: float = PATIENCE_SECONDS,
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        self._read = read
        self._patience_seconds, self._fresh_seconds = patience_seconds, fresh_seconds
        self._look: Future[Figures] | None = None
        self._found: tuple[float, Figures] | None = None

    async def now(self) -> Figures | None:
        """The figures.

        Returns:
            as they are now, or were FRESH_SECONDS ago at most; None where the database does not tell them in time
        """
        if self._found is not None and monotonic() - self._found[0] < self._fresh_seconds:
            return self._found[1]
        if self._look is None or self._look.done():
            self._look = _begun(self._read)
        try:
            look = asyncio.shield(asyncio.wrap_future(self._look))  # it goes on where nobody waits for it any longer
            found = await asyncio.wait_for(look, self._patience_seconds)
        except TimeoutError:
            log.warning("the database does not tell its figures within %.0f s", self._patience_seconds)
            return None
        except Exception as error:  # whatever it is, what was counted in memory can still be told
            log.warning("the database does not tell its figures: %s", type(error).__name__)
            return None
        self._found = (monotonic(), found)
        return found


def _begun(read: Callable[[], Figures]) -> Future[Figures]:
    """What a function gives, once it does, on a thread that nobody waits for when the process ends."""
    future: Future[Figures] = Future()

    def run() -> None:
        try:
            future.set_result(read())
        except Exception as error:
            future.set_exception(error)

    Thread(target=run, name="figures", daemon=True).start()
    return future
