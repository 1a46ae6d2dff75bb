"""Sweeps in the database: one row a sweep, whose parts are jobs with it as parent."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, func, insert, select

from service.jobs.jobs import JobStatus, NewJob, create_jobs_in
from service.store.engine import RowPart, answering, now, part_of, reading, row_as, writing
from service.store.requests import log_change_in
from service.store.tables import JOBS, SWEEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSweep:
    id: str
    name: str | None
    kind: str
    owner: str
    rows: int
    columns: Sequence[Sequence[str]]
    """Name and type of each column of its table."""
    formulas: str
    catalogue: str
    calibration: str | None
    """Calibrations of its GPUs; None where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSweep(NewSweep):
    """A stored sweep, without its content."""

    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    id: str
    status: JobStatus
    started_at: datetime | None
    finished_at: datetime | None
    progress: Any
    result: Any
    error: Mapping[str, Any] | None


def create_sweep(engine: Engine, sweep: NewSweep, content: bytes, shards: Sequence[NewJob]) -> None:
    with answering(), writing(engine) as connection:
        connection.execute(insert(SWEEPS).values(created_at=now()), {**asdict(sweep), "content": content})
        create_jobs_in(connection, shards)
        log_change_in(connection, sweep.id)


def read_sweep(engine: Engine, sweep_id: str) -> StoredSweep | None:
    with answering(), reading(engine) as connection:
        row = connection.execute(select(*_COLUMNS).where(SWEEPS.c.id == sweep_id)).mappings().one_or_none()
    return None if row is None else row_as(StoredSweep, row)


def read_sweeps(
    engine: Engine, owner: str | None = None, part: RowPart | None = None
) -> list[tuple[StoredSweep, dict[JobStatus, int]]]:
    """Sweeps, each with its parts counted by status."""
    which = () if owner is None else (SWEEPS.c.owner == owner,)
    ids = part_of(select(SWEEPS.c.id).where(*which), engine, part, SWEEPS.c.id, SWEEPS.c.created_at)
    counted = select(JOBS.c.parent, JOBS.c.status, func.count().label("jobs"))
    counted = counted.where(JOBS.c.parent.in_(ids)).group_by(JOBS.c.parent, JOBS.c.status)
    query = part_of(select(*_COLUMNS).where(*which), engine, part, SWEEPS.c.id, SWEEPS.c.created_at)
    with answering(), reading(engine) as connection:
        counts: dict[str, dict[JobStatus, int]] = {}
        for parent, status, jobs in connection.execute(counted):
            counts.setdefault(parent, {})[status] = jobs
        rows = connection.execute(query).mappings().all()
    return [(row_as(StoredSweep, row), counts.get(row["id"], {})) for row in rows]


def read_sweep_content(engine: Engine, sweep_id: str) -> bytes | None:
    """All inputs of the rows of a sweep."""
    with answering(), reading(engine) as connection:
        query = select(SWEEPS.c.content).where(SWEEPS.c.id == sweep_id)
        content: bytes | None = connection.execute(query).scalar_one_or_none()
    return content


def read_shards(engine: Engine, sweep_id: str) -> list[ShardState]:
    """The parts of a sweep, in the order of their rows."""
    query = select(*_SHARD_COLUMNS).where(JOBS.c.parent == sweep_id).order_by(JOBS.c.id)
    with answering(), reading(engine) as connection:
        rows = connection.execute(query).mappings().all()
    return [row_as(ShardState, row) for row in rows]


def read_sweeps_and_shards(engine: Engine, sweep_ids: Sequence[str]) -> list[tuple[StoredSweep, list[ShardState]]]:
    """Some sweeps, each with its parts in the order of their rows."""
    shards: dict[str, list[ShardState]] = {}
    query = select(JOBS.c.parent, *_SHARD_COLUMNS).where(JOBS.c.parent.in_(sweep_ids)).order_by(JOBS.c.id)
    with answering(), reading(engine) as connection:
        sweeps = connection.execute(select(*_COLUMNS).where(SWEEPS.c.id.in_(sweep_ids))).mappings().all()
        for row in connection.execute(query).mappings():
            shards.setdefault(row["parent"], []).append(row_as(ShardState, row))
    return [(row_as(StoredSweep, row), shards.get(row["id"], [])) for row in sweeps]


_COLUMNS = tuple(SWEEPS.c[field.name] for field in fields(StoredSweep))
_SHARD_COLUMNS = tuple(JOBS.c[field.name] for field in fields(ShardState))
