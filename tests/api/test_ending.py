"""Requests to a stopping process get an error that says so, in time."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from threading import Event, Thread
from typing import get_args

import pytest
from fastapi import FastAPI

from service.api import server
from service.api.metrics import RefusalKind
from service.api.openapi import EVENTS
from service.api.server import Lifecycle, LimitedProtocol, configured
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.features.plans import routes
from service.openapi.document import problem_example
from service.settings import Settings
from tests.api import computations
from tests.api.asking import QUESTION
from tests.waiting import wait_until

STOP_SECONDS = 1.6


class Ending:
    """A server on a thread that can be told to end."""

    def __init__(self, listener: socket.socket) -> None:
        self.address: tuple[str, int] = listener.getsockname()
        self.app: FastAPI = create_app(Settings(), shipped_catalogue())
        self.started, self.draining = Event(), Event()
        state = self.app.state
        moments = Lifecycle(
            announce=self.started.set,
            drain=self._drain,
            end_beside=lambda: None,
            leave=state.leaving.set,
        )
        self.server = server._Server(configured(self.app, Settings(), state.metrics.refused), moments, 0.0)
        self.thread = Thread(target=self.server.run, kwargs={"sockets": [listener]})

    def _drain(self) -> None:
        self.app.state.draining.set()
        self.draining.set()

    def end(self) -> None:
        self.server.should_exit = True
        assert self.draining.wait(10)

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        connection.connect()
        return connection


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ending]:
    monkeypatch.setattr(server, "STOP_SECONDS", STOP_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Ending(listener)
        made.thread.start()
        assert made.started.wait(10)
        yield made
        made.server.should_exit = True
        made.thread.join(60)
        assert not made.thread.is_alive()


def test_a_search_that_takes_longer_than_the_end_is_answered_that_it_may_be_asked_again(
    ending: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    connection = ending.connect()
    connection.request("POST", "/v1/plans", json.dumps(QUESTION), {"Content-Type": "application/json"})
    wait_until(lambda: "traincost_compute_running 1.0" in ending.app.state.metrics.exposed("", None).decode())
    ending.end()
    answer = connection.getresponse()
    body = json.loads(answer.read())
    assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
    assert body | {"request_id": ""} == problem_example("draining") | {"request_id": ""}
    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("5", "close")
    assert answer.headers["x-request-id"] == body["request_id"]
    exposed = ending.app.state.metrics.exposed("", None).decode()
    assert 'seconds_count{method="POST",route="/v1/plans",status="503"} 1.0' in exposed


def test_a_stream_of_plans_ends_with_an_event_that_says_why(ending: Ending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    connection = ending.connect()
    headers = {"Content-Type": "application/json", "Accept": EVENTS}
    connection.request("POST", "/v1/plans", json.dumps(QUESTION), headers)
    with closing(connection), connection.getresponse() as answer:
        assert answer.readline() == b"event: progress\n"
        ending.end()
        *_, last, after = answer.read().decode().split("\n\n")
    name, data = last.split("\n")
    assert (name, after) == ("event: problem", "")
    assert json.loads(data.removeprefix("data: "))["code"] == "draining"


def test_whoever_was_taken_before_the_end_still_asks(ending: Ending) -> None:
    connections = [ending.connect() for _ in range(5)]
    ending.end()
    time.sleep(server.SETTLE_SECONDS / 4)
    for connection in connections:
        connection.request("GET", "/healthz")
    answers = [connection.getresponse() for connection in connections]
    assert {(answer.status, answer.headers["connection"]) for answer in answers} == {(200, "close")}


def test_whoever_comes_later_is_turned_away(ending: Ending) -> None:
    ending.end()
    time.sleep(server.SETTLE_SECONDS / 2)
    with pytest.raises(ConnectionRefusedError):
        ending.connect()


HEADS: dict[RefusalKind, bytes] = {
    "grammar": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "target": b"GET http://other.example/healthz HTTP/1.1\r\nHost: here\r\n\r\n",
    "framing": b"POST /v1/memory HTTP/1.0\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "head": b"GET / HTTP/1.1\r\nHost: here\r\nX-Long: " + b"x" * (70 << 10) + b"\r\n\r\n",
}


def test_connections_that_bring_no_request_are_counted_by_kind(ending: Ending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitedProtocol, "head_seconds", 0.3)
    for kind, head in HEADS.items():
        assert sent(ending, head).startswith(b"HTTP/1.1 4"), kind
    assert sent(ending, b"GET / HT").startswith(b"HTTP/1.1 408")
    assert sent(ending, b"") == b""
    assert sent(ending, b"GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
    monkeypatch.setattr(ending.server.config, "limit_concurrency", 1)
    held = ending.connect()
    assert sent(ending, b"").startswith(b"HTTP/1.1 503")
    held.close()
    exposed = ending.app.state.metrics.exposed("", None).decode()
    for kind in get_args(RefusalKind):
        assert f'traincost_connection_refusals_total{{kind="{kind}"}} 1.0' in exposed


def sent(ending: Ending, head: bytes) -> bytes:
    """What is answered to some bytes until the connection ends."""
    with socket.create_connection(ending.address, timeout=60) as connection:
        connection.sendall(head)
        answer = b""
        with suppress(ConnectionResetError):
            while received := connection.recv(1 << 16):
                answer += received
    return answer
