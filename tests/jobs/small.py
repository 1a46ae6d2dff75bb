"""Small jobs and workers for the tests of the queue."""

from typing import Any

from sqlalchemy import Engine, func, select, update

from service.answers.workers import Capabilities, Device
from service.jobs.jobs import Job, JobEvent, NewJob, create_jobs, read_job, read_later_events
from service.jobs.leases import Lease, Outcome, claim_job
from service.store.engine import later, reading, writing
from service.store.tables import JOBS
from service.store.workers import JobRequest

LEASE_SECONDS = 60.0
KIND = "count"
DONE = Outcome(ending="succeeded", result={"records": [1, 2.5, "ä"]})


def new_job(job_id: str = "job_a", **changed: Any) -> NewJob:
    """A job that any worker can do."""
    return NewJob(**{"id": job_id, "kind": KIND, "payload": {"to": 3}, "timeout_seconds": 60.0, **changed})


def seeker(worker: str = "w1", *, kinds: tuple[str, ...] = (KIND,), key: str = "", **can: Any) -> JobRequest:
    """A worker that looks for jobs."""
    return JobRequest(worker=worker, capabilities=Capabilities(**can), kinds=kinds, key=key)


def with_gpus(gpu: str, count: int, memory_bytes: float = 80e9) -> tuple[Device, ...]:
    """GPUs of one kind."""
    return (Device(name=gpu.upper(), gpu=gpu, count=count, memory_bytes=memory_bytes),)


def claimed(engine: Engine, worker: str = "w1", lease_seconds: float = LEASE_SECONDS) -> tuple[Job, Lease]:
    """The job that a worker gets, and its lease."""
    claim = claim_job(engine, seeker(worker), lease_seconds)
    assert claim is not None
    return claim.job, claim.lease


def running(engine: Engine, *, lease_seconds: float = LEASE_SECONDS, **changed: Any) -> Lease:
    """The lease of a worker on a job that was just made."""
    create_jobs(engine, [new_job(**changed)])
    return claimed(engine, lease_seconds=lease_seconds)[1]


def job_of(store: Engine, job_id: str = "job_a") -> Job:
    """A job as it is now."""
    job = read_job(store, job_id)
    assert job is not None
    return job


def change(store: Engine, job_id: str = "job_a", **values: Any) -> None:
    """What time would do to a job."""
    with writing(store) as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(values))


def lapse(store: Engine, job_id: str = "job_a") -> None:
    """Let the lease of a job run out."""
    change(store, job_id, lease_until=later(-1.0))


def read_events(engine: Engine, job_id: str, after: int = 0) -> list[JobEvent]:
    """Events of a job behind a number, in order."""
    found = read_later_events(engine, {job_id: after})
    return found[job_id][1] if job_id in found else []


def names(store: Engine, job_id: str = "job_a") -> list[str]:
    """What happened to a job."""
    return [event.name for event in read_events(store, job_id)]


def job_ids(engine: Engine, **held: Any) -> set[str]:
    """Ids of the jobs whose columns hold these values."""
    query = select(JOBS.c.id).where(*(JOBS.c[name] == value for name, value in held.items()))
    with reading(engine) as connection:
        return set(connection.execute(query).scalars())


def job_counts(engine: Engine, parent: str) -> dict[str, int]:
    """Parts of something by status, of those that any part is in."""
    query = select(JOBS.c.status, func.count().label("jobs")).where(JOBS.c.parent == parent).group_by(JOBS.c.status)
    with reading(engine) as connection:
        return {row.status: row.jobs for row in connection.execute(query)}
