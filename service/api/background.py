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
from service.store import Engine
from service.store.keys import KeyRing
from service.store.retention import RetentionPeriods, remove_old

log = logging.getLogger(__name__)


def repeat(complaint: str, task: Callable[[], object], seconds: float, stop: Event, noted: Event | None = None) -> None:
    """Run a task periodically until `stop` is set; log the first of consecutive failures.

    With `noted`, each run waits for that event, so an idle process does not wake up. To end it, set `stop`, then
    `noted`.
    """
    failing = False
    while not _is_over(seconds, stop, noted):
        try:
            task()
        except Exception as error:  # of any kind: requests go on, and the next run may succeed
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
"""Pause between two removals, in which other writers proceed. Source: a choice."""


class Retention:
    """Removes rows that are older than their retention period."""

    def __init__(self, engine: Engine, settings: Settings, stop: Event) -> None:
        self._engine, self._stop = engine, stop
        self._keeping = RetentionPeriods(
            jobs_days=settings.keep_jobs_days,
            job_files_days=settings.keep_job_files_days,
            measurements_days=settings.keep_measurements_days,
            answers_days=settings.keep_answers_days,
            audit_days=settings.keep_audit_days,
        )
        self._clock = SlowerClock(engine)

    def run(self) -> dict[str, int]:
        """Remove the rows that are too old now, and count them by table."""
        return remove_old(self._engine, self._keeping, self._clock.present(), self._pause)

    def _pause(self) -> bool:
        return self._stop.wait(PAUSE_SECONDS)


REFRESH_SECONDS = 1.0
"""Shortest time between the beginnings of two reads: any caller may send a made-up link."""


class SigningSecretRefresh:
    """Reads the signing secret from the database, once for all requests that wait for it."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._refresh: asyncio.Task[None] | None = None
        self._due = monotonic()

    async def refresh(self) -> None:
        """Wait for a read that ends after this call; concurrent callers share one."""
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.ensure_future(self._next())
        await asyncio.shield(self._refresh)

    async def _next(self) -> None:
        await asyncio.sleep(max(0.0, self._due - monotonic()))
        self._due = monotonic() + REFRESH_SECONDS
        await run_in_threadpool(self._ring.refresh)
