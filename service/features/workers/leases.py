"""Leases of claimed jobs: waiting for a job, leases in requests, and their expiry on threads of each process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from threading import Event, Thread
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Path, Request
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import caller_of
from service.api.background import Retention, repeat
from service.api.errors import LEAVING, WrongParameter
from service.api.streams import refuse_expired
from service.errors import Leaving, Problem
from service.features.launch_checks.finished_jobs import on_end
from service.jobs.leases import Claim, Lease, LeaseExpiry, Outcome, claim_job, finish_job, read_queued_work
from service.store import Engine
from service.store.database import ReadOnChange
from service.store.workers import JobRequest, QueuedWork, remove_workers

LEASE_HEADER = "Traincost-Lease"

MOST_CHARACTERS = 100
"""Longest lease text; a real one has 43 characters."""

JOB_ID = "lch_3b1f0c7e9a5d42688c0e5f7a1d2b4c6e"
EXAMPLE_LEASE = "EXAMPLE-LEASE-aQ3vX9mZ2kT7rW5yB8nC4dF6gH1jL0"

NOT_HELD = Problem(
    field="lease",
    code="lease_lost",
    message="no job is held under this lease with this key: it ran out, was never given, or the job ended",
    fix="stop what runs for the job, hand in nothing more of it, and claim the next job",
)
"""Refusal of an invalid lease, whatever the reason: it does not reveal whether the job exists."""

JobId = Annotated[str, Path(description="Id of the job.", examples=[JOB_ID])]


def lease_of(request: Request, job_id: str, token: str) -> Lease:
    return Lease(job_id, token, caller_of(request).id)


async def _token_in_header(request: Request) -> str:
    values = request.headers.getlist(LEASE_HEADER)
    if len(values) == 1 and 0 < len(values[0]) <= MOST_CHARACTERS:
        return values[0]
    message = f"the header {LEASE_HEADER} is {'no lease' if values else 'missing'}"
    fix = f"send {LEASE_HEADER}: LEASE once, with the lease that the claim was answered with"
    raise WrongParameter(Problem(field="", code="wrong_lease", message=message, fix=fix))


async def _token(
    checked: Annotated[str, Depends(_token_in_header)],  # raises before FastAPI refuses a header in its own words
    sent: Annotated[  # noqa: ARG001 - describes the header
        str,
        Header(
            alias=LEASE_HEADER,
            min_length=1,
            max_length=MOST_CHARACTERS,
            description="The lease that the job was claimed with.",
            examples=[EXAMPLE_LEASE],
        ),
    ],
) -> str:
    return checked


LeaseToken = Annotated[str, Depends(_token)]

FORGET_SECONDS = 3600.0
"""Interval of removing old rows."""
LISTED_SECONDS = 7 * 86_400.0
"""Time that a silent worker stays listed. Source: a choice."""
LEAVE_SECONDS = 1.0
"""Longest wait for a running task when the process stops."""


@asynccontextmanager
async def expiring_leases(app: FastAPI) -> AsyncIterator[None]:
    """Requeue jobs whose lease expired and remove old rows while the application runs."""
    engine: Engine | None = app.state.engine
    if engine is None:
        yield
        return
    stop, lease_seconds = Event(), app.state.settings.lease_seconds
    tasks = (
        ("jobs of lost workers wait", LeaseExpiry(engine, lease_seconds, on_end).tick, lease_seconds / 2),
        ("workers that are long gone stay listed", partial(remove_workers, engine, LISTED_SECONDS), FORGET_SECONDS),
        ("what is old stays kept", Retention(engine, app.state.settings, stop).run, FORGET_SECONDS),
    )
    threads = [Thread(target=repeat, args=(*task, stop), name="reaper", daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            await run_in_threadpool(thread.join, LEAVE_SECONDS)


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
