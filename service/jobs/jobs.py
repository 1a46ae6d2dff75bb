"""Which jobs are there? Work that takes longer than a request; the row in the database is the truth about it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Select, Update, insert, select, update

from service.answers.workers import Requirements
from service.store.engine import answering, reading, writing
from service.store.queries import in_utc, now
from service.store.tables import JOB_EVENTS, JOBS

JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be kept."""

    id: str
    """What it is read by."""
    kind: str
    """What is to be done: launch-check, sweep-shard."""
    payload: Mapping[str, Any]
    """What the worker is told, as JSON."""
    timeout_seconds: float
    """Longest time that one attempt may take."""
    requires: Requirements = field(default_factory=Requirements)
    """What the worker has to be able to do."""
    max_attempts: int = 2
    """How often it is tried before it counts as failed; what a worker gives back is no try."""
    priority: int = 0
    """Higher ones are handed out first."""
    parent: str | None = None
    """What it is a part of, e.g. a sweep."""
    owner: str = ""
    """Whose it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it is now; moments are in UTC by the database's clock."""

    id: str
    kind: str
    owner: str
    parent: str | None
    requires: Requirements
    payload: Mapping[str, Any]
    status: JobStatus
    priority: int
    attempt: int
    """How often it was handed out."""
    given_back: int
    """How many of those attempts were given back and do not count."""
    max_attempts: int
    timeout_seconds: float
    available_at: datetime
    """From when on it may be handed out."""
    worker: str | None
    """Who has it, or brought its last attempt to an end; None where the last one's lease ran out."""
    lease_until: datetime | None
    """Until when its worker has to be heard of."""
    created_at: datetime
    started_at: datetime | None
    """When its last attempt began."""
    finished_at: datetime | None
    cancel_requested: bool
    progress: Any
    """What its worker told last."""
    result: Any
    error: Mapping[str, Any] | None
    """Why its last attempt failed: code, message."""
    events: int
    """How many events there are of it."""
    lease_digest: bytes | None = field(repr=False)
    """Digest of the lease of its last claim; None where no lease holds any more."""
    lease_key: str
    """Key that made that claim; empty without keys."""
    outcome_digest: bytes | None = field(repr=False)
    """Digest of the outcome of that claim; None while there is none."""
    file_bytes: int
    """Bytes of its files."""
    progress_bytes: int
    """Bytes of all progress that was reported of it."""

    @property
    def attempts_used(self) -> int:
        """Attempts that count."""
        return self.attempt - self.given_back


Also = Callable[[Connection, Job], None]
"""What else to write when a job ends, in the transaction that ends it; what it raises undoes that transaction."""


def create_jobs(engine: Engine, jobs: Sequence[NewJob]) -> None:
    """Keep new jobs."""
    with answering(), writing(engine) as connection:
        create_jobs_in(connection, jobs)


def create_jobs_in(connection: Connection, jobs: Sequence[NewJob]) -> None:
    """Keep new jobs in somebody's transaction."""
    if not jobs:
        return
    moment = now()
    rows = [{**asdict(job), "requires": requires_text(job.requires), **_NEW} for job in jobs]
    connection.execute(insert(JOBS).values(available_at=moment, created_at=moment), rows)
    events = [{"job_id": job.id, "number": 1, "name": "queued", "data": {}} for job in jobs]
    connection.execute(insert(JOB_EVENTS).values(at=moment), events)


def read_job(engine: Engine, job_id: str) -> Job | None:
    """One job."""
    with answering(), reading(engine) as connection:
        return job_in(connection, select(JOBS).where(JOBS.c.id == job_id))


def job_in(connection: Connection, query: Select[Any]) -> Job | None:
    """The job that a query finds."""
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else job_of(row)


def change_in(
    connection: Connection, which: Update, values: Mapping[str, Any], data: Mapping[str, Any] | None = None
) -> Job | None:
    """Change a job and note that as an event, called as the status that it is in afterwards."""
    changed = which.values(**values, events=JOBS.c.events + 1).returning(*JOBS.c)
    row = connection.execute(changed).mappings().one_or_none()
    if row is None:
        return None
    job = job_of(row)
    note_in(connection, job, job.status, data or {})
    return job


def note_in(connection: Connection, job: Job, name: str, data: Mapping[str, Any]) -> None:
    """Add the event whose number the job's own count of events already tells."""
    values = {"job_id": job.id, "number": job.events, "name": name, "data": data}
    connection.execute(insert(JOB_EVENTS).values(at=now()), values)


def the_job(job_id: str) -> Update:
    """An update of one job."""
    return update(JOBS).where(JOBS.c.id == job_id)


def requires_text(requires: Requirements) -> str:
    """What a job requires, as text that is equal where the demands are."""
    return json.dumps(asdict(requires), sort_keys=True, separators=(",", ":"))


def job_of(row: Mapping[Any, Any]) -> Job:
    """A job from its row."""
    values = {name: row[name] for name in _NAMES}
    moments = {name: in_utc(values[name]) for name in _MOMENTS}
    return Job(**{**values, **moments, "requires": Requirements(**json.loads(values["requires"]))})


_NEW = {"status": "queued", "attempt": 0, "given_back": 0, "cancel_requested": False, "events": 1}
_NAMES = tuple(one.name for one in fields(Job))
_MOMENTS = ("available_at", "lease_until", "created_at", "started_at", "finished_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something that happened to a job."""

    number: int
    """Which of its events: from 1, without gaps."""
    at: datetime | None
    """When, in UTC by the database's clock."""
    name: str
    """The status that the job has since then, or progress."""
    data: Mapping[str, Any]
    """What else there is to say of it; of progress what the worker told."""


def read_events(engine: Engine, job_id: str, after: int = 0) -> list[JobEvent]:
    """Events of a job, in order."""
    columns = [JOB_EVENTS.c[name] for name in JobEvent.__dataclass_fields__]
    query = select(*columns).where(JOB_EVENTS.c.job_id == job_id, JOB_EVENTS.c.number > after)
    with answering(), reading(engine) as connection:
        rows = connection.execute(query.order_by(JOB_EVENTS.c.number)).mappings().all()
    return [JobEvent(**{**row, "at": in_utc(row["at"])}) for row in rows]


def read_later_events(engine: Engine, known: Mapping[str, int]) -> dict[str, tuple[JobStatus, list[JobEvent]]]:
    """What happened to jobs since, in order, and where each was before anybody looked for that."""
    columns = [JOB_EVENTS.c[name] for name in ("job_id", *JobEvent.__dataclass_fields__)]
    with answering(), reading(engine) as connection:
        query = select(JOBS.c.id, JOBS.c.status, JOBS.c.events).where(JOBS.c.id.in_(list(known)))
        jobs = connection.execute(query).all()
        found: dict[str, tuple[JobStatus, list[JobEvent]]] = {job.id: (job.status, []) for job in jobs}
        later = [job.id for job in jobs if job.events > known[job.id]]
        if not later:
            return found
        least = min(known[job_id] for job_id in later)
        events = select(*columns).where(JOB_EVENTS.c.job_id.in_(later), JOB_EVENTS.c.number > least)
        rows = connection.execute(events.order_by(JOB_EVENTS.c.number)).mappings().all()
    for row in rows:
        if row["number"] > known[row["job_id"]]:
            said = {name: row[name] for name in JobEvent.__dataclass_fields__}
            found[row["job_id"]][1].append(JobEvent(**{**said, "at": in_utc(row["at"])}))
    return found
