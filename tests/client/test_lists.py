"""The client finishes a launch check through broken connections: one creation, each event once, its end."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from service.client import Client, Problem, Retries, Unreachable
from service.client.lists import FRUITLESS

CHECK_ID = f"lch_{'0' * 32}"
CHECK: dict[str, Any] = {
    "id": CHECK_ID, "status": "succeeded", "error": None, "question": {}, "estimate_id": "est_1", "probes": [],
    "time_budget_seconds": 60.0, "on": "any", "comparable": False, "worker": "lab", "environment": None,
    "verdict": "caution", "reasons": [], "estimate": {"before": None, "after": None, "assumptions": []}, "depths": [],
    "assumptions": [], "files": [], "created_at": "", "started_at": None, "finished_at": None,
}  # fmt: skip
INTERVAL = {"low": 1.0, "value": 2.0, "high": 3.0, "basis": "analytic"}
CHECK["estimate"]["before"] = {
    "verdict": "fits", "oom_probability_fraction": 0.0, "device_peak_bytes": INTERVAL, "usable_bytes": 4.0,
    "step_seconds": INTERVAL, "mfu_fraction": INTERVAL, "gpu_hours": None, "cost_usd": None,
}  # fmt: skip


class Broken(httpx.SyncByteStream):
    """A body that breaks off."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self.content
        raise httpx.ReadError("cut")


def event(number: int, name: str, data: Any = None) -> bytes:
    return f"id: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()


def client(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    retries = Retries(sleep=lambda _: None, draw=lambda: 0.0)
    return Client("http://t", transport=httpx.MockTransport(answer), retries=retries)


def test_a_check_is_made_under_one_key_however_often_it_is_sent() -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["idempotency-key"])
        if len(sent) == 1:
            raise httpx.ReadError("cut")
        return httpx.Response(202, json=CHECK)

    with client(answer) as asking:
        assert asking.launch_checks.create({}).id == CHECK_ID
        asking.launch_checks.create({})
        asking.launch_checks.create({}, key="mine")
    assert sent[0] == sent[1]
    assert (len(set(sent)), sent[-1]) == (3, "mine")


def test_a_stream_that_breaks_is_taken_up_where_it_was() -> None:
    known: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(202, json=CHECK)
        known.append(request.headers.get("last-event-id"))
        told = {
            None: Broken(event(1, "queued") + event(2, "running") + b"id: 3\nevent: pro"),
            "2": Broken(event(3, "progress", {"probes": []})),
            "3": httpx.ByteStream(event(4, "succeeded") + event(4, "launch_check", CHECK)),
        }
        return httpx.Response(200, stream=told[known[-1]])

    heard: list[str] = []
    with client(answer) as asking:
        found = asking.launch_check({}, lambda one: heard.append(one.name))
    assert (found.verdict, found.estimate.before.verdict) == ("caution", "fits")
    assert heard == ["queued", "running", "progress", "succeeded"]
    assert known == [None, "2", "3"]


def test_a_stream_that_asks_to_come_again_is_taken_up_however_often() -> None:
    known: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        known.append(request.headers.get("last-event-id"))
        if len(known) <= 2 * FRUITLESS:
            told = b"" if known[-1] else event(1, "queued")
            return httpx.Response(200, content=told + b"event: again\ndata: {}\n\n")
        return httpx.Response(200, content=event(2, "launch_check", CHECK))

    heard: list[str] = []
    with client(answer) as asking:
        asking.launch_checks.wait(CHECK_ID, lambda one: heard.append(one.name))
    assert heard == ["queued"]
    assert known == [None, *["1"] * (2 * FRUITLESS)]


def test_a_stream_that_never_says_more_is_given_up() -> None:
    streams: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        streams.append(request)
        return httpx.Response(200, stream=Broken(b": still here\n\n"))

    with client(answer) as asking, pytest.raises(Unreachable):
        asking.launch_checks.wait(CHECK_ID)
    assert len(streams) == FRUITLESS


def test_a_problem_on_the_way_is_raised() -> None:
    problem = {"status": 503, "code": "not_ready", "detail": "the database does not answer", "errors": []}
    body = event(0, "problem", problem)
    with client(lambda _: httpx.Response(200, content=body)) as asking, pytest.raises(Problem, match="does not answer"):
        asking.launch_checks.wait(CHECK_ID)
