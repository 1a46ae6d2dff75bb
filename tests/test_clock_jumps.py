"""Jumps of the database's clock under a running service: workers keep their jobs, none waits for a false moment."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from service.catalogue import shipped_catalogue
from tests.api.fake_worker import FakeWorker
from tests.databases import prepared
from tests.house.source import ROOT
from tests.prestarted import Started

LEASE_SECONDS = 4
HOURS = 5
QUESTION: dict[str, Any] = {
    "model": "smollm2-135m",
    "recipe": {"sequence_length": 2048},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
}


@contextmanager
def jumping(folder: Path) -> Iterator[tuple[httpx.Client, Path]]:
    """A service whose database's clock runs ahead by the seconds in a file."""
    url, clock = f"sqlite:///{folder / 'traincost.db'}", folder / "clock"
    set_ahead(clock, 0)
    prepared(url, shipped_catalogue()).dispose()
    own = {"TRAINCOST_DATABASE_URL": url, "TRAINCOST_LEASE_SECONDS": str(LEASE_SECONDS), "PYTHONPATH": str(ROOT)}
    server = Started(
        ["tests.jumping_clock", str(clock), "serve", "--port", "0", "--no-worker"], folder, os.environ | own
    )
    try:
        address = next(match[1] for line in server.stdout if (match := re.search(r"http://([\d.]+:\d+)", line)))
        with httpx.Client(base_url=f"http://{address}", timeout=60) as http:
            yield http, clock
    finally:
        server.terminate()
        server.communicate(timeout=30)


def set_ahead(clock: Path, seconds: int) -> None:
    """Set the clock; whoever reads the file meanwhile reads either."""
    part = clock.with_suffix(".part")
    part.write_text(str(seconds), encoding="utf-8")
    part.rename(clock)


def ask_for(http: httpx.Client) -> str:
    body = {"question": QUESTION, "on": "any", "probes": ["bandwidth"], "time_budget_seconds": 60}
    answer = http.post("/v1/launch-checks", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def finish(worker: FakeWorker, job: dict[str, Any]) -> None:
    records = [worker.record(task) for task in job["payload"]["tasks"]]
    assert worker.finish(job, result={"records": records}) == 204


def status_of(http: httpx.Client, check_id: str) -> str:
    return str(http.get(f"/v1/launch-checks/{check_id}").json()["status"])


def test_a_worker_keeps_its_job_and_a_lost_one_loses_it(tmp_path: Path) -> None:
    with jumping(tmp_path) as (http, clock):
        for ahead in (HOURS * 3600, 0):  # forward, then back
            checks = {ask_for(http), ask_for(http)}
            alive, lost = FakeWorker(http.request, "alive"), FakeWorker(http.request, "lost")
            job, left = alive.claimed(), lost.claimed()
            assert {job["id"], left["id"]} == checks
            set_ahead(clock, ahead)
            ends = time.monotonic() + 60  # a lease that the jump has lengthened would end hours later
            while status_of(http, left["id"]) != "queued":
                assert alive.tell(job, {"at": time.monotonic()}) == "run"
                assert time.monotonic() < ends, "the job of a worker that is lost stays with it"
                time.sleep(LEASE_SECONDS / 20)
            assert alive.tell(job, {}) == "run"
            finish(alive, job)
            again = alive.claimed()
            assert again["id"] == left["id"]
            finish(alive, again)
            assert [status_of(http, check) for check in checks] == ["succeeded"] * 2


def test_a_job_made_while_the_clock_was_ahead_does_not_wait_until_then(tmp_path: Path) -> None:
    with jumping(tmp_path) as (http, clock):
        worker = FakeWorker(http.request, "lab")
        set_ahead(clock, HOURS * 3600)
        check = ask_for(http)
        answer = http.get("/v1/gpus?limit=1")
        set_ahead(clock, 0)
        ends = time.monotonic() + 60
        while (job := worker.claim()) is None:
            assert time.monotonic() < ends, "the job waits for a moment that the clock named by mistake"
            time.sleep(0.05)
        assert job["id"] == check
        reset = re.search(r"t=(-?\d+)", answer.headers.get("ratelimit", "t=0"))
        assert reset is not None
        assert int(reset[1]) >= 0
