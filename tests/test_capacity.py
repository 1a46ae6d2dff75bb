"""The measurements of the capacity guide run, queues agree with theory, and the guide shows that run."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import exp, factorial

import pytest

from service.catalogue import shipped_catalogue
from tests.amounts import WHOLE
from tests.capacity import measured
from tests.capacity.figures import FIGURE, PAGE, figures, filled
from tests.capacity.queueing import Service, service_of, simulated
from tests.databases import new_database, prepared
from tests.house.source import ROOT

SMALL = measured.Size(
    seconds=0.1, workers=12, spell_seconds=1.2, lease_seconds=2.0, rows=300, shares=(0.2,), fewest=20, simulated=2_000
)


whole = pytest.mark.skipif(not WHOLE, reason="measured by `.ci/proof capacity`, tried by `.ci/proof sweeps`")


@pytest.fixture(scope="module")
def kept() -> dict[str, object]:
    """The run that was kept."""
    return dict(measured.read())


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind a few requests, and short batches."""
    monkeypatch.setattr("tests.capacity.costs.FEWEST", 2)
    monkeypatch.setattr("tests.capacity.costs.TOGETHER", 3)
    monkeypatch.setattr("tests.capacity.costs.CLIENTS", 2)


@pytest.fixture
def server(postgresql_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure on the server that is there, on databases that are copied from a prepared one."""

    @contextmanager
    def ready(_: str) -> Iterator[str]:
        with new_database(postgresql_server) as url:
            prepared(url, shipped_catalogue()).dispose()
            yield url

    monkeypatch.setattr("tests.capacity.measured.database", ready)


@pytest.mark.usefixtures("server")
def test_every_kind_of_request_is_answered_and_costs_something() -> None:
    found = measured.measured_costs("postgresql", SMALL)
    assert found["costs"].keys() == measured.read()["costs"]["postgresql"]["costs"].keys()
    for cost in found["costs"].values():
        assert cost["requests"] >= 4
        assert 0 < cost["p50_ms"] <= cost["p99_ms"]
    assert sum(cost["processor_ms"] for cost in found["costs"].values()) > 0
    assert found["footprint"]["memory_mb"] > 50
    assert found["footprint"]["connections"] > 0
    assert found["question_bytes"] > 100


@whole
def test_workers_get_every_job_and_hand_it_in() -> None:
    found = measured.measured_crowd("sqlite", SMALL)
    assert found["faults"] == {}
    assert found["waiting"]["requests"] < found["busy"]["requests"]
    assert found["single"]["p50_ms"] < 5_000
    assert found["heartbeat"]["p50_ms"] > 0


@whole
def test_own_rows_are_written_served_and_followed() -> None:
    found = measured.measured_rows("sqlite", SMALL.rows)
    assert found["rows"] == SMALL.rows
    assert found["followed_seconds"] < 60
    assert min(found[name] for name in ("page_ms", "deep_page_ms", "sorted_page_ms", "row_ms", "priced_ms")) > 0


@whole
def test_a_rate_is_foretold_measured_and_planned_for(postgresql_server: str) -> None:
    assert postgresql_server
    one, two = measured.measured_queues(SMALL)
    assert (one["replicas"], two["replicas"]) == (1, 2)
    for found in (one, two):
        assert found["requests"] > 1
        assert 0 < found["predicted"]["p50_ms"] <= found["predicted"]["p99_ms"]
    for kind, found in measured.planned(SMALL)["kinds"].items():
        assert found["replicas"] * found["per_replica"] * measured.BUSY >= measured.RATE, kind
        assert 0 < found["p50_ms"] <= found["p99_ms"]


@pytest.mark.parametrize("share", [0.6, 0.8])
def test_a_queue_waits_as_theory_says(share: float) -> None:
    """Waits are those of a queue with one server and service times of one length, M/D/1.

    Source: A. K. Erlang, The Theory of Probabilities and Telephone Conversations, 1909.
    """
    service = Service(busy_seconds=(1.0,), aside_seconds=0.5)
    found = simulated(service, share, 1, 200_000)
    assert _waits_less(found.p50_ms / 1e3 - 1.5, share) == pytest.approx(0.5, abs=0.03)
    assert _waits_less(found.p99_ms / 1e3 - 1.5, share) == pytest.approx(0.99, abs=0.004)


def _waits_less(services: float, share: float) -> float:
    """Probability that a request waits less than so many service times."""
    terms = (
        (-share * (services - k)) ** k / factorial(k) * exp(share * (services - k)) for k in range(int(services) + 1)
    )
    return (1 - share) * sum(terms)


def test_service_times_are_as_different_as_measured_and_replicas_share_what_comes() -> None:
    service = service_of([0.001, 0.002, 0.003], busy_seconds=0.001)
    assert service.per_second == pytest.approx(1_000)
    assert service.busy_seconds == pytest.approx((0.0005, 0.001, 0.0015))
    assert service.aside_seconds == pytest.approx(0.001)
    fewer, more = (simulated(service, 10_000, count, 20_000) for count in (11, 20))
    assert fewer.p99_ms > 1.2 * more.p99_ms > 1.2 * 2.0


def test_the_autoscaler_aims_for_what_is_planned() -> None:
    scaling = (PAGE.parent / "kubernetes" / "scaling.yaml").read_text(encoding="utf-8")
    assert f"averageUtilization: {100 * measured.BUSY:.0f}" in scaling


def test_the_page_tells_the_run_that_was_kept(kept: dict[str, object]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, kept) == page
    told = {found["name"] for found in FIGURE.finditer(page)}
    assert {"date", "processor", "python", "least_load", "most_load"} <= told
    assert len(told) > 60
    kinds = ("costs", "crowd", "rows", "queues", "plan")
    assert {name.partition(".")[0] for name in told} >= set(kinds)


def test_a_run_that_differs_fills_another_page(kept: dict[str, object]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    other = json.loads(json.dumps(kept))
    other["costs"]["postgresql"]["costs"]["check"]["processor_ms"] *= 2
    assert filled(page, other) != page
    assert figures(other)["check.cores"] != figures(kept)["check.cores"]


def test_no_figure_of_a_table_is_typed_by_hand() -> None:
    text = FIGURE.sub("", PAGE.read_text(encoding="utf-8"))
    assert text.count("<td>") > 100
    assert re.findall(r"<td>[^a-z<]*[0-9][^a-z<]*</td>", text) == []


def test_the_page_is_found() -> None:
    assert "http://localhost:8000/guide/capacity" in (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("index", "operating", "kubernetes"):
        assert 'href="/guide/capacity"' in (PAGE.parent / f"{name}.html").read_text(encoding="utf-8")
