"""What happened to a job so far? Its events in order, for callers that were away for a while."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, select

from service.store.engine import answering, reading
from service.store.job_tables import JOB_EVENTS
from service.store.jobs import in_utc


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
