"""Job notifications: workers wait in the event loop, without a thread or a database connection each.

One look at what there is to do serves all workers that wait, so a thousand of them cost the database as much as one.
"""

import asyncio
from threading import Event

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.credential_ends import refuse_expired
from service.api.errors import LEAVING
from service.errors import Leaving
from service.jobs.ends import Outcome, finish_job
from service.jobs.leases import Claim, claim_job, read_openings
from service.store import Engine, Opening, Seeker
from service.store.replicas import ReadOnChange

AT_ONCE = 4
"""Workers that claim at the same moment; those behind them see what is left. Source: a choice."""
LOOK_SECONDS = 0.5
"""Time between two looks at what there is to do, while somebody waits. Source: a choice."""


class JobNotifications:
    """What there is to do, for workers that wait for it."""

    def __init__(self, engine: Engine, lease_seconds: float, leaving: Event) -> None:
        self._engine = engine
        self._lease_seconds = lease_seconds
        self._leaving = leaving
        self._found: frozenset[Opening] = frozenset()
        self._looked_at = float("-inf")
        self._read_on_change = ReadOnChange(engine, self._read)
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def claim(self, request: Request, seeker: Seeker, wait_seconds: float) -> Claim | None:
        """The first job for a worker."""
        clock = asyncio.get_running_loop().time
        ends = clock() + wait_seconds
        is_urgent = wait_seconds < LOOK_SECONDS  # nobody looks for it again, so what was seen a moment ago is too old
        while not await request.is_disconnected():
            refuse_expired(request)
            if not is_urgent:
                await self._look()
            if claim := await self._in_turn(request, seeker, is_urgent=is_urgent):
                return claim
            left_seconds = ends - clock()
            if self._leaving.is_set():
                raise Leaving(LEAVING)
            if left_seconds <= 0:
                break
            await asyncio.sleep(min(left_seconds, LOOK_SECONDS))
            is_urgent = False
        return None

    async def _in_turn(self, request: Request, seeker: Seeker, *, is_urgent: bool) -> Claim | None:
        """A job for a worker, unless those before it took what it was after: of a thousand, a few ask in vain."""
        if not (is_urgent or self._is_for(seeker)):
            return None
        async with self._turns:
            if not (is_urgent or self._is_for(seeker)):
                return None
            claim = await self._claimed(request, seeker)
            if claim is None:
                self._read_on_change.expire()
                self._found = frozenset(opening for opening in self._found if not seeker.can_do(opening))
            return claim

    def _is_for(self, seeker: Seeker) -> bool:
        return any(seeker.can_do(opening) for opening in self._found)

    async def _claimed(self, request: Request, seeker: Seeker) -> Claim | None:
        """A job for a worker that is there to take it; one that just went gives it back."""
        claim = await run_in_threadpool(claim_job, self._engine, seeker, self._lease_seconds)
        if claim is not None and await request.is_disconnected():
            await run_in_threadpool(finish_job, self._engine, claim.lease, Outcome(ending="released"))
            return None
        return claim

    async def _look(self) -> None:
        """See what there is to do; while one worker looks, the others know what was found before."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            if self._read_on_change.is_due():
                await run_in_threadpool(self._read_on_change)

    def _read(self) -> float | None:
        """Read what there is to do; the seconds until a job that was put off becomes available."""
        self._found, seconds = read_openings(self._engine)
        return seconds
