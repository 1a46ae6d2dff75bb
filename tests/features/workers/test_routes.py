"""Workers over HTTP: jobs, leases that prove who holds them, and bounds on all that workers send."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, delete
from starlette.concurrency import run_in_threadpool

from service.answers.workers import Requirements
from service.api.limits.http_limits import UPLOAD_BYTES
from service.features.launch_checks import finished_jobs
from service.features.workers.leases import AT_ONCE
from service.jobs.jobs import NewJob, create_jobs, read_job
from service.jobs.leases import Claim, cancel_job, claim_job, expire_leases, read_file
from service.store.engine import later, writing
from service.store.tables import JOBS, OWNER_SHARES, WORKERS
from service.store.workers import JobRequest, WorkerBounds, record_worker
from tests.api.asking import Ask
from tests.api.replicated import client_of
from tests.fixtures import asking, one_by_one

KIND = "count"
WAITING = 30
H100 = {"name": "NVIDIA H100 80GB HBM3", "count": 8, "memory_bytes": 85_520_809_984}


@pytest.fixture
def app(fresh_app: FastAPI) -> Iterator[FastAPI]:
    with writing(fresh_app.state.engine) as connection:
        connection.execute(delete(JOBS))
        connection.execute(delete(WORKERS))
        connection.execute(delete(OWNER_SHARES))
    settings = fresh_app.state.settings
    yield fresh_app
    fresh_app.state.settings = settings


@pytest.fixture
def ask(app: FastAPI) -> Iterator[Ask]:
    with asking(app) as together:
        yield one_by_one(together)


def add(app: FastAPI, job_id: str = "job_a", **changed: Any) -> None:
    job: dict[str, Any] = {"id": job_id, "kind": KIND, "payload": {"to": 3}, "timeout_seconds": 60.0, **changed}
    create_jobs(app.state.engine, [NewJob(**job)])


def claim(ask: Ask, worker: str = "w1", **said: Any) -> httpx.Response:
    return ask("POST", "/v1/worker/claim", json={"worker": worker, "kinds": [KIND], **said})


def held(ask: Ask, worker: str = "w1") -> str:
    """The lease of the job that a worker gets."""
    lease: str = claim(ask, worker).json()["job"]["lease"]
    return lease


def say(ask: Ask, what: str, lease: str, job_id: str = "job_a", **said: Any) -> httpx.Response:
    return ask("POST", f"/v1/worker/jobs/{job_id}/{what}", json={"lease": lease, **said})


def upload(ask: Ask, name: str, content: bytes, lease: str, job_id: str = "job_a") -> httpx.Response:
    headers = {"content-type": "application/gzip", "traincost-lease": lease}
    return ask("PUT", f"/v1/worker/jobs/{job_id}/files/{name}", content=content, headers=headers)


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status of a refusal, and the code of what is wrong: that of the first field, where one is named."""
    problem = answer.json()
    return answer.status_code, (problem["errors"] or [problem])[0]["code"]


def status(app: FastAPI) -> str:
    job = read_job(app.state.engine, "job_a")
    assert job is not None
    return job.status


def test_a_worker_gets_a_job_and_hands_in_what_it_found(app: FastAPI, ask: Ask) -> None:
    assert claim(ask).status_code == 204
    add(app)
    given = claim(ask).json()["job"]
    lease = given.pop("lease")
    assert len(lease) >= 22
    assert given == {
        "id": "job_a", "kind": KIND, "attempt": 1, "payload": {"to": 3}, "timeout_seconds": 60.0, "lease_seconds": 60.0,
        "device": None,
    }  # fmt: skip
    assert say(ask, "heartbeat", lease, progress={"done_fraction": 0.5}).json() == {"state": "run"}
    assert upload(ask, "trace.json.gz", b"\x1f\x8b\x00", lease).status_code == 204
    assert [say(ask, "finish", lease, outcome="succeeded", result={"a": 1}).status_code for _ in range(2)] == [204, 204]
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


def test_a_forged_lease_is_refused_as_one_for_no_job_is(app: FastAPI, ask: Ask) -> None:
    add(app)
    lease = held(ask)
    add(app, "job_b")
    other = held(ask, "w2")
    told = set()
    for job_id, forged in (("job_a", "w1"), ("job_a", other), ("job_a", lease[:-1]), ("job_a", "1"), ("none", lease)):
        refused = [
            say(ask, "heartbeat", forged, job_id),
            say(ask, "finish", forged, job_id, outcome="succeeded"),
            upload(ask, "a", b"x", forged, job_id),
        ]
        assert [code(answer) for answer in refused] == [(409, "lease_lost")] * 3
        told |= {str({**answer.json(), "request_id": ""}) for answer in refused}
    assert len(told) == 1
    assert status(app) == "running"
    assert say(ask, "heartbeat", lease).status_code == 200


def test_worker_and_attempt_prove_nothing(app: FastAPI, ask: Ask) -> None:
    add(app)
    held(ask)
    claimed = {"worker": "w1", "attempt": 1}
    for what, said in (("heartbeat", claimed), ("finish", {**claimed, "outcome": "succeeded"})):
        answer = ask("POST", f"/v1/worker/jobs/job_a/{what}", json=said)
        assert answer.status_code == 422
        assert "/lease" in {error["pointer"] for error in answer.json()["errors"]}
    headers = {"content-type": "text/plain"}
    for query in ("", "?worker=w1&attempt=1"):
        assert ask("PUT", f"/v1/worker/jobs/job_a/files/a{query}", content=b"x", headers=headers).status_code == 422
    assert status(app) == "running"


def test_a_lease_is_worth_nothing_once_the_job_is_another_s(app: FastAPI, ask: Ask) -> None:
    add(app)
    old = held(ask)
    with writing(app.state.engine) as connection:
        connection.execute(JOBS.update().values(lease_until=later(-1.0)))
    expire_leases(app.state.engine)
    new = held(ask)
    assert new != old
    assert code(say(ask, "heartbeat", old)) == (409, "lease_lost")
    assert code(say(ask, "finish", old, outcome="succeeded", result={"by": "old"})) == (409, "lease_lost")
    assert code(upload(ask, "a", b"x", old)) == (409, "lease_lost")
    assert say(ask, "finish", new, outcome="succeeded", result={"by": "new"}).status_code == 204
    assert code(say(ask, "finish", old, outcome="succeeded", result={"by": "new"})) == (409, "lease_lost")


def test_a_second_different_outcome_changes_nothing(app: FastAPI, ask: Ask) -> None:
    add(app)
    lease = held(ask)
    outcome: dict[str, Any] = {"outcome": "succeeded", "result": {"a": 1, "b": [2.5]}}
    assert say(ask, "finish", lease, **outcome).status_code == 204
    before = read_job(app.state.engine, "job_a")
    for other in (
        {**outcome, "result": {"a": 2}},
        {"outcome": "failed", "error": {"code": "x", "message": ""}},
        {"outcome": "released"},
    ):
        assert code(say(ask, "finish", lease, **other)) == (409, "already_finished")
    assert read_job(app.state.engine, "job_a") == before
    assert say(ask, "finish", lease, outcome="succeeded", result={"b": [2.5], "a": 1}).status_code == 204
    for late in (say(ask, "heartbeat", lease), upload(ask, "a", b"x", lease)):
        assert code(late) == (409, "lease_lost")


def test_a_cancel_reaches_the_worker_with_its_next_heartbeat(app: FastAPI, ask: Ask) -> None:
    add(app)
    lease = held(ask)
    cancel_job(app.state.engine, "job_a")
    assert say(ask, "heartbeat", lease).json() == {"state": "cancel"}
    assert say(ask, "finish", lease, outcome="cancelled").status_code == 204
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
    lease = held(ask)
    assert say(ask, "finish", lease, outcome="succeeded", result={"found": 1}).status_code == 500
    assert status(app) == "running"
    monkeypatch.setattr(finished_jobs, "FINISHED", {})
    assert say(ask, "finish", lease, outcome="succeeded", result={"found": 1}).status_code == 204


def nested(depth: int) -> Any:
    """Objects inside each other."""
    return {"a": nested(depth - 1)} if depth else {}


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("claim", {"worker": "", "kinds": [KIND]}, "/worker"),
    ("claim", {"worker": "w", "kinds": []}, "/kinds"),
    ("claim", {"worker": "w", "kinds": [KIND], "wait_seconds": 21}, "/wait_seconds"),
    ("claim", {"worker": "w", "kinds": [KIND], "wait": 1}, "/wait"),
    ("claim", {"worker": "w", "kinds": [KIND], "capabilities": {"nodes": 0}}, "/capabilities/nodes"),
    ("jobs/job_a/heartbeat", {}, "/lease"),
    ("jobs/job_a/heartbeat", {"lease": ""}, "/lease"),
    ("jobs/job_a/heartbeat", {"lease": "l" * 101}, "/lease"),
    ("jobs/job_a/heartbeat", {"lease": "l", "progress": 3}, "/progress"),
    ("jobs/job_a/heartbeat", {"lease": "l", "progress": nested(9)}, "/progress"),
    ("jobs/job_a/finish", {"lease": "l"}, "/outcome"),
    ("jobs/job_a/finish", {"lease": "l", "outcome": "queued"}, "/outcome"),
    ("jobs/job_a/finish", {"lease": "l", "outcome": "failed", "error": {}}, "/error/code"),
)  # fmt: skip


@pytest.mark.parametrize(("place", "body", "pointer"), WRONG)
def test_what_is_wrong_is_named(ask: Ask, place: str, body: dict[str, Any], pointer: str) -> None:
    answer = ask("POST", f"/v1/worker/{place}", json=body)
    assert answer.status_code == 422
    assert pointer in {error["pointer"] for error in answer.json()["errors"]}


@pytest.mark.parametrize(
    ("name", "lease"), [("..%2Fa", "l"), (".a", "l"), ("a" * 101, "l"), ("a", ""), ("a", "l" * 101)]
)
def test_a_file_without_a_name_or_a_lease_is_refused(ask: Ask, name: str, lease: str) -> None:
    assert upload(ask, name, b"x", lease).status_code in {404, 422}


def test_what_workers_hand_in_has_bounds_of_its_own(app: FastAPI, ask: Ask) -> None:
    add(app)
    lease = held(ask)
    large = "x" * (2 << 20)
    assert say(ask, "heartbeat", lease, progress={"a": "x" * (15 << 10)}).status_code == 200
    assert say(ask, "heartbeat", lease, progress={"a": "x" * (16 << 10)}).status_code == 413
    assert say(ask, "heartbeat", lease, progress=nested(8)).status_code == 200
    assert claim(ask, capabilities={"labels": {f"l{n}": "x" * 200 for n in range(50)}}).status_code == 204
    assert claim(ask, capabilities={"devices": [{"name": "é" * 200}] * 100}).status_code == 413
    too_large = b" " * (next(iter(UPLOAD_BYTES.values())) + 1)
    headers = {"content-type": "application/json"}
    assert ask("POST", "/v1/worker/jobs/job_a/finish", content=too_large, headers=headers).status_code == 413
    assert say(ask, "finish", lease, outcome="succeeded", result={"a": large}).status_code == 204


def test_a_job_takes_so_much_progress_and_no_more(app: FastAPI, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    add(app)
    lease = held(ask)
    monkeypatch.setattr("service.jobs.leases.MOST_EVENTS", 3)
    assert say(ask, "heartbeat", lease, progress={"done": 1}).status_code == 200
    assert code(say(ask, "heartbeat", lease, progress={"done": 2})) == (422, "too_many_events")
    assert say(ask, "heartbeat", lease).json() == {"state": "run"}
    monkeypatch.setattr("service.jobs.leases.MOST_EVENTS", 100)
    monkeypatch.setattr("service.jobs.leases.MOST_PROGRESS_BYTES", 30)
    assert say(ask, "heartbeat", lease, progress={"done": 3}).status_code == 200
    assert code(say(ask, "heartbeat", lease, progress={"done": 4})) == (422, "too_many_events")
    assert say(ask, "finish", lease, outcome="succeeded").status_code == 204


def test_a_job_leaves_so_many_files_and_no_more(app: FastAPI, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    add(app)
    lease = held(ask)
    monkeypatch.setattr("service.jobs.leases.MOST_FILES", 2)
    assert [upload(ask, name, b"12345", lease).status_code for name in ("a", "b", "b")] == [204] * 3
    assert code(upload(ask, "c", b"1", lease)) == (422, "too_many_files")
    monkeypatch.setattr("service.jobs.leases.MOST_JOB_BYTES", 12)
    assert upload(ask, "b", b"1234567", lease).status_code == 204
    assert code(upload(ask, "a", b"123456", lease)) == (422, "job_bytes_used_up")
    assert upload(ask, "a", b"1", lease).status_code == 204
    monkeypatch.undo()
    assert say(ask, "finish", lease, outcome="succeeded").status_code == 204
    add(app, "job_b")
    lease = held(ask)
    app.state.settings = app.state.settings.model_copy(update={"worker_file_bytes": 20})
    assert upload(ask, "a", b"123456789012", lease, "job_b").status_code == 204
    assert code(upload(ask, "b", b"1", lease, "job_b")) == (422, "key_bytes_used_up")
    assert upload(ask, "a", b"12345678901", lease, "job_b").status_code == 204


def test_so_many_workers_are_known_and_no_more(app: FastAPI, ask: Ask) -> None:
    app.state.settings = app.state.settings.model_copy(update={"workers_per_key": 3})
    assert [claim(ask, f"w{n}").status_code for n in range(3)] == [204] * 3
    assert code(claim(ask, "w3")) == (422, "too_many_workers")
    assert claim(ask, "w0").status_code == 204
    with writing(app.state.engine) as connection:
        connection.execute(WORKERS.update().where(WORKERS.c.name == "w1").values(last_seen_at=later(-81.0)))
    assert claim(ask, "w3").status_code == 204
    assert [worker["id"] for worker in ask("GET", "/v1/workers").json()["items"]] == ["w0", "w2", "w3"]


def test_jobs_go_round_the_owners(app: FastAPI, ask: Ask) -> None:
    for number in range(20):
        add(app, f"many_{number:02}", owner="many", priority=9)
    gets = [claim(ask).json()["job"]["id"] for _ in range(3)]
    add(app, "few_0", owner="few")
    add(app, "few_1", owner="few", priority=1)
    gets += [claim(ask).json()["job"]["id"] for _ in range(5)]
    add(app, "late", owner="late")
    gets += [claim(ask).json()["job"]["id"] for _ in range(2)]
    assert gets == [
        "many_00", "many_01", "many_02", "few_1", "many_03", "few_0", "many_04", "many_05", "late", "many_06",
    ]  # fmt: skip


def test_of_many_workers_that_wait_few_ask_in_vain(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    seen: list[str] = []
    are_all_there = threading.Event()

    def noted(engine: Engine, worker: JobRequest, bounds: WorkerBounds) -> None:
        record_worker(engine, worker, bounds)
        seen.append(worker.worker)
        if len(seen) == WAITING:
            are_all_there.set()

    def counted(engine: Engine, seeker: JobRequest, lease_seconds: float) -> Claim | None:
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

    monkeypatch.setattr("service.features.workers.leases.claim_job", counted)
    monkeypatch.setattr("service.features.workers.routes.record_worker", noted)
    statuses = asyncio.run(run())
    assert sorted(statuses) == [200] + [204] * (WAITING - 1)
    assert 0 < len(asked) <= 2 * AT_ONCE
