"""What happened to a job so far? Its events in order, for callers that were away for a while."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, select

from service.store.engine import answering, reading
from service.store.job_tables import JOB_EVENTS, JOBS
from service.store.jobs import JobStatus, in_utc


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
    """Events of a job, in order.

    Args:
        engine: the database
        job_id: the job's id
        after: number of the last event that the caller knows; 0 for none

    Returns:
        the later ones

    Raises:
        Unreachable: the database does not answer
    """
    columns = [JOB_EVENTS.c[name] for name in JobEvent.__dataclass_fields__]
    query = select(*columns).where(JOB_EVENTS.c.job_id == job_id, JOB_EVENTS.c.number > after)
    with answering(), reading(engine) as connection:
        rows = connection.execute(query.order_by(JOB_EVENTS.c.number)).mappings().all()
    return [JobEvent(**{**row, "at": in_utc(row["at"])}) for row in rows]


def read_later_events(engine: Engine, known: Mapping[str, int]) -> dict[str, tuple[JobStatus, list[JobEvent]]]:
    """What happened to jobs since, in order, and where each was before anybody looked for that.

    Args:
        engine: the database
        known: by a job's id, the number of the last event that the caller knows; 0 for none

    Returns:
        status and later events of each job that is there; one that had ended then has no events to come

    Raises:
        Unreachable: the database does not answer
    """
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
