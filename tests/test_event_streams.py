"""Event streams leave connections for other requests, and deliver each event once."""

import asyncio
import json
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from threading import Timer

import httpx
import pytest

from service.client import Client
from service.client.sending import events_of
from tests.api.asking import QUESTION
from tests.features.sweeps.test_routes import BODY as SWEEP
from tests.live import serving
from tests.streams import Checks, Heard, checks, found, listen


def test_head_of_a_stream_leaves_the_connection_to_the_next_request(address: str) -> None:
    with closing(HTTPConnection(address, timeout=60)) as connection:
        body = json.dumps({"question": QUESTION, "probes": ["gemm"]})
        connection.request("POST", "/v1/launch-checks", body, {"Content-Type": "application/json"})
        check = json.loads(connection.getresponse().read())
        for method, path in (("HEAD", f"/v1/launch-checks/{check['id']}/events"), ("GET", "/healthz")):
            connection.request(method, path)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        connection.request("POST", f"/v1/launch-checks/{check['id']}/cancel")
        assert json.loads(connection.getresponse().read())["status"] == "cancelled"


def test_a_stream_ends_in_time_and_says_that_there_is_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINCOST_STREAM_SECONDS", "1")
    with serving(tmp_path) as address, httpx.Client(base_url=f"http://{address}", timeout=60) as client:
        check = client.post("/v1/launch-checks", json={"question": QUESTION, "probes": ["gemm"]}).json()
        sweep = client.post("/v1/sweeps", json=SWEEP).json()
        paths = (f"/v1/launch-checks/{check['id']}/events", sweep["links"]["events"])
        told = [[event.name for event in events_of([client.get(path).content])] for path in paths]
    assert told == [["queued", "again"], ["progress", "again"]]


def test_the_client_listens_beyond_the_end_of_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINCOST_STREAM_SECONDS", "1")
    with serving(tmp_path) as address, checks(address, 1) as made, Client(f"http://{address}") as client:
        Timer(2.5, made.finish).start()
        heard: list[str] = []
        found = client.launch_checks.wait(made.ids[0], lambda event: heard.append(event.name))
    assert heard == ["queued", "running", "failed"]
    assert found.status == "failed"


def test_streams_that_are_cut_and_taken_up_lose_and_double_nothing(address: str) -> None:
    async def told(made: Checks) -> None:
        for place in range(5):
            await asyncio.sleep(0.4)
            await asyncio.to_thread(made.tell, place / 5)
        await asyncio.to_thread(made.finish)

    async def heard_of(made: Checks) -> list[Heard]:
        heard = [Heard(made.ids[place % len(made.ids)]) for place in range(12)]
        async with asyncio.TaskGroup() as group:
            group.create_task(told(made))
            for place, one in enumerate(heard):
                group.create_task(listen(address, one, Random(place), 60.0, 0.8))  # noqa: S311 - repeatable
        return heard

    with checks(address, 3) as made:
        heard = asyncio.run(heard_of(made))
    assert not found(heard, made.events).total(), found(heard, made.events)
    assert sum(one.cuts for one in heard) > 0
