"""Cost of a request of each kind for a replica and its database, and its time alone."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlencode

import psycopg

from service.answers.workers import Capabilities
from service.jobs.jobs import NewJob, create_jobs
from service.jobs.leases import claim_job
from service.store.engine import open_engine
from service.store.workers import JobRequest, record_worker
from tests.load import Found, Request, asked, keep_asking, open_files, post, processor_seconds, resident_bytes
from tests.mixed import flat, questions

CLIENTS = 8
"""Who ask at the same time, so that a replica has always something to do."""
TOGETHER = 100
"""Questions of a batch."""
FEWEST = 8
"""Requests of a kind that are asked at least, however long they take."""
DIFFERENT = 300
"""Requests of one kind that differ."""
KIND = "capacity"
"""Kind of the jobs that nobody but these clients knows."""
HELD = "job_capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a request costs."""

    requests: int
    """How many were asked."""
    processor_ms: float
    """Processor time of the replica for one [millisecond]."""
    database_ms: float
    """Processor time of PostgreSQL for one; 0 on SQLite, which runs inside the replica [millisecond]."""
    p50_ms: float
    """Median time until the whole answer is there, with one client [millisecond]."""
    p99_ms: float
    """The same, of which one in a hundred takes longer [millisecond]."""
    per_second: float
    """Answers of one replica that is always busy [1/second]."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A replica, and its database."""

    address: str
    process: int
    url: str

    def spent(self) -> tuple[float, float]:
        """Processor time so far of the replica and of PostgreSQL [second]."""
        return processor_seconds(self.process), database_seconds(self.url)


def database_seconds(url: str) -> float:
    """Processor time so far of every process of a PostgreSQL server, those that ended too; 0 for SQLite [second]."""
    if url.startswith("sqlite"):
        return 0.0
    with psycopg.connect(url) as connection:
        ((folder,),) = connection.execute("SHOW data_directory").fetchall()
    first = int((Path(folder) / "postmaster.pid").read_text(encoding="ascii").split()[0])
    ended = Path(f"/proc/{first}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    own = (int(ended[13]) + int(ended[14])) / 100.0
    return own + processor_seconds(first) + sum(map(_seconds_if_there, children_of(first)))


def _seconds_if_there(process: int) -> float:
    try:
        return processor_seconds(process)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def children_of(process: int) -> list[int]:
    """Processes that a process started and that run."""
    return [int(one) for file in Path(f"/proc/{process}/task").glob("*/children") for one in file.read_text().split()]


def requests_of(url: str) -> dict[str, list[Request]]:
    """Requests by kind; a job is made that a worker of these clients holds."""
    engine = open_engine(url)
    create_jobs(engine, [NewJob(id=HELD, kind=KIND, payload={}, timeout_seconds=3600.0)])
    worker = JobRequest(worker="capacity", capabilities=Capabilities(), kinds=[KIND])
    record_worker(engine, worker)
    claimed = claim_job(engine, worker, 3600.0)
    assert claimed is not None
    engine.dispose()
    asked_of = questions()

    def some(count: int) -> list[dict[str, Any]]:
        return [next(asked_of) for _ in range(count)]

    heartbeat = {"lease": claimed.lease.token}
    claim = {"worker": "idle", "kinds": ["another"], "wait_seconds": 0}
    return {
        "check": [post("/v1/check", one) for one in some(DIFFERENT)],
        "estimate": [post("/v1/estimates", one) for one in some(DIFFERENT)],
        "batch": [
            post("/v1/batch", {"questions": [{"kind": "estimate", "body": one} for one in some(TOGETHER)]})
            for _ in range(5)
        ],
        "plan": [post("/v1/plans", _to_plan(one)) for one in some(20)],
        "cell": [Request("GET", f"/v1/cell/gpu_hours?{urlencode(flat(one))}") for one in some(DIFFERENT)],
        "list": [Request("GET", "/v1/prices?limit=50")],
        "claim": [post("/v1/worker/claim", claim, 204)],
        "heartbeat": [
            post(f"/v1/worker/jobs/{HELD}/heartbeat", {**heartbeat, "progress": {"done": n}}) for n in range(DIFFERENT)
        ],
    }


def _to_plan(question: dict[str, Any]) -> dict[str, Any]:
    """A small search: layouts on 16 GPUs."""
    asked_for = {name: part for name, part in question.items() if name not in ("layout", "cluster")}
    recipe = {**question["recipe"], "global_batch": 64}
    return {**asked_for, "recipe": recipe, "cluster": {"gpu": question["cluster"]["gpu"], "gpus": 16}, "top": 3}


def cost_of(watched: Watched, requests: Sequence[Request], seconds: float) -> Cost:
    """Ask requests of one kind for so long: the first half alone, the second by several clients."""
    endless = cycle(requests)
    asked(watched.address, next(endless))
    alone = kept_asking(watched, endless, 1, seconds / 2)
    before, began = watched.spent(), time.monotonic()
    busy = kept_asking(watched, endless, CLIENTS, seconds / 2)
    took, after = time.monotonic() - began, watched.spent()
    answers = len(busy.seconds)
    milliseconds = [1e3 * one for _, one in alone.seconds]
    return Cost(
        requests=len(alone.seconds) + answers,
        processor_ms=1e3 * (after[0] - before[0]) / answers,
        database_ms=1e3 * (after[1] - before[1]) / answers,
        p50_ms=median(milliseconds),
        p99_ms=quantiles(milliseconds, n=100, method="inclusive")[-1],
        per_second=answers / took,
    )


def kept_asking(watched: Watched, requests: Iterator[Request], clients: int, seconds: float) -> Found:
    """What clients found that asked for so long, and FEWEST times at least; none of them is refused."""
    ends, numbers = time.monotonic() + seconds, count()

    def next_request() -> Request | None:
        return next(requests) if next(numbers) < FEWEST or time.monotonic() < ends else None

    found = asyncio.run(keep_asking(watched.address, clients, float("inf"), next_request))
    assert not found.faults, found.faults
    return found


def costs(watched: Watched, seconds: float) -> Iterator[tuple[str, Cost]]:
    """The cost of each kind, each asked for so long, as it is measured."""
    for kind, requests in requests_of(watched.url).items():
        yield kind, cost_of(watched, requests, seconds)


def footprint(watched: Watched) -> dict[str, float]:
    """Memory of a replica, and what it has open of files and of connections to PostgreSQL."""
    found: dict[str, float] = {"memory_mb": resident_bytes(watched.process) / 1e6, "files": open_files(watched.process)}
    if not watched.url.startswith("sqlite"):
        with psycopg.connect(watched.url) as connection:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            ((found["connections"],),) = connection.execute(query).fetchall()
    return found
