"""Leases of claimed jobs: in requests of workers, and their expiry on threads of each process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from threading import Event, Thread
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Path, Request
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import caller_of
from service.api.background import Retention, repeat
from service.api.errors import WrongParameter
from service.errors import Problem
from service.features.launch_checks.finished_jobs import on_end
from service.jobs.ends import LeaseExpiry
from service.jobs.leases import Lease
from service.store import Engine
from service.store.workers import remove_workers

LEASE_HEADER = "Traincost-Lease"
"""Header that carries the lease where a request has no JSON body."""

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
    """Lease of a request with the key of its caller."""
    return Lease(job_id, token, caller_of(request).id)


def token_in_header(request: Request) -> str:
    """Lease in the header of a request."""
    values = request.headers.getlist(LEASE_HEADER)
    if len(values) == 1 and 0 < len(values[0]) <= MOST_CHARACTERS:
        return values[0]
    message = f"the header {LEASE_HEADER} is {'no lease' if values else 'missing'}"
    fix = f"send {LEASE_HEADER}: LEASE once, with the lease that the claim was answered with"
    raise WrongParameter(Problem(field="", code="wrong_lease", message=message, fix=fix))


async def _checked_token(request: Request) -> str:
    return token_in_header(request)


async def _token(
    checked: Annotated[str, Depends(_checked_token)],  # raises before FastAPI refuses a header in its own words
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
"""Lease in the header of a request without a JSON body."""


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
