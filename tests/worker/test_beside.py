"""`traincost serve` runs a worker beside it that ends with it, however it ends."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from service.catalogue import shipped_catalogue
from service.jobs.jobs import NewJob, create_jobs, read_job
from service.store.engine import open_engine
from tests.databases import prepared
from tests.house.source import ROOT
from tests.live import bearer
from tests.prestarted import Started
from tests.waiting import wait_until
from tests.worker.processes import is_alive, seconds_until_gone


class Served:
    """A service with a worker beside it."""

    def __init__(self, process: Started, address: str, log: Path) -> None:
        self.process, self.address, self.log = process, address, log

    def workers(self) -> list[dict[str, Any]]:
        with urlopen(f"http://{self.address}/v1/workers", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["items"]
            return found

    def child(self) -> int:
        """The worker's process."""
        (pid,) = self.children("worker")
        return pid

    def children(self, word: str) -> list[int]:
        """Processes that the service started with such a word in their command."""
        listed = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [int(pid) for path in listed for pid in path.read_text(encoding="utf-8").split()]
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0") for pid in pids}
        return [pid for pid, words in commands.items() if word in words]


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[Served]:
    environment = {**os.environ, "TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db", "PYTHONPATH": str(ROOT)}
    prepared(environment["TRAINCOST_DATABASE_URL"], shipped_catalogue()).dispose()
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = Started(["service", "serve", "--port", "0", *words], ROOT, environment, stderr=log)
        try:
            found = re.search(r"http://([\d.]+:\d+)", process.stdout.readline())
            assert found
            yield Served(process, found[1], folder / "log")
        finally:
            process.kill()
            process.communicate(timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux lists them")
def test_a_worker_stands_beside_the_service_and_ends_when_it_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        wait_until(lambda: bool(served.workers()))
        worker = served.child()
        served.process.kill()
        seconds_until_gone([worker])


def test_a_worker_that_dies_is_started_again_and_ends_with_the_service(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        wait_until(lambda: bool(served.workers()))
        first = served.child()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(served.workers()) == 2)
        assert "started again in 1 s" in served.log.read_text(encoding="utf-8")
        second = served.child()
        served.process.terminate()
        served.process.wait(timeout=20)
        assert not is_alive(second)


def test_the_worker_of_a_locked_service_is_let_in_and_does_jobs(tmp_path: Path) -> None:
    reader = bearer(tmp_path, "read")
    assert reader
    engine = open_engine(f"sqlite:///{tmp_path}/traincost.db")
    payload = {"tasks": [{"probe": "none", "parameters": {}, "timeout_seconds": 30.0, "ranks": 1}]}
    create_jobs(engine, [NewJob(id="lch_a", kind="launch-check", payload=payload, timeout_seconds=60.0)])
    with serving(tmp_path):
        wait_until(lambda: getattr(read_job(engine, "lch_a"), "status", "") in {"succeeded", "failed"})
    job = read_job(engine, "lch_a")
    engine.dispose()
    assert job is not None
    (record,) = job.result["records"]
    assert record["status"] == "skipped", record


def test_where_none_is_wanted_none_is_started(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker") as served:
        assert served.workers() == []
        assert served.children("worker") == []
