"""Writers that wait for a lock delay no other request, and get an error after a timeout."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI

from service.api import compute
from service.store.engine import alone, writing
from tests.api.replicated import client_of, in_this_process

DELETION: dict[str, Any] = {"method": "DELETE", "url": "/v1/gpus/nothing", "headers": {"If-Match": "*"}}


@contextmanager
def written_to(app: FastAPI) -> Iterator[None]:
    """Meanwhile nobody else can write to the database."""
    with writing(app.state.engine) as connection:
        alone(connection)
        yield


def test_lists_are_answered_while_many_writers_wait(fresh_app: FastAPI) -> None:
    async def run() -> None:
        async with client_of(fresh_app) as client:
            assert (await client.get("/v1/gpus")).status_code == 200  # what the first request makes is made
            with written_to(fresh_app):
                writers = [asyncio.create_task(client.request(**DELETION)) for _ in range(60)]
                await asyncio.sleep(0.2)
                listed = await asyncio.wait_for(client.get("/v1/gpus"), 60)
                assert listed.status_code == 200
                assert not any(writer.done() for writer in writers)
            answers = await asyncio.gather(*writers)
        # on a busy machine the last of them have waited too long, which the test below counts
        assert {404} <= {answer.status_code for answer in answers} <= {404, 503}

    asyncio.run(run())


def test_a_refusal_waits_for_no_thread(fresh_app: FastAPI) -> None:
    in_this_process(fresh_app)

    async def run() -> None:
        threads = current_default_thread_limiter()
        for _ in range(int(threads.total_tokens)):
            threads.acquire_on_behalf_of_nowait(object())
        async with client_of(fresh_app) as client:
            refused = await asyncio.wait_for(client.post("/v1/check", json={}), 60)
            unknown = await asyncio.wait_for(client.get("/nothing"), 60)
        assert (refused.status_code, unknown.status_code) == (422, 404)

    asyncio.run(run())


def test_writers_that_do_not_get_their_turn_are_told(fresh_app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "PATIENCE_SECONDS", 0.2)
    fresh_app.state.write_slots = asyncio.Semaphore(compute.MOST_WRITERS)

    async def run() -> list[httpx.Response]:
        async with client_of(fresh_app) as client:
            with written_to(fresh_app):
                writers = [asyncio.create_task(client.request(**DELETION)) for _ in range(compute.MOST_WRITERS + 3)]
                while sum(writer.done() for writer in writers) < 3:
                    await asyncio.wait([one for one in writers if not one.done()], return_when=asyncio.FIRST_COMPLETED)
            return list(await asyncio.gather(*writers))

    answers = asyncio.run(run())
    assert sorted(answer.status_code for answer in answers) == [404] * compute.MOST_WRITERS + [503] * 3
    for answer in (answer for answer in answers if answer.status_code == 503):
        assert answer.json()["code"] == "busy"
        assert "did not get its turn" in answer.json()["detail"]
        assert answer.headers["retry-after"]
