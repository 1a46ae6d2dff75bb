"""Listeners get the progress of a sweep until it ends."""

import asyncio
import json
from pathlib import Path
from threading import Timer

import httpx
from fastapi import FastAPI

from service.features.sweeps import sweeps
from service.store.keys import UNRESTRICTED
from tests.api.asking import Ask
from tests.api.replicated import client_of
from tests.features.sweeps import test_routes
from tests.features.sweeps.test_routes import EACH, PIECES, ROWS, Worker, started

sweep_app, app, ask = test_routes.sweep_app, test_routes.app, test_routes.ask


def test_a_stream_tells_each_state_and_ends_with_the_sweep(ask: Ask, app: FastAPI, tmp_path: Path) -> None:
    sweep = started(ask)
    Worker(ask, tmp_path).run(PIECES - 1)
    ending = Timer(0.2, sweeps.cancel_sweep, [app.state.engine, UNRESTRICTED, sweep["id"]])
    ending.start()
    text = ask("GET", sweep["links"]["events"]).text
    ending.join()
    events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in text.split("\n\n") if event]
    assert [event["event"] for event in events] == ["progress", "ended"]
    assert [json.loads(event["data"])["status"] for event in events] == ["running", "cancelled"]
    assert events[0]["id"] == str(ROWS - EACH)
    assert ask("GET", f"/v1/sweeps/{'swp_' + '0' * 32}/events").status_code == 404


def test_head_tells_of_the_stream_of_a_sweep_that_goes_on(ask: Ask, app: FastAPI) -> None:
    sweep = started(ask)

    async def head() -> httpx.Response:
        async with client_of(app) as client, asyncio.timeout(20):
            return await client.head(sweep["links"]["events"])

    answer = asyncio.run(head())
    assert (answer.status_code, answer.content) == (200, b"")
    sweeps.cancel_sweep(app.state.engine, UNRESTRICTED, sweep["id"])
