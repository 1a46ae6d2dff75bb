"""Which workers are there? Whoever asked for a job lately, with what it said that it can do."""

from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, and_, delete, select, update

from service.answers.workers import Capabilities, SeenWorker
from service.store.database_clock import later, now
from service.store.engine import answering, insert_new, reading, writing
from service.store.job_tables import JOBS, WORKERS
from service.store.scenarios import utc_text

_CAPABILITIES = TypeAdapter(Capabilities)


def see_worker(engine: Engine, worker: str, capabilities: Capabilities) -> None:
    """Note that a worker is there, and what it can do.

    Args:
        engine: the database
        worker: its name
        capabilities: what it can do

    Raises:
        Unreachable: the database does not answer
    """
    moment, can = now(), asdict(capabilities)
    first = {"id": worker, "capabilities": can}
    with answering(), writing(engine) as connection:
        known = connection.execute(
            update(WORKERS).where(WORKERS.c.id == worker).values(capabilities=can, last_seen_at=moment)
        )
        if not known.rowcount:
            adding = insert_new(connection, WORKERS).values(first_seen_at=moment, last_seen_at=moment)
            connection.execute(adding, first)


def saw_worker_in(connection: Connection, worker: str) -> None:
    """Note that a known worker is still there.

    Args:
        connection: the database, inside a writing transaction
        worker: its name
    """
    connection.execute(update(WORKERS).where(WORKERS.c.id == worker).values(last_seen_at=now()))


def read_workers(engine: Engine, alive_seconds: float) -> list[SeenWorker]:
    """Every worker that was heard of, in the order of their names.

    Args:
        engine: the database
        alive_seconds: time for which a worker that is not heard of is taken to be there [second]

    Returns:
        the workers

    Raises:
        Unreachable: the database does not answer
    """
    is_alive = (WORKERS.c.last_seen_at >= later(-alive_seconds)).label("is_alive")
    has_job = and_(JOBS.c.worker == WORKERS.c.id, JOBS.c.status == "running")
    query = select(*WORKERS.c, is_alive, JOBS.c.id.label("job_id")).outerjoin_from(WORKERS, JOBS, has_job)
    with answering(), reading(engine) as connection:
        rows = connection.execute(query.order_by(WORKERS.c.id, JOBS.c.id)).mappings().all()
    return [_seen([dict(row) for row in same]) for _, same in groupby(rows, key=itemgetter("id"))]


def forget_workers(engine: Engine, unseen_seconds: float) -> None:
    """Remove workers that were not heard of for long.

    Args:
        engine: the database
        unseen_seconds: for how long [second]

    Raises:
        Unreachable: the database does not answer
    """
    with answering(), writing(engine) as connection:
        connection.execute(delete(WORKERS).where(WORKERS.c.last_seen_at < later(-unseen_seconds)))


def _seen(rows: list[dict[str, Any]]) -> SeenWorker:
    """A worker from its rows, one for each of its jobs."""
    row = rows[0]
    jobs = tuple(one["job_id"] for one in rows if one["job_id"] is not None)
    moments: dict[str, datetime] = {name: row[name] for name in ("first_seen_at", "last_seen_at")}
    told = {name: utc_text(moment) for name, moment in moments.items()}
    can = _CAPABILITIES.validate_python(row["capabilities"])
    return SeenWorker(id=row["id"], is_alive=bool(row["is_alive"]), jobs=jobs, capabilities=can, **told)
