"""Workers are listed with their description, as alive while they report, and removed in the end."""

import ast
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.answers.workers import Capabilities
from service.jobs.leases import heartbeat_job
from service.store.engine import later, writing
from service.store.tables import WORKERS
from service.store.workers import JobRequest, read_workers, record_worker, remove_workers
from tests.house.source import ROOT, shown
from tests.jobs.small import LEASE_SECONDS, running, with_gpus

CAN = Capabilities(devices=with_gpus("h100", 8), labels={"rack": "7"}, measures=True, nodes=2)


def age(queue: Engine, seconds: float) -> None:
    """Let time pass without a word of any worker."""
    with writing(queue) as connection:
        connection.execute(WORKERS.update().values(last_seen_at=later(-seconds)))


def test_a_worker_is_listed_as_it_last_told_of_itself(queue: Engine) -> None:
    record_worker(queue, JobRequest(worker="w2", capabilities=Capabilities(), kinds=[]))
    record_worker(queue, JobRequest(worker="w1", capabilities=Capabilities(), kinds=[]))
    record_worker(queue, JobRequest(worker="w1", capabilities=CAN, kinds=[]))
    first, second = read_workers(queue, 80.0)
    assert (first.id, first.capabilities, first.is_alive, first.jobs) == ("w1", CAN, True, ())
    assert second.id == "w2"
    assert first.first_seen_at <= first.last_seen_at


def test_a_worker_is_alive_as_long_as_it_is_heard_of(queue: Engine) -> None:
    record_worker(queue, JobRequest(worker="w1", capabilities=CAN, kinds=[]))
    held = running(queue)
    age(queue, 81.0)
    assert [worker.is_alive for worker in read_workers(queue, 80.0)] == [False]
    assert heartbeat_job(queue, held, LEASE_SECONDS) == "run"
    (worker,) = read_workers(queue, 80.0)
    assert (worker.is_alive, worker.jobs) == (True, ("job_a",))


def test_a_worker_may_be_at_many_jobs(queue: Engine) -> None:
    record_worker(queue, JobRequest(worker="w1", capabilities=CAN, kinds=[]))
    running(queue)
    running(queue, job_id="job_b")
    assert [worker.jobs for worker in read_workers(queue, 80.0)] == [("job_a", "job_b")]


def test_who_is_not_heard_of_for_long_is_forgotten(queue: Engine) -> None:
    record_worker(queue, JobRequest(worker="w1", capabilities=CAN, kinds=[]))
    age(queue, 100.0)
    record_worker(queue, JobRequest(worker="w2", capabilities=CAN, kinds=[]))
    remove_workers(queue, 99.0)
    assert [worker.id for worker in read_workers(queue, 80.0)] == ["w2"]


LEASES = (
    *(ROOT / "service" / "jobs" / name for name in ("jobs.py", "leases.py")),
    *(ROOT / "service" / "worker").rglob("*.py"),
    ROOT / "service" / "api" / "background.py",
    *(ROOT / "service" / "features" / "workers").glob("*.py"),
    ROOT / "service" / "store" / "workers.py",
)
CLOCKS = {"time", "now", "utcnow", "today", "gmtime", "localtime"}
"""Calls that tell the time of day."""


@pytest.mark.parametrize("path", LEASES, ids=shown)
def test_no_clock_that_anybody_sets_counts_a_lease(path: Path) -> None:
    parts = ast.parse(path.read_text(encoding="utf-8")).body
    counting = [part for part in parts if getattr(part, "name", "") != "SlowerClock"]  # it takes the slower of two
    called = [
        ast.unparse(node.func)
        for part in counting
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS
    ]
    assert [name for name in called if not name.endswith("get_running_loop().time")] == []
