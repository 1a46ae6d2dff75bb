"""Jobs: work that takes longer than a request, with its events. The row in the database is the state of a job."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Select, Update, insert, select, update

from service.answers.workers import Requirements
from service.store.engine import answering, now, reading, row_as, writing
from service.store.tables import JOB_EVENTS, JOBS

JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    id: str
    kind: str
    """launch-check or sweep-shard."""
    payload: Mapping[str, Any]
    """Input of the worker, as JSON."""
    timeout_seconds: float
    """Longest time of one attempt."""
    requires: Requirements = field(default_factory=Requirements)
    """Capabilities that the worker needs."""
    max_attempts: int = 2
    """Attempts before the job fails; released attempts do not count."""
    priority: int = 0
    """Higher first."""
    parent: str | None = None
    """Id of what the job is a part of, e.g. a sweep."""
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(NewJob):
    """A job as it is now; moments are in UTC by the database's clock."""

    status: JobStatus
    attempt: int
    given_back: int
    """Attempts that were released and do not count."""
    available_at: datetime
    """Earliest time at which a worker may claim it."""
    worker: str | None
    """Worker of the current or last attempt; None if the last lease expired."""
    lease_until: datetime | None
    """End of the lease, unless a heartbeat renews it."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    progress: Any
    """Last progress that its worker reported."""
    result: Any
    error: Mapping[str, Any] | None
    """Code and message of the last failure."""
    events: int
    lease_digest: bytes | None = field(repr=False)
    """Digest of the current lease; None if no lease is valid."""
    lease_key: str
    """Key of the last claim; empty without keys."""
    outcome_digest: bytes | None = field(repr=False)
    """Digest of the outcome of the last claim; None while there is none."""
    file_bytes: int
    progress_bytes: int

    @property
    def attempts_used(self) -> int:
        return self.attempt - self.given_back


OnEnd = Callable[[Connection, Job], None]
"""Further writes in the transaction that ends a job; an exception rolls it back."""


def create_jobs(engine: Engine, jobs: Sequence[NewJob]) -> None:
    with answering(), writing(engine) as connection:
        create_jobs_in(connection, jobs)


def create_jobs_in(connection: Connection, jobs: Sequence[NewJob]) -> None:
    """Store new jobs in the caller's transaction."""
    if not jobs:
        return
    moment = now()
    new = {"status": "queued", "attempt": 0, "given_back": 0, "cancel_requested": False, "events": 1}
    rows = [{**asdict(job), "requires": requires_text(job.requires), **new} for job in jobs]
    connection.execute(insert(JOBS).values(available_at=moment, created_at=moment), rows)
    events = [{"job_id": job.id, "number": 1, "name": "queued", "data": {}} for job in jobs]
    connection.execute(insert(JOB_EVENTS).values(at=moment), events)


def read_job(engine: Engine, job_id: str) -> Job | None:
    """The job with an id; None if there is none."""
    with answering(), reading(engine) as connection:
        return job_in(connection, select(JOBS).where(JOBS.c.id == job_id))


def job_in(connection: Connection, query: Select[Any]) -> Job | None:
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else job_of(row)


def change_in(
    connection: Connection, target: Update, values: Mapping[str, Any], data: Mapping[str, Any] | None = None
) -> Job | None:
    """Change a job, and add an event named after its new status."""
    changed = target.values(**values, events=JOBS.c.events + 1).returning(*JOBS.c)
    row = connection.execute(changed).mappings().one_or_none()
    if row is None:
        return None
    job = job_of(row)
    add_event_in(connection, job, job.status, data or {})
    return job


def add_event_in(connection: Connection, job: Job, name: str, data: Mapping[str, Any]) -> None:
    """Add the event whose number is the job's count of events."""
    values = {"job_id": job.id, "number": job.events, "name": name, "data": data}
    connection.execute(insert(JOB_EVENTS).values(at=now()), values)


def job_update(job_id: str) -> Update:
    return update(JOBS).where(JOBS.c.id == job_id)


def requires_text(requires: Requirements) -> str:
    """Requirements as canonical JSON: equal requirements have equal texts."""
    return json.dumps(asdict(requires), sort_keys=True, separators=(",", ":"))


def job_of(row: Mapping[Any, Any]) -> Job:
    return row_as(Job, row, requires=Requirements(**json.loads(row["requires"])))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    number: int
    """Position among its events: from 1, without gaps."""
    at: datetime | None
    """In UTC by the database's clock."""
    name: str
    """The new status of the job, or `progress`."""
    data: Mapping[str, Any]
    """Further facts; the report of the worker for `progress`."""


def read_later_events(engine: Engine, known: Mapping[str, int]) -> dict[str, tuple[JobStatus, list[JobEvent]]]:
    """Events of jobs after known numbers, in order, with the status of each job before the events were read."""
    columns = [JOB_EVENTS.c[name] for name in ("job_id", *JobEvent.__dataclass_fields__)]
    with answering(), reading(engine) as connection:
        query = select(JOBS.c.id, JOBS.c.status, JOBS.c.events).where(JOBS.c.id.in_(list(known)))
        jobs = connection.execute(query).all()
        events_by_job: dict[str, tuple[JobStatus, list[JobEvent]]] = {job.id: (job.status, []) for job in jobs}
        later = [job.id for job in jobs if job.events > known[job.id]]
        if not later:
            return events_by_job
        least = min(known[job_id] for job_id in later)
        events = select(*columns).where(JOB_EVENTS.c.job_id.in_(later), JOB_EVENTS.c.number > least)
        rows = connection.execute(events.order_by(JOB_EVENTS.c.number)).mappings().all()
    for row in rows:
        if row["number"] > known[row["job_id"]]:
            events_by_job[row["job_id"]][1].append(row_as(JobEvent, row))
    return events_by_job
