"""Listeners get the events of a launch check as they happen, and each once after a broken connection."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.api.streams import AGAIN
from service.client.sending import Event, events_of
from service.features.launch_checks import routes
from service.jobs.jobs import read_later_events
from service.store import Engine
from tests.api.asking import Ask
from tests.api.fake_worker import FakeWorker
from tests.api.replicated import client_of
from tests.features.launch_checks.test_routes import PATH, create


def told(answer: httpx.Response) -> list[Event]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    return list(events_of([answer.content]))


def done(ask: Ask) -> str:
    worker = FakeWorker(ask)
    check_id: str = create(ask, probes=["gemm"]).json()["id"]
    job = worker.claimed()
    for fraction in (0.25, 0.5):
        worker.tell(job, {"probes": [{"probe": "gemm", "status": "running", "done_fraction": fraction}]})
    worker.finish(job, result={"records": [worker.record(task) for task in job["payload"]["tasks"]]})
    return check_id


def test_a_late_listener_is_told_everything_and_then_the_answer(ask: Ask) -> None:
    check_id = done(ask)
    events = told(ask("GET", f"{PATH}/{check_id}/events"))
    names = ["queued", "running", "progress", "progress", "succeeded", "launch_check"]
    assert [event.name for event in events] == names
    assert [event.id for event in events] == ["1", "2", "3", "4", "5", "5"]
    assert json.loads(events[2].data)["data"]["probes"][0]["done_fraction"] == 0.25
    assert json.loads(events[-1].data) == ask("GET", f"{PATH}/{check_id}").json()


def test_who_was_cut_off_is_told_what_came_after(ask: Ask) -> None:
    check_id = done(ask)
    for last in range(6):
        events = told(ask("GET", f"{PATH}/{check_id}/events", headers={"Last-Event-ID": str(last)}))
        assert [event.id for event in events] == [*map(str, range(last + 1, 6)), str(max(last, 5))]
        assert events[-1].name == "launch_check"


def test_the_largest_id_that_is_taken_is_one_that_the_database_knows(ask: Ask) -> None:
    check_id = done(ask)
    (event,) = told(ask("GET", f"{PATH}/{check_id}/events", headers={"Last-Event-ID": "9" * 9}))
    assert event.name == "launch_check"


@pytest.mark.parametrize("last", ["-1", "1.5", "one", "9" * 10, str(1 << 31), "9" * 18])
def test_an_id_that_no_event_has_is_refused(ask: Ask, last: str) -> None:
    check_id = create(ask).json()["id"]
    answer = ask("GET", f"{PATH}/{check_id}/events", headers={"Last-Event-ID": last})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "not_an_event")


def test_head_tells_of_a_stream_without_waiting_for_its_end(fresh_app: FastAPI, ask: Ask) -> None:
    check_id = create(ask).json()["id"]

    async def head() -> httpx.Response:
        async with client_of(fresh_app) as client, asyncio.timeout(20):
            return await client.head(f"{PATH}/{check_id}/events")

    answer = asyncio.run(head())
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_a_listener_hears_while_it_runs_and_leaves_with_the_server(fresh_app: FastAPI, ask: Ask) -> None:
    """Over the application itself: httpx's own transport would wait for the end of the stream."""
    worker = FakeWorker(ask)
    check_id = create(ask, probes=["gemm"]).json()["id"]
    heard: list[bytes] = []
    words = asyncio.Queue[bytes]()

    async def hear(name: bytes) -> None:
        while name not in b"".join(heard):
            heard.append(await words.get())

    async def listen() -> None:
        scope = {
            "type": "http", "method": "GET", "path": f"{PATH}/{check_id}/events", "raw_path": b"", "query_string": b"",
            "headers": [(b"host", b"localhost")], "http_version": "1.1", "scheme": "http", "server": ("t", 80),
            "client": ("c", 1), "root_path": "", "asgi": {"version": "3.0"},
        }  # fmt: skip
        asked = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            return asked.pop() if asked else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            words.put_nowait(message.get("body", b""))

        await fresh_app(scope, receive, send)

    async def whole() -> None:
        listening = asyncio.create_task(listen())
        async with asyncio.timeout(20):
            await hear(b"event: queued")
            await asyncio.to_thread(worker.claimed)
            await hear(b"event: running")
            assert not listening.done()
            fresh_app.state.leaving.set()
            await listening

    try:
        asyncio.run(whole())
    finally:
        fresh_app.state.leaving.clear()
    heard.extend(words.get_nowait() for _ in range(words.qsize()))
    assert all(b"event: launch_check" not in word for word in heard)
    assert b"".join(heard).endswith(AGAIN)


def test_listeners_share_one_look_at_the_database(
    fresh_app: FastAPI, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def counted(engine: Engine, known: Mapping[str, int]) -> Any:
        looks.append(len(known))
        return read_later_events(engine, known)

    monkeypatch.setattr(routes, "read_later_events", counted)
    ids = [create(ask, probes=["gemm"]).json()["id"] for _ in range(3)]

    async def whole() -> list[httpx.Response]:
        async with client_of(fresh_app) as client, asyncio.timeout(30):
            listening = [asyncio.create_task(client.get(f"{PATH}/{ids[place % 3]}/events")) for place in range(30)]
            await asyncio.sleep(4 * routes.POLL_SECONDS)
            for check_id in ids:
                await client.post(f"{PATH}/{check_id}/cancel")
            return await asyncio.gather(*listening)

    for answer in asyncio.run(whole()):
        assert [event.name for event in told(answer)] == ["queued", "cancelled", "launch_check"]
    assert max(looks) == len(ids)
    assert len(looks) < 90, "one by one it is more than a hundred"
