"""One span for each request, in the caller's trace; nothing is loaded or sent without a setting."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from service.api.metrics import tracing_of
from service.api.tracing import Tracing
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.errors import StartupError
from service.settings import Settings
from tests.api.asking import QUESTION, Ask
from tests.collector import Collector, collecting
from tests.fixtures import asking, one_by_one
from tests.house.source import ROOT

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SERVER, ERROR = 2, 2
"""Numbers of the protocol: a span of a server, a status that is an error."""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def traced_app(collector: Collector) -> Iterator[FastAPI]:
    settings = Settings(database_url="sqlite:////no/where.db", otlp_endpoint=collector.address)
    app = create_app(settings, shipped_catalogue())
    yield app
    asyncio.run(app.state.tracing.close())


@pytest.fixture(scope="module")
def traced(traced_app: FastAPI) -> Iterator[Ask]:
    with asking(traced_app) as together:
        yield one_by_one(together)


def spans_of(app: FastAPI, collector: Collector, request_id: str) -> list[dict[str, Any]]:
    app.state.tracing.flush()
    return [span for span in collector.spans if span["traincost.request_id"] == request_id]


def test_a_request_is_one_span_of_its_callers_trace(traced: Ask, traced_app: FastAPI, collector: Collector) -> None:
    sent = {"X-Request-Id": "traced-1", "traceparent": f"00-{TRACE}-{PARENT}-01"}
    assert traced("POST", "/v1/memory?explain=true", json=QUESTION, headers=sent).status_code == 200
    (span,) = spans_of(traced_app, collector, "traced-1")
    assert span == {
        "name": "POST /v1/memory",
        "status": 0,
        "kind": SERVER,
        "trace": TRACE,
        "parent": PARENT,
        "http.request.method": "POST",
        "http.route": "/v1/memory",
        "http.response.status_code": 200,
        "traincost.request_id": "traced-1",
    }
    assert collector.services == {"traincost"}


def test_a_span_names_templates_and_failures(traced: Ask, traced_app: FastAPI, collector: Collector) -> None:
    traced("GET", "/v1/gpus/none-of-these?key=secret", headers={"X-Request-Id": "traced-2"})
    traced("GET", "/no/such/path", headers={"X-Request-Id": "traced-3", "traceparent": "00-broken"})
    traced("GET", "/readyz", headers={"X-Request-Id": "traced-4"})
    (unknown,), (nowhere,), (failed,) = (spans_of(traced_app, collector, f"traced-{n}") for n in (2, 3, 4))
    assert (unknown["name"], unknown["status"]) == ("GET /v1/gpus/{name}", 0)
    assert (nowhere["name"], nowhere["parent"]) == ("GET", "")
    assert "http.route" not in nowhere
    assert (failed["http.response.status_code"], failed["status"]) == (503, ERROR)
    assert not any(word in str(collector.spans) for word in ("none-of-these", "secret", "no/such"))


def test_a_collector_that_is_away_keeps_nobody_waiting() -> None:
    tracing = Tracing("http://127.0.0.1:9")
    tracing.tracer.start_span("lost").end()
    began = time.monotonic()
    asyncio.run(tracing.close())
    assert time.monotonic() - began < 60


def test_nothing_is_loaded_where_no_setting_asks_for_it() -> None:
    program = (
        "import sys; from service.app import create_app; from service.catalogue import shipped_catalogue; "
        "from service.settings import Settings; "
        "create_app(Settings(database_url='sqlite:////x.db'), shipped_catalogue()); "
        "asked_for = ('opentelemetry.sdk', 'opentelemetry.exporter', 'redis'); "
        "print([name for name in sys.modules if name.startswith(asked_for)])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_is_missing_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.metrics.EXPORTER", "no-such-distribution-of-anybody")
    with pytest.raises(StartupError, match="telemetry"):
        tracing_of(Settings(database_url="sqlite:////x.db", otlp_endpoint="http://127.0.0.1:4318"))
    assert tracing_of(Settings(database_url="sqlite:////x.db")) is None
