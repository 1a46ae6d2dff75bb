"""`traincost launch-check` asks a running service, tells how far it is, and shows what was found."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.api.fake_worker import FakeWorker
from tests.commands import Command, Commands
from tests.live import serving

QUESTION = {
    "model": "smollm2-135m",
    "recipe": {"sequence_length": 2048},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("checked")) as address:
        yield f"http://{address}"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, url: str, commands: Commands) -> Command:
    monkeypatch.setenv("TRAINCOST_URL", url)
    return commands("launch-check")


@pytest.fixture
def body(tmp_path: Path) -> str:
    file = tmp_path / "check.json"
    file.write_text(json.dumps({"question": QUESTION, "probes": ["gemm", "bandwidth"]}), encoding="utf-8")
    return str(file)


def at_work(url: str, *, gpu: bool = False, scale: float = 1.0) -> Thread:
    """A worker that does one job."""

    def ask(method: str, path: str, **request: Any) -> httpx.Response:
        return httpx.request(method, f"{url}{path}", timeout=30, **request)

    worker = FakeWorker(ask, "w-gpu" if gpu else "w", gpu=gpu)
    assert worker.claim() is None  # it is seen before anybody asks

    def work() -> None:
        job = next(found for found in iter(worker.claim, 0) if found is not None)
        told = {"probes": [{"probe": "gemm", "status": "running", "done_fraction": 0.5}]}
        worker.tell(job, told)
        records = [worker.record(task, scale) for task in job["payload"]["tasks"]]
        worker.finish(job, result={"records": records})

    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_it_waits_and_shows_what_was_found(run: Command, body: str, url: str) -> None:
    worker = at_work(url)
    code, out, err = run(body)
    worker.join(20)
    assert (code, out.partition("\n")[0]) == (0, "caution: succeeded on AMD EPYC 9454")
    assert "queued\nrunning\n" in err
    assert "gemm 50%" in err
    assert "caution: it ran on AMD EPYC 9454, and the cluster has h100-sxm5-80gb" in out
    assert "mlp.up" in out
    assert "before: fits" in out


def test_tables_hold_every_measurement(run: Command, body: str, url: str) -> None:
    worker = at_work(url)
    found = json.loads(run(body, "--json").out)
    worker.join(20)
    worker = at_work(url)
    rows = list(csv.DictReader(io.StringIO(run(body, "--csv").out)))
    worker.join(20)
    measured = [one for probe in found["probes"] for one in probe["measurements"]]
    assert [float(row["measured"]) for row in rows] == [one["measured"]["value"] for one in measured]


def test_no_go_stops_a_script(run: Command, body: str, url: str) -> None:
    worker = at_work(url, gpu=True)
    code, out, _ = run(body)
    worker.join(20)
    assert (code, out.partition(":")[0]) == (1, "no-go")
    assert "after:  fits" in out


def test_who_does_not_wait_gets_the_queued_check(run: Command, body: str) -> None:
    code, out, err = run(body, "--no-wait", "--json")
    assert (code, json.loads(out)["status"], err) == (0, "queued", "")


def test_refusals_are_one_line(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps({"model": "smollm2-135m", "time_budget_seconds": 1}), encoding="utf-8")
    code, out, err = run(str(file))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "/time_budget_seconds: time_budget_seconds (" in err
    assert "give either question or estimate_id" in err
