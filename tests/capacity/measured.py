"""What a run measures, how it is kept in the file beside this one, and on what machine it was."""

import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any

import psycopg

from service.api.background import CHECKS_SECONDS
from tests.capacity.costs import Watched, cost_of, costs, footprint, kept_asking, requests_of
from tests.capacity.queueing import Service, ask_at, service_of, simulated, times_of
from tests.capacity.rows import served
from tests.capacity.workers import crowd
from tests.databases import new_database
from tests.databases import serving as postgresql
from tests.load import SETTINGS
from tests.replicas import replicas

FILE = Path(__file__).with_name("measured.json")
"""The last run whose figures are told."""
SINGLES = 10
RATE = 10_000.0
"""Requests a second that are planned for [1/second]."""
BUSY = 0.6
"""Share of its time for which a replica is to be busy; scaling.yaml aims for it too."""
PLANNED = ("check", "estimate")
"""Kinds of requests that a plan is made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    seconds: float = 8.0
    """How long each kind of request is asked, and each arrival rate [second]."""
    workers: int = 1_000
    spell_seconds: float = 20.0
    """How long workers wait, and how long they are busy [second]."""
    lease_seconds: float = 60.0
    rows: int = 1_000_000
    shares: tuple[float, ...] = (0.3, 0.5, 0.7)
    """Of what a replica can answer at most, the rates at which it is asked."""
    fewest: int = 400
    """Requests that are asked at each of them, at least."""
    simulated: int = 200_000
    """Requests of a simulation."""


@contextmanager
def database(kind: str) -> Iterator[str]:
    """The URL of an empty database."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/traincost.db"
        return
    with postgresql() as (server, reason):
        if server is None:
            raise RuntimeError(f"PostgreSQL cannot be started here: {reason}")
        with new_database(server) as url:
            yield url


@contextmanager
def watched(url: str, size: Size, count: int = 1) -> Iterator[list[Watched]]:
    """Replicas on a database."""
    settings = {**SETTINGS, "TRAINCOST_LEASE_SECONDS": str(size.lease_seconds)}
    with replicas(url, count, settings) as started:
        yield [Watched(one.address, one.process.pid, url) for one in started]


def machine() -> dict[str, Any]:
    """When and on what a run is made."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": name,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def measured_costs(kind: str, size: Size) -> dict[str, Any]:
    """Cost of each kind of request on one kind of database, and what a replica takes of memory and connections."""
    with database(kind) as url, watched(url, size) as (one,):
        started = footprint(one)
        found = {name: asdict(cost) for name, cost in costs(one, size.seconds)}
        time.sleep(2 * CHECKS_SECONDS)  # the last questions of checks are written then
        stored = {"started": started, "footprint": footprint(one), "question_bytes": question_bytes(url)}
        return {"costs": found, **stored, "version": _version(url)}


def question_bytes(url: str) -> float:
    """What the database takes for each question of a check that it keeps, with its indexes; 0 for SQLite [byte]."""
    if url.startswith("sqlite"):
        return 0.0
    with psycopg.connect(url) as connection:
        query = "SELECT pg_total_relation_size('checked_questions') / count(*)::float8 FROM checked_questions"
        ((found,),) = connection.execute(query).fetchall()
    return float(found)


def _version(url: str) -> str:
    if url.startswith("sqlite"):
        import sqlite3

        return sqlite3.sqlite_version
    with psycopg.connect(url) as connection:
        return str(connection.info.parameter_status("server_version")).split()[0]


def measured_crowd(kind: str, size: Size) -> dict[str, Any]:
    """What becomes of many workers on one kind of database."""
    with database(kind) as url, watched(url, size) as (one,):
        found = asdict(asyncio.run(crowd(one, size.workers, SINGLES, size.spell_seconds)))
        return {**found, "footprint": footprint(one)}


def measured_rows(kind: str, rows: int) -> dict[str, Any]:
    """What many own rows take on one kind of database."""
    with database(kind) as url:
        return asdict(served(url, rows))


def measured_queues(size: Size) -> list[dict[str, Any]]:
    """Times of requests at some rates, foretold and then measured, of one replica and of two in turn."""
    found = []
    for count, shares in ((1, size.shares), (2, size.shares[:1])):
        with database("postgresql") as url, watched(url, size, count) as started:
            checks = requests_of(url)["check"]
            service, _ = service_times(started[0], checks, size)
            found += [_queue(started, checks, service, share, size) for share in shares]
    return found


def _queue(started: list[Watched], requests: list[Any], service: Service, share: float, size: Size) -> dict[str, Any]:
    """Times of requests at one rate, foretold and measured."""
    rate = share * len(started) * service.per_second
    foretold = simulated(service, rate, len(started), size.simulated)
    seconds = max(size.seconds, size.fewest / rate)
    asked = asyncio.run(ask_at([one.address for one in started], rate, seconds, cycle(requests)))
    assert not asked.faults, asked.faults
    return {
        "replicas": len(started),
        "rate": rate,
        "share": share,
        "requests": len(asked.seconds),
        "predicted": asdict(foretold),
        "measured": asdict(times_of([took for _, took in asked.seconds])),
    }


def service_times(one: Watched, requests: list[Any], size: Size) -> tuple[Service, dict[str, Any]]:
    """What one kind of request takes of a replica, as simulations need it, and its cost."""
    endless = cycle(requests)
    cost = cost_of(one, requests, size.seconds)
    alone = [took for _, took in kept_asking(one, endless, 1, size.seconds / 2).seconds]
    return service_of(alone, 1.0 / cost.per_second), asdict(cost)


def planned(size: Size) -> dict[str, Any]:
    """How many replicas answer RATE requests of a kind a second, each busy for BUSY of its time, and how fast then."""
    found = {}
    with database("postgresql") as url, watched(url, size) as (one,):
        kinds = requests_of(url)
        for kind in PLANNED:
            service, cost = service_times(one, kinds[kind], size)
            on_core = replace(service, busy_seconds=_scaled(service, cost["processor_ms"] / 1e3))
            count = ceil(RATE / on_core.per_second / BUSY)
            times = simulated(on_core, RATE, count, size.simulated)
            found[kind] = {"replicas": count, "per_replica": on_core.per_second, **asdict(times)}
    return {"rate": RATE, "busy_percent": 100 * BUSY, "kinds": found}


def _scaled(service: Service, mean_seconds: float) -> tuple[float, ...]:
    """The same times on a core that the replica has to itself, where it is busy for its processor time."""
    scale = mean_seconds * service.per_second
    return tuple(scale * one for one in service.busy_seconds)


def read() -> Mapping[str, Any]:
    """The run that was kept."""
    found: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found
