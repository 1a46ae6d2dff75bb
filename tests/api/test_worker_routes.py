"""Do workers get jobs over HTTP, keep them by being heard of, and is nothing taken from whoever lost its job?"""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, delete
from starlette.concurrency import run_in_threadpool

from service.answers.workers import Capabilities, Requirements
from service.api.limits import HANDED_IN_BYTES
from service.api.openings import AT_ONCE
from service.store import (
    Job,
    NewJob,
    Seeker,
    cancel_job,
    claim_job,
    create_jobs,
    read_file,
    read_job,
    see_worker,
)
from service.store.database_clock import later
from service.store.engine import writing
from service.store.job_tables import JOBS, WORKERS
from service.workflows import finished_jobs
from tests.api.asking import Ask
from tests.api.conftest import NewUrl, asking, one_by_one, running
from tests.api.replicated import client_of

KIND = "count"
WAITING = 30
H100 = {"name": "NVIDIA H100 80GB HBM3", "count": 8, "memory_bytes": 85_520_809_984}


@pytest.fixture(scope="module")
def queue_app(new_url: NewUrl) -> Iterator[FastAPI]:
    with running(new_url()) as started:
        yield started


@pytest.fixture
def app(queue_app: FastAPI) -> FastAPI:
    with writing(queue_app.state.engine) as connection:
        connection.execute(delete(JOBS))
        connection.execute(delete(WORKERS))
    return queue_app


@pytest.fixture
def ask(app: FastAPI) -> Iterator[Ask]:
    with asking(app) as together:
        yield one_by_one(together)


def add(app: FastAPI, job_id: str = "job_a", **changed: Any) -> None:
    job: dict[str, Any] = {"id": job_id, "kind": KIND, "payload": {"to": 3}, "timeout_seconds": 60.0, **changed}
    create_jobs(app.state.engine, [NewJob(**job)])


def claim(ask: Ask, worker: str = "w1", **said: Any) -> httpx.Response:
    return ask("POST", "/v1/worker/claim", json={"worker": worker, "kinds": [KIND], **said})


def say(ask: Ask, what: str, worker: str = "w1", attempt: int = 1, **said: Any) -> httpx.Response:
    return ask("POST", f"/v1/worker/jobs/job_a/{what}", json={"worker": worker, "attempt": attempt, **said})


def upload(ask: Ask, name: str, content: bytes, **query: Any) -> httpx.Response:
    said = {"worker": "w1", "attempt": "1", **query}
    headers = {"content-type": "application/gzip"}
    return ask("PUT", f"/v1/worker/jobs/job_a/files/{name}", params=said, content=content, headers=headers)


def status(app: FastAPI) -> str:
    job = read_job(app.state.engine, "job_a")
    assert job is not None
    return job.status


def test_a_worker_gets_a_job_and_hands_in_what_it_found(app: FastAPI, ask: Ask) -> None:
    assert claim(ask).status_code == 204
    add(app)
    given = claim(ask).json()["job"]
    assert given == {
        "id": "job_a", "kind": KIND, "attempt": 1, "payload": {"to": 3}, "timeout_seconds": 60.0, "lease_seconds": 60.0,
        "device": None,
    }  # fmt: skip
    assert say(ask, "heartbeat", progress={"done_fraction": 0.5}).json() == {"state": "run"}
    assert upload(ask, "trace.json.gz", b"\x1f\x8b\x00").status_code == 204
    assert [say(ask, "finish", outcome="succeeded", result={"a": 1}).status_code for _ in range(2)] == [204, 204]
    job, file = read_job(app.state.engine, "job_a"), read_file(app.state.engine, "job_a", "trace.json.gz")
    assert job is not None
    assert (job.status, job.result, job.progress) == ("succeeded", {"a": 1}, {"done_fraction": 0.5})
    assert file is not None
    assert (file.media_type, file.content) == ("application/gzip", b"\x1f\x8b\x00")


def test_a_worker_is_told_which_of_its_devices_a_job_is_for(app: FastAPI, ask: Ask) -> None:
    add(app, requires=Requirements(gpu="h100-sxm5-80gb", gpus=4))
    a100 = {"name": "NVIDIA A100-SXM4-80GB", "count": 8, "memory_bytes": 85_899_345_920}
    given = claim(ask, capabilities={"devices": [a100, H100]}).json()["job"]
    assert given["device"] == H100["name"]


def test_whoever_lost_its_job_is_refused_in_every_way(app: FastAPI, ask: Ask) -> None:
    add(app)
    claim(ask)
    for worker, attempt in (("w2", 1), ("w1", 2)):
        refused = [
            say(ask, "heartbeat", worker, attempt),
            say(ask, "finish", worker, attempt, outcome="succeeded"),
            upload(ask, "a", b"x", worker=worker, attempt=str(attempt)),
        ]
        assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(409, "lease_lost")] * 3
    assert status(app) == "running"
    assert ask("POST", "/v1/worker/jobs/nobody/heartbeat", json={"worker": "w1", "attempt": 1}).status_code == 409


def test_a_cancel_reaches_the_worker_with_its_next_heartbeat(app: FastAPI, ask: Ask) -> None:
    add(app)
    claim(ask)
    cancel_job(app.state.engine, "job_a")
    assert say(ask, "heartbeat").json() == {"state": "cancel"}
    assert say(ask, "finish", outcome="cancelled").status_code == 204
    assert status(app) == "cancelled"


def test_a_waiting_worker_gets_a_job_that_is_made_meanwhile(app: FastAPI) -> None:
    async def wait() -> httpx.Response:
        async with client_of(app) as client:
            said = {"worker": "w1", "kinds": [KIND], "wait_seconds": 20}
            waiting = asyncio.create_task(client.post("/v1/worker/claim", json=said))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await asyncio.to_thread(add, app)
            return await waiting

    assert asyncio.run(wait()).json()["job"]["id"] == "job_a"


def test_nobody_waits_for_a_job_once_the_process_is_to_end(app: FastAPI) -> None:
    async def leave() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            said = {"worker": "w1", "kinds": [KIND], "wait_seconds": 20}
            waiting = asyncio.create_task(client.post("/v1/worker/claim", json=said))
            await asyncio.sleep(0.1)
            app.state.leaving.set()
            try:
                return await asyncio.wait_for(waiting, 10.0)
            finally:
                app.state.leaving.clear()

    answer = asyncio.run(leave())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_the_service_finds_the_catalogue_names_of_devices(app: FastAPI, ask: Ask) -> None:
    add(app, requires=Requirements(gpu="h100-sxm5-80gb", gpus=8))
    lesser = {**H100, "count": 4}
    wrongly_named = {**H100, "name": "NVIDIA A100-SXM4-80GB", "gpu": "h100-sxm5-80gb"}
    for device in (lesser, wrongly_named):
        assert claim(ask, capabilities={"devices": [device]}).status_code == 204
    assert claim(ask, "w2", capabilities={"devices": [H100]}).json()["job"]["id"] == "job_a"
    first, second = ask("GET", "/v1/workers").json()["items"]
    assert (first["id"], first["jobs"], first["is_alive"]) == ("w1", [], True)
    assert first["capabilities"]["devices"][0]["gpu"] == "a100-sxm4-80gb"
    assert (second["id"], second["jobs"]) == ("w2", ["job_a"])


def test_a_worker_that_is_not_heard_of_is_listed_as_gone(app: FastAPI, ask: Ask) -> None:
    claim(ask)
    with writing(app.state.engine) as connection:
        connection.execute(WORKERS.update().values(last_seen_at=later(-81.0)))
    (worker,) = ask("GET", "/v1/workers").json()["items"]
    assert not worker["is_alive"]


def test_what_belongs_to_the_end_of_a_job_is_written_with_it(
    app: FastAPI, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_connection: Any, job: Any) -> None:
        raise ValueError(job.result)

    monkeypatch.setattr(finished_jobs, "FINISHED", {KIND: broken})
    add(app)
    claim(ask)
    assert say(ask, "finish", outcome="succeeded", result={"found": 1}).status_code == 500
    assert status(app) == "running"
    monkeypatch.setattr(finished_jobs, "FINISHED", {})
    assert say(ask, "finish", outcome="succeeded", result={"found": 1}).status_code == 204


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("claim", {"worker": "", "kinds": [KIND]}, "/worker"),
    ("claim", {"worker": "w", "kinds": []}, "/kinds"),
    ("claim", {"worker": "w", "kinds": [KIND], "wait_seconds": 21}, "/wait_seconds"),
    ("claim", {"worker": "w", "kinds": [KIND], "wait": 1}, ""),
    ("claim", {"worker": "w", "kinds": [KIND], "capabilities": {"nodes": 0}}, "/capabilities/nodes"),
    ("jobs/job_a/heartbeat", {"worker": "w", "attempt": 0}, "/attempt"),
    ("jobs/job_a/heartbeat", {"worker": "w", "attempt": 1, "progress": 3}, "/progress"),
    ("jobs/job_a/finish", {"worker": "w", "attempt": 1}, "/outcome"),
    ("jobs/job_a/finish", {"worker": "w", "attempt": 1, "outcome": "queued"}, "/outcome"),
    ("jobs/job_a/finish", {"worker": "w", "attempt": 1, "outcome": "failed", "error": {}}, "/error/code"),
)  # fmt: skip


@pytest.mark.parametrize(("place", "body", "pointer"), WRONG)
def test_what_is_wrong_is_named(ask: Ask, place: str, body: dict[str, Any], pointer: str) -> None:
    answer = ask("POST", f"/v1/worker/{place}", json=body)
    assert answer.status_code == 422
    assert pointer in {error["pointer"] for error in answer.json()["errors"]}


@pytest.mark.parametrize(
    ("name", "query"),
    [("..%2Fa", {}), (".a", {}), ("a" * 101, {}), ("a", {"attempt": "x"}), ("a", {"worker": ""})],
)
def test_a_file_without_a_name_or_a_claim_is_refused(ask: Ask, name: str, query: dict[str, str]) -> None:
    assert upload(ask, name, b"x", **query).status_code in {404, 422}


def test_what_workers_hand_in_has_bounds_of_its_own(app: FastAPI, ask: Ask) -> None:
    add(app)
    claim(ask)
    large = "x" * (2 << 20)
    assert say(ask, "heartbeat", progress={"a": large}).status_code == 413
    too_large = b" " * (next(iter(HANDED_IN_BYTES.values())) + 1)
    headers = {"content-type": "application/json"}
    assert ask("POST", "/v1/worker/jobs/job_a/finish", content=too_large, headers=headers).status_code == 413
    assert say(ask, "finish", outcome="succeeded", result={"a": large}).status_code == 204


def test_of_many_workers_that_wait_few_ask_in_vain(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    seen: list[str] = []
    are_all_there = threading.Event()

    def noted(engine: Engine, worker: str, capabilities: Capabilities) -> None:
        see_worker(engine, worker, capabilities)
        seen.append(worker)
        if len(seen) == WAITING:
            are_all_there.set()

    def counted(engine: Engine, seeker: Seeker, lease_seconds: float) -> Job | None:
        asked.append(seeker.worker)
        return claim_job(engine, seeker, lease_seconds)

    async def run() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as client:
            said = [{"worker": f"w{n}", "kinds": [KIND], "wait_seconds": 6} for n in range(WAITING)]
            claims = [asyncio.create_task(client.post("/v1/worker/claim", json=one)) for one in said]
            assert await run_in_threadpool(are_all_there.wait, 30)
            await run_in_threadpool(add, app)
            return [answer.status_code for answer in await asyncio.gather(*claims)]

    monkeypatch.setattr("service.api.openings.claim_job", counted)
    monkeypatch.setattr("service.api.routes.worker.see_worker", noted)
    statuses = asyncio.run(run())
    assert sorted(statuses) == [200] + [204] * (WAITING - 1)
    assert 0 < len(asked) <= 2 * AT_ONCE
