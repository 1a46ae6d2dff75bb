"""Replicas replaced one after another under traffic, and the requests that are lost."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any

from tests.api.asking import QUESTION
from tests.replicas import READY_SECONDS, Replica, is_ready

SETTINGS = {"TRAINCOST_DRAIN_SECONDS": "3", "TRAINCOST_REQUESTS_PER_MINUTE": "0", "TRAINCOST_LOG_LEVEL": "error"}
"""How replicas are set up: as docker-compose.yml does, and no client is told to slow down."""


PAUSE_SECONDS = 0.02
"""Between two questions of a client, so that replicas have processors to start on."""


class Load:
    """Clients that ask one question after the other, each over a connection that it keeps."""

    def __init__(self, address: str, clients: int) -> None:
        self.answered = 0
        self.lost: list[str] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(address, one)) for one in range(clients)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let every client finish its last question."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, address: str, client: int) -> None:
        connection, number = HTTPConnection(address, timeout=60), 0
        while not self._ended.wait(PAUSE_SECONDS):
            number += 1
            try:
                fault = _answer(connection, number, client)
            except (HTTPException, OSError) as error:
                fault = repr(error)
                connection.close()
            with self._lock:
                self.answered += not fault
                self.lost += [fault] if fault else []
        connection.close()


def _answer(connection: HTTPConnection, number: int, client: int) -> str:
    """What is wrong with the answer to one request: reading, asking or writing, in turn."""
    name = f"client {client}, number {number}"
    recipe = {**QUESTION["recipe"], "training_tokens": 1e9 + 1e6 * client + number}
    requests: list[tuple[str, str, Any, int]] = [
        ("GET", "/v1/gpus?limit=5", None, 200),
        ("POST", "/v1/estimates", {**QUESTION, "recipe": recipe}, 200),
        ("POST", "/v1/check", {**QUESTION, "recipe": recipe}, 200),
        ("POST", "/v1/scenarios", {"name": name, "question": QUESTION}, 201),
    ]
    method, path, body, wanted = requests[number % len(requests)]
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    return "" if answer.status == wanted else f"{method} {path}: {answer.status} {content[:200]!r}"


@contextmanager
def loaded(address: str, clients: int) -> Iterator[Load]:
    """Clients that ask meanwhile."""
    load = Load(address, clients)
    try:
        yield load
    finally:
        load.end()


def replace(url: str, running: list[Replica], count: int) -> list[float]:
    """Tell a replica to end, and the next one when its successor takes requests; seconds that each took."""
    took = []
    for place, old in enumerate(running[:count]):
        started = time.monotonic()
        old.stop()
        running[place] = Replica(url, SETTINGS, old.port)
        while not is_ready(running[place].address):
            assert time.monotonic() - started < READY_SECONDS
            time.sleep(0.05)
        time.sleep(1.5)  # until the proxy has seen it
        took.append(time.monotonic() - started)
    return took
