"""Metric names that dashboards use, a bounded number of series, and metrics without a database."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event, update

from service.api.metrics import METHODS, DatabaseFigures, Metrics
from service.api.request_context import RequestContext
from service.catalogue import shipped_catalogue
from service.errors import Unreachable
from service.estimator import FORMULAS_VERSION
from service.jobs.jobs import NewJob, create_jobs
from service.jobs.leases import claim_job
from service.store.database import Figures, read_figures
from service.store.engine import later, writing
from service.store.measurements import Calibration, create_calibration
from service.store.tables import CALIBRATIONS, JOBS
from tests.api.asking import QUESTION, Ask
from tests.databases import prepared
from tests.fixtures import NewUrl, asking, one_by_one, running
from tests.jobs.small import seeker

NAMES = {
    "traincost_build_info": ("gauge", {"formulas", "version"}),
    "traincost_calibration_age_seconds": ("gauge", {"gpu"}),
    "traincost_catalogue_info": ("gauge", {"revision"}),
    "traincost_check_verdicts": ("counter", {"verdict"}),
    "traincost_checks_unjudged": ("counter", {"reason"}),
    "traincost_computations": ("counter", {"outcome"}),
    "traincost_computations_shared": ("counter", set()),
    "traincost_compute_refusals": ("counter", {"reason"}),
    "traincost_compute_restarts": ("counter", {"reason"}),
    "traincost_compute_running": ("gauge", set()),
    "traincost_compute_seconds": ("histogram", set()),
    "traincost_compute_wait_seconds": ("histogram", set()),
    "traincost_compute_waiting": ("gauge", set()),
    "traincost_connection_refusals": ("counter", {"kind"}),
    "traincost_database_errors": ("counter", {"kind"}),
    "traincost_database_up": ("gauge", set()),
    "traincost_http_request_seconds": ("histogram", {"method", "route", "status"}),
    "traincost_http_requests_in_flight": ("gauge", set()),
    "traincost_job_oldest_lease_age_seconds": ("gauge", set()),
    "traincost_jobs": ("gauge", {"kind", "status"}),
    "traincost_rate_limit_fallbacks": ("counter", set()),
    "traincost_rate_limit_refusals": ("counter", {"policy"}),
}
"""Every figure: its kind and its labels. Dashboards and alerts rest on them, so none is taken away or renamed."""


def families(exposed: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(exposed)}


def values(exposed: str, name: str, **labels: str) -> list[float]:
    """Values of a figure's samples that have these labels."""
    samples = [sample for family in families(exposed).values() for sample in family.samples if sample.name == name]
    return [sample.value for sample in samples if labels.items() <= sample.labels.items()]


@pytest.fixture(scope="module")
def counted_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    with running(f"sqlite:///{tmp_path_factory.mktemp('metrics') / 'traincost.db'}") as app:
        yield app


@pytest.fixture(scope="module")
def counted(counted_app: FastAPI) -> Iterator[Ask]:
    with asking(counted_app) as together:
        yield one_by_one(together)


def test_names_and_labels_are_those_that_were_promised(counted: Ask) -> None:
    counted("GET", "/healthz")
    answer = counted("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = families(answer.text)
    own = {name: family for name, family in found.items() if name.startswith("traincost_")}
    assert {name: family.type for name, family in own.items()} == {name: kind for name, (kind, _) in NAMES.items()}
    for name, family in own.items():
        assert family.documentation.endswith("."), name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == NAMES[name][1], sample
    assert {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"} <= found.keys()
    assert values(answer.text, "traincost_build_info", formulas=FORMULAS_VERSION) == [1.0]
    assert values(answer.text, "traincost_catalogue_info", revision=shipped_catalogue().revision) == [1.0]


def test_requests_are_counted_by_template_whatever_they_name(counted: Ask) -> None:
    for number in range(20):
        assert counted("GET", f"/v1/gpus/none-{number}").status_code == 404
        assert counted("GET", f"/no/such/path/{number}").status_code == 404
        assert counted(f"ODD{number}", "/v1/gpus").status_code == 405
    exposed = counted("GET", "/metrics").text
    count = "traincost_http_request_seconds_count"
    assert values(exposed, count, route="/v1/gpus/{name}", status="404", method="GET") == [20.0]
    assert values(exposed, count, route="none", status="404") == [20.0]
    assert values(exposed, count, route="none", status="405", method="other") == [20.0]
    assert "none-1" not in exposed
    assert "ODD" not in exposed


def test_a_request_whose_caller_went_away_is_counted_and_no_longer_in_flight() -> None:
    metrics = Metrics()
    metrics.begin()
    assert values(metrics.exposed("", None).decode(), "traincost_http_requests_in_flight") == [1.0]
    metrics.end("GET", RequestContext("id"), 0.1)
    exposed = metrics.exposed("", None).decode()
    assert values(exposed, "traincost_http_requests_in_flight") == [0.0]
    assert values(exposed, "traincost_http_request_seconds_count", status="none", route="none") == [1.0]
    assert "GET" in METHODS


def test_verdicts_are_counted_however_a_check_is_asked_for(counted: Ask) -> None:
    denied = {**QUESTION, "model": "llama-3.1-405b", "layout": {"tensor": 8}}
    counted("POST", "/v1/check", json=QUESTION)
    checks = [{"kind": "check", "body": denied}, {"kind": "memory", "body": QUESTION}, {"kind": "check", "body": {}}]
    counted("POST", "/v1/batch", json={"questions": checks})
    counted("POST", "/v1/adapters/slurm/check", json={"script": "hostname", "nodes": 1})
    exposed = counted("GET", "/metrics").text
    found = {v: values(exposed, "traincost_check_verdicts_total", verdict=v) for v in ("ok", "warn", "deny", "unknown")}
    assert found["deny"] == found["unknown"] == [1.0]
    assert found["ok"][0] + found["warn"][0] == 1.0


CALIBRATION = Calibration(
    id="cal_1",
    status="promoted",
    gpu="h100-sxm5-80gb",
    device="NVIDIA H100 80GB HBM3",
    note="",
    held_out_fraction=None,
    before_fraction=None,
    in_sample_fraction=None,
    parts=(),
    constants={},
    fitted_on=(),
    formulas="1",
    replaces=None,
    created_at="2026-11-21T16:30:00Z",
    promoted_at="2026-11-21T16:30:00Z",
    retired_at=None,
    owner="team",
)


def test_the_database_tells_jobs_leases_and_calibrations(new_url: NewUrl) -> None:
    engine = prepared(new_url(), shipped_catalogue())
    create_jobs(engine, [NewJob(id=f"j{n}", kind="sweep-shard", payload={}, timeout_seconds=60) for n in range(3)])
    create_jobs(engine, [NewJob(id="l", kind="launch-check", payload={}, timeout_seconds=60)])
    assert read_figures(engine, 60.0).oldest_lease_age_seconds is None
    claim_job(engine, seeker(kinds=("sweep-shard",)), 60.0)
    create_calibration(engine, CALIBRATION)
    with writing(engine) as connection:
        connection.execute(update(JOBS).where(JOBS.c.status == "running").values(lease_until=later(-5.0)))
        connection.execute(update(CALIBRATIONS).values(created_at=datetime.now(UTC) - timedelta(hours=1)))
    found = read_figures(engine, 60.0)
    engine.dispose()
    assert found.jobs == {("sweep-shard", "queued"): 2, ("sweep-shard", "running"): 1, ("launch-check", "queued"): 1}
    assert found.oldest_lease_age_seconds == pytest.approx(65.0, abs=5.0)
    assert found.calibration_age_seconds == {"h100-sxm5-80gb": pytest.approx(3600.0, abs=30.0)}
    exposed = Metrics().exposed("0123456789ab", found).decode()
    assert values(exposed, "traincost_jobs", kind="sweep-shard", status="queued") == [2.0]
    assert values(exposed, "traincost_job_oldest_lease_age_seconds") == [found.oldest_lease_age_seconds]
    (age,) = values(exposed, "traincost_calibration_age_seconds", gpu="h100-sxm5-80gb")
    assert age == pytest.approx(3600.0, abs=30.0)


FIGURES = Figures(jobs={}, oldest_lease_age_seconds=None, calibration_age_seconds={})


def test_a_scrape_waits_for_no_database_and_keeps_one_thread_at_most() -> None:
    answers, looks = threading.Event(), []

    def look() -> Figures:
        looks.append(1)
        answers.wait(10)
        return FIGURES

    async def scraped() -> list[Figures | None]:
        figures = DatabaseFigures(look, patience_seconds=0.05)
        found = [await figures.now() for _ in range(3)]
        answers.set()
        return [*found, await figures.now(), await figures.now()]

    assert asyncio.run(scraped()) == [None, None, None, FIGURES, FIGURES]
    assert len(looks) == 1


def test_figures_of_a_moment_ago_are_told_again_and_errors_are_none() -> None:
    looks = []

    def look() -> Figures:
        looks.append(1)
        if len(looks) == 2:
            raise Unreachable("away")
        return FIGURES

    async def scraped(fresh_seconds: float) -> list[Figures | None]:
        figures = DatabaseFigures(look, fresh_seconds=fresh_seconds)
        return [await figures.now() for _ in range(3)]

    assert asyncio.run(scraped(0.0)) == [FIGURES, None, FIGURES]
    assert asyncio.run(scraped(60.0)) == [FIGURES] * 3
    assert len(looks) == 4


def test_a_scrape_answers_while_the_database_is_away_and_its_errors_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "traincost.db"
    with running(f"sqlite:///{file}") as app, asking(app) as together:
        ask = one_by_one(together)
        app.state.engine.dispose()
        file.rename(tmp_path / "away.db")
        file.mkdir()
        answer = ask("GET", "/metrics")
        assert values(answer.text, "traincost_database_up") == [0.0]
        assert "traincost_jobs" not in answer.text
        assert ask("GET", "/readyz").status_code == 503
        assert values(ask("GET", "/metrics").text, "traincost_database_errors_total", kind="unreachable")[0] >= 2
        file.rmdir()
        (tmp_path / "away.db").rename(file)
        assert values(ask("GET", "/metrics").text, "traincost_database_up") == [1.0]


def test_what_estimates_asks_the_database_nothing(counted: Ask, counted_app: FastAPI) -> None:
    statements: list[str] = []
    listen = (counted_app.state.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    event.listen(*listen)
    for path in ("/v1/estimates", "/v1/memory", "/v1/gpu-hours", "/v1/batch"):
        body = {"questions": [{"kind": "memory", "body": QUESTION}]} if path == "/v1/batch" else QUESTION
        assert counted("POST", path, json=body).status_code == 200
    event.remove(*listen)
    assert statements == []
