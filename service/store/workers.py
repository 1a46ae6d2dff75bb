"""Workers that recently claimed jobs, by key and name, with their capabilities."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import TypeAdapter

from service.answers.workers import Capabilities, Requirements, SeenWorker, does_match
from service.errors import Problem, Refused
from service.settings import WORKERS_PER_KEY
from service.store.engine import answering, insert_new, later, now, reading, utc_text, writing
from service.store.tables import JOBS, WORKERS

_CAPABILITIES = TypeAdapter(Capabilities)


class QueuedWork(NamedTuple):
    """A group of queued jobs: kinds, requirements and owner."""

    kind: str
    requires: str
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    worker: str
    capabilities: Capabilities
    kinds: Sequence[str]
    key: str = ""
    """Id of its key; empty where the service requires none."""
    owner: str | None = None
    """The only owner whose jobs it runs; None for every owner."""

    def can_do(self, work: QueuedWork) -> bool:
        """Whether a group of queued jobs matches the worker."""
        if work.kind not in self.kinds or self.owner not in {None, work.owner}:
            return False
        return does_match(Requirements(**json.loads(work.requires)), self.capabilities)


class WorkerBounds(NamedTuple):
    most: int = WORKERS_PER_KEY
    alive_seconds: float = 80.0
    """Time without a request after which another worker may replace it [second]."""


BOUNDS = WorkerBounds()


def record_worker(engine: sa.Engine, request: JobRequest, bounds: WorkerBounds = BOUNDS) -> None:
    moment, worker_id = now(), _id_of(request.key, request.worker)
    values = {"capabilities": asdict(request.capabilities), "owner": request.owner}
    row = {"id": worker_id, "key": request.key, "name": request.worker, **values}
    with answering(), writing(engine) as connection:
        updated = connection.execute(
            sa.update(WORKERS).where(WORKERS.c.id == worker_id).values(**values, last_seen_at=moment)
        )
        if not updated.rowcount:
            _enforce_limit(connection, request.key, bounds)
            insertion = insert_new(connection, WORKERS).values(first_seen_at=moment, last_seen_at=moment)
            connection.execute(insertion, row)


def renew_worker_in(connection: sa.Connection, key: str, worker: str) -> None:
    """Record that a known worker sent a request."""
    connection.execute(sa.update(WORKERS).where(WORKERS.c.id == _id_of(key, worker)).values(last_seen_at=now()))


def read_workers(engine: sa.Engine, alive_seconds: float, owner: str | None = None) -> list[SeenWorker]:
    """Live workers, by name."""
    is_alive = (WORKERS.c.last_seen_at >= later(-alive_seconds)).label("is_alive")
    name = sa.func.coalesce(WORKERS.c.name, WORKERS.c.id)
    has_job = sa.and_(JOBS.c.worker == name, JOBS.c.lease_key == WORKERS.c.key, JOBS.c.status == "running")
    columns = *WORKERS.c, is_alive, name.label("shown_name"), JOBS.c.id.label("job_id"), JOBS.c.owner.label("job_owner")
    query = sa.select(*columns).outerjoin_from(WORKERS, JOBS, has_job)
    if owner is not None:
        query = query.where(sa.or_(WORKERS.c.owner.is_(None), WORKERS.c.owner == owner))
    with answering(), reading(engine) as connection:
        rows = connection.execute(query.order_by(name, WORKERS.c.id, JOBS.c.id)).mappings().all()
    return [_worker_of_rows([dict(row) for row in same], owner) for _, same in groupby(rows, key=itemgetter("id"))]


def remove_workers(engine: sa.Engine, unseen_seconds: float) -> None:
    """Remove workers without a recent request."""
    with answering(), writing(engine) as connection:
        connection.execute(sa.delete(WORKERS).where(WORKERS.c.last_seen_at < later(-unseen_seconds)))


def _id_of(key: str, worker: str) -> str:
    """Id of a worker: a digest of key and name, because two keys may have workers of the same name."""
    return sha256(json.dumps([key, worker]).encode()).hexdigest() if key else worker


def _enforce_limit(connection: sa.Connection, key: str, bounds: WorkerBounds) -> None:
    count = sa.select(sa.func.count()).select_from(WORKERS).where(WORKERS.c.key == key)
    if connection.execute(count).scalar_one() < bounds.most:
        return
    removal = sa.delete(WORKERS).where(WORKERS.c.key == key, WORKERS.c.last_seen_at < later(-bounds.alive_seconds))
    if connection.execute(removal).rowcount:
        return
    message = (
        f"{bounds.most} workers asked with this key in the last {bounds.alive_seconds:.0f} s, as many as one may have"
    )
    fix = "let a worker keep its name, stop some, use a second key, or allow more (TRAINCOST_WORKERS_PER_KEY)"
    raise Refused(Problem(field="worker", code="too_many_workers", message=message, fix=fix))


def _worker_of_rows(rows: list[dict[str, Any]], owner: str | None) -> SeenWorker:
    """A worker from its rows, one for each of its jobs; jobs of other owners are not named."""
    row = rows[0]
    running = [job for job in rows if job["job_id"] is not None]
    jobs = tuple(job["job_id"] for job in running if owner is None or job["job_owner"] == owner)
    capabilities = _CAPABILITIES.validate_python(row["capabilities"])
    return SeenWorker(
        id=row["shown_name"],
        is_alive=bool(row["is_alive"]),
        is_busy=bool(running),
        jobs=jobs,
        capabilities=capabilities,
        first_seen_at=utc_text(row["first_seen_at"]),
        last_seen_at=utc_text(row["last_seen_at"]),
    )
