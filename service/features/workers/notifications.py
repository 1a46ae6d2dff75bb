"""Job notifications: workers wait in the event loop, without a thread or a database connection each.

One query for available jobs serves all waiting workers, so a thousand of them cost the database as much as one.
"""

import asyncio
from threading import Event

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.errors import LEAVING
from service.api.streams import refuse_expired
from service.errors import Leaving
from service.jobs.ends import Outcome, finish_job
from service.jobs.leases import Claim, claim_job, read_queued_work
from service.store import Engine
from service.store.replicas import ReadOnChange
from service.store.workers import JobRequest, QueuedWork

AT_ONCE = 4
"""Workers that claim concurrently; others see the remaining jobs. Source: a choice."""
POLL_SECONDS = 0.5
"""Interval of queries for available jobs, while a worker waits."""


class JobNotifications:
    """Available jobs for waiting workers."""

    def __init__(self, engine: Engine, lease_seconds: float, leaving: Event) -> None:
        self._engine = engine
        self._lease_seconds = lease_seconds
        self._leaving = leaving
        self._available: frozenset[QueuedWork] = frozenset()
        self._polled_at = float("-inf")
        self._read_on_change = ReadOnChange(engine, self._read)
        self._claims = asyncio.Semaphore(AT_ONCE)

    async def claim(self, request: Request, claimant: JobRequest, wait_seconds: float) -> Claim | None:
        """Claim the first suitable job."""
        clock = asyncio.get_running_loop().time
        ends = clock() + wait_seconds
        is_urgent = wait_seconds < POLL_SECONDS  # there is no later poll, so the last result is too old
        while not await request.is_disconnected():
            refuse_expired(request)
            if not is_urgent:
                await self._poll()
            if claim := await self._claim_next(request, claimant, is_urgent=is_urgent):
                return claim
            left_seconds = ends - clock()
            if self._leaving.is_set():
                raise Leaving(LEAVING)
            if left_seconds <= 0:
                break
            await asyncio.sleep(min(left_seconds, POLL_SECONDS))
            is_urgent = False
        return None

    async def _claim_next(self, request: Request, claimant: JobRequest, *, is_urgent: bool) -> Claim | None:
        """Claim a job, unless earlier workers took all suitable ones."""
        if not (is_urgent or self._has_job_for(claimant)):
            return None
        async with self._claims:
            if not (is_urgent or self._has_job_for(claimant)):
                return None
            claim = await self._claimed(request, claimant)
            if claim is None:
                self._read_on_change.expire()
                self._available = frozenset(
                    available_job for available_job in self._available if not claimant.can_do(available_job)
                )
            return claim

    def _has_job_for(self, claimant: JobRequest) -> bool:
        return any(claimant.can_do(available_job) for available_job in self._available)

    async def _claimed(self, request: Request, claimant: JobRequest) -> Claim | None:
        """Claim a job, and release it if the worker disconnected."""
        claim = await run_in_threadpool(claim_job, self._engine, claimant, self._lease_seconds)
        if claim is not None and await request.is_disconnected():
            await run_in_threadpool(finish_job, self._engine, claim.lease, Outcome(ending="released"))
            return None
        return claim

    async def _poll(self) -> None:
        """Refresh the available jobs, at most one query at a time."""
        now = asyncio.get_running_loop().time()
        if now - self._polled_at >= POLL_SECONDS:
            self._polled_at = now
            if self._read_on_change.is_due():
                await run_in_threadpool(self._read_on_change)

    def _read(self) -> float | None:
        """Read the available jobs; return the seconds until a delayed job becomes available."""
        self._available, seconds = read_queued_work(self._engine)
        return seconds
