"""Expiry of leases, and removal of old rows, on threads of each process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from threading import Event, Thread

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from service.api.background import Retention, repeat
from service.features.launch_checks.finished_jobs import on_end
from service.jobs.ends import LeaseExpiry
from service.store import Engine
from service.store.workers import remove_workers

FORGET_SECONDS = 3600.0
"""Interval of removing old rows."""
LISTED_SECONDS = 7 * 86_400.0
"""Time that a silent worker stays listed. Source: a choice."""
LEAVE_SECONDS = 1.0
"""Longest wait for a running task when the process stops."""


@asynccontextmanager
async def expiring_leases(app: FastAPI) -> AsyncIterator[None]:
    """Requeue jobs whose lease expired and remove old rows while the application runs.

    The first check comes half a lease after the start: workers that could not reach the service meanwhile have sent
    heartbeats by then. A change of the system clock takes no job from a worker.
    """
    engine: Engine | None = app.state.engine
    if engine is None:
        yield
        return
    stop, lease_seconds = Event(), app.state.settings.lease_seconds
    tasks = (
        ("jobs of lost workers wait", LeaseExpiry(engine, lease_seconds, on_end).look, lease_seconds / 2),
        ("workers that are long gone stay listed", partial(remove_workers, engine, LISTED_SECONDS), FORGET_SECONDS),
        ("what is old stays kept", Retention(engine, app.state.settings, stop).run, FORGET_SECONDS),
    )
    threads = [Thread(target=repeat, args=(*look, stop), name="reaper", daemon=True) for look in tasks]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            await run_in_threadpool(thread.join, LEAVE_SECONDS)
