"""Background tasks of a process, each on a thread of its own.

Retention goes by the slower of two clocks: the database's, and the time since the process started.
"""

import asyncio
import logging
from collections.abc import Callable
from threading import Event
from time import monotonic

from starlette.concurrency import run_in_threadpool

from service.jobs.ends import SlowerClock
from service.settings import Settings
from service.store import Engine, Keeping, KeyRing, forget_old

log = logging.getLogger(__name__)


def repeat(complaint: str, look: Callable[[], object], seconds: float, stop: Event, noted: Event | None = None) -> None:
    """Do something again and again; what fails is said once, until it works again.

    With `noted`, each time waits until something was noted, so a process that is idle does not wake up for it. To end
    it, set `stop`, then `noted`.
    """
    failing = False
    while not _is_over(seconds, stop, noted):
        try:
            look()
        except Exception as error:  # whatever it is, requests are answered, and the next time may succeed
            if not failing:
                log.warning("%s: %s", complaint, type(error).__name__)
            failing = True
            if noted is not None:
                noted.set()
        else:
            failing = False


def _is_over(seconds: float, stop: Event, noted: Event | None) -> bool:
    if noted is not None:
        noted.wait()
    is_over = stop.wait(seconds)
    if noted is not None:
        noted.clear()
    return is_over


PAUSE_SECONDS = 0.05
"""Time for others to write between two removals. Source: a choice."""


class Retention:
    """Removes what was kept for long enough."""

    def __init__(self, engine: Engine, settings: Settings, stop: Event) -> None:
        self._engine, self._stop = engine, stop
        self._keeping = Keeping(
            jobs_days=settings.keep_jobs_days,
            job_files_days=settings.keep_job_files_days,
            measurements_days=settings.keep_measurements_days,
            answers_days=settings.keep_answers_days,
            audit_days=settings.keep_audit_days,
        )
        self._clock = SlowerClock(engine)

    def look(self) -> dict[str, int]:
        """Remove what is old now."""
        return forget_old(self._engine, self._keeping, self._clock.present(), self._pause)

    def _pause(self) -> bool:
        return self._stop.wait(PAUSE_SECONDS)


APART_SECONDS = 1.0
"""Shortest time between the beginnings of two looks: anybody may send what looks like a link."""


class SigningSecretRefresh:
    """Looks into the database for all who ask."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._look: asyncio.Task[None] | None = None
        self._due = monotonic()

    async def look(self) -> None:
        """Wait for a look that was not over yet when this was called."""
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(self._next())
        await asyncio.shield(self._look)

    async def _next(self) -> None:
        await asyncio.sleep(max(0.0, self._due - monotonic()))
        self._due = monotonic() + APART_SECONDS
        await run_in_threadpool(self._ring.refresh)
