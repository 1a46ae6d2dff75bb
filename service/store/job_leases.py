"""Who has which job, and for how long? Workers claim jobs under a lease, and keep it by being heard of.

Worker and attempt together tell the one claim that may speak of a job: attempts only count up, so what comes from an
earlier claim is recognised however late it comes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Engine, Select, Update, delete, select, tuple_

from service.answers.workers import Capabilities, Requirements, does_match
from service.store.database_clock import later, now
from service.store.engine import answering, reading, writing
from service.store.job_tables import JOB_FILES, JOBS
from service.store.jobs import Job, change_in, job_in, note_in, the_job
from service.store.workers import saw_worker_in

HeartbeatState = Literal["run", "cancel", "lost"]
"""What a worker is told: go on, stop because somebody cancelled, stop because somebody else has the job."""


class Held(NamedTuple):
    """A claim on a job: what tells it from every other one."""

    job_id: str
    worker: str
    attempt: int


class Opening(NamedTuple):
    """What some of the queued jobs are, and what they require."""

    kind: str
    requires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeker:
    """A worker that looks for a job."""

    worker: str
    """Its name."""
    capabilities: Capabilities
    """What it can do."""
    kinds: Sequence[str]
    """Kinds of jobs that it knows."""

    def can_do(self, opening: Opening) -> bool:
        """Whether some of the queued jobs are for it.

        Args:
            opening: what they are

        Returns:
            whether it can do them
        """
        return opening.kind in self.kinds and does_match(
            Requirements(**json.loads(opening.requires)), self.capabilities
        )


def read_openings(engine: Engine) -> frozenset[Opening]:
    """What there is to be done: cheaper to look at than to claim, and enough for every worker that waits.

    Args:
        engine: the database

    Returns:
        what the queued jobs are

    Raises:
        Unreachable: the database does not answer
    """
    with answering(), reading(engine) as connection:
        return _openings_in(connection)


def claim_job(engine: Engine, seeker: Seeker, lease_seconds: float) -> Job | None:
    """Hand a worker the first job that it can do.

    Args:
        engine: the database
        seeker: the worker
        lease_seconds: until when it has to be heard of [second]

    Returns:
        the job; None where there is none for it

    Raises:
        Unreachable: the database does not answer
    """
    with answering(), writing(engine) as connection:
        wanted = [tuple(opening) for opening in _openings_in(connection) if seeker.can_do(opening)]
        job = _claim_in(connection, seeker.worker, wanted, lease_seconds) if wanted else None
        if job is not None and job.attempt > 1:
            connection.execute(delete(JOB_FILES).where(JOB_FILES.c.job_id == job.id))
        return job


def heartbeat_job(engine: Engine, held: Held, lease_seconds: float, progress: Any = None) -> HeartbeatState:
    """Renew the lease of a job.

    Args:
        engine: the database
        held: the claim
        lease_seconds: how long the lease holds from now on [second]
        progress: how far the job is; None where there is nothing new to say

    Returns:
        what the worker is to do

    Raises:
        Unreachable: the database does not answer
    """
    with answering(), writing(engine) as connection:
        saw_worker_in(connection, held.worker)
        job = job_in(connection, locked(held.job_id))
        if job is None or job.status != "running" or (job.worker, job.attempt) != (held.worker, held.attempt):
            return "lost"
        values: dict[str, Any] = {"lease_until": later(lease_seconds)}
        if progress is not None and progress != job.progress:
            values |= {"progress": progress, "events": JOBS.c.events + 1}
            note_in(connection, replace(job, events=job.events + 1), "progress", progress)
        connection.execute(the_job(job.id).values(**values))
        return "cancel" if job.cancel_requested else "run"


def held_job(held: Held) -> Update:
    """An update of a job, if the claim on it still holds.

    Args:
        held: the claim

    Returns:
        the statement, without values
    """
    claim = JOBS.c.status == "running", JOBS.c.worker == held.worker, JOBS.c.attempt == held.attempt
    return the_job(held.job_id).where(*claim)


def locked(job_id: str) -> Select[Any]:
    """A job that nobody else changes until the transaction ends.

    Args:
        job_id: its id

    Returns:
        the query
    """
    return select(JOBS).where(JOBS.c.id == job_id).with_for_update()


def _is_available() -> tuple[Any, ...]:
    return JOBS.c.status == "queued", JOBS.c.available_at <= now()


def _openings_in(connection: Connection) -> frozenset[Opening]:
    query = select(JOBS.c.kind, JOBS.c.requires).where(*_is_available()).distinct()
    return frozenset(Opening(*row) for row in connection.execute(query))


def _claim_in(
    connection: Connection, worker: str, wanted: Sequence[tuple[Any, ...]], lease_seconds: float
) -> Job | None:
    """Two that claim at the same moment get two jobs: one passes over what the other has locked."""
    first = select(JOBS.c.id).where(*_is_available(), tuple_(JOBS.c.kind, JOBS.c.requires).in_(wanted))
    first = first.order_by(JOBS.c.priority.desc(), JOBS.c.created_at, JOBS.c.id).limit(1)
    job_id = connection.execute(first.with_for_update(skip_locked=True)).scalar_one_or_none()
    if job_id is None:
        return None
    claim = {"status": "running", "worker": worker, "attempt": JOBS.c.attempt + 1}
    moments = {"lease_until": later(lease_seconds), "started_at": now(), "finished_at": None}
    emptied = {"progress": None, "result": None, "error": None}
    return change_in(connection, the_job(job_id), {**claim, **moments, **emptied}, {"worker": worker})
