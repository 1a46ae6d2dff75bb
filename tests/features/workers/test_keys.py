"""Worker keys of several owners: a lease is bound to the key that claimed, and a key reads what its job holds alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import delete

from service.api.access.key_rules import KeyLimits, KeyRequest, make_key
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.jobs.jobs import NewJob, create_jobs, read_job
from service.settings import Settings
from service.store.engine import writing
from service.store.history import load_catalogue
from service.store.tables import JOBS, WORKERS
from tests.api.asking import Ask
from tests.databases import prepared
from tests.fixtures import asking, one_by_one

KIND = "count"
SCOPES = {
    "a": ["worker"], "b": ["worker"], "shared": ["worker"], "slow": ["worker"], "read_a": ["read"], "read_b": ["read"],
    "write_a": ["write"], "admin": ["admin"],
}  # fmt: skip
SWEEP = {
    "models": ["qwen3-0.6b"],
    "clusters": ["dgx-h100"],
    "layouts": [{"tensor": 1}],
    "recipes": [{"sequence_length": 4096, "global_batch": 64, "training_tokens": 1e10}],
    "prices": [{"usd_per_gpu_hour": 2}],
    "columns": ["gpu_hours"],
}

As = Callable[[str], Ask]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FastAPI, As]]:
    """A service with keys of two owners."""
    folder: Path = tmp_path_factory.mktemp("worker_keys")
    url = f"sqlite:///{folder / 'traincost.db'}"
    engine = prepared(url, shipped_catalogue())
    few, sent = KeyLimits(requests_per_minute=60, request_burst=2), {}
    for name, scopes in SCOPES.items():
        owner = {"a": "vision", "b": "speech"}.get(name[-1], "team")
        wanted = KeyRequest(name=name, scopes=scopes, owner=owner, limits=few if name == "slow" else KeyLimits())
        sent[name] = {"Authorization": f"Bearer {make_key(engine, wanted).presented}"}
    app = create_app(Settings(database_url=url), load_catalogue(engine), engine)
    with asking(app) as together:
        ask = one_by_one(together)

        def as_key(name: str) -> Ask:
            def sending(method: str, path: str, **request: Any) -> httpx.Response:
                return ask(method, path, **{**request, "headers": {**request.get("headers", {}), **sent[name]}})

            return sending

        yield app, as_key
    engine.dispose()


@pytest.fixture
def app(locked: tuple[FastAPI, As]) -> FastAPI:
    return locked[0]


@pytest.fixture
def as_key(locked: tuple[FastAPI, As]) -> As:
    with writing(locked[0].state.engine) as connection:
        connection.execute(delete(JOBS))
        connection.execute(delete(WORKERS))
    return locked[1]


def add(app: FastAPI, job_id: str, owner: str) -> None:
    create_jobs(app.state.engine, [NewJob(id=job_id, kind=KIND, payload={}, timeout_seconds=60.0, owner=owner)])


def claim(ask: Ask, kind: str = KIND) -> dict[str, Any]:
    """The job that a worker called w1 gets."""
    answer = ask("POST", "/v1/worker/claim", json={"worker": "w1", "kinds": [kind]})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()["job"]
    return job


def test_a_lease_is_worth_nothing_with_another_key(app: FastAPI, as_key: As) -> None:
    add(app, "job_a", "vision")
    job = claim(as_key("a"))
    path, lease = f"/v1/worker/jobs/{job['id']}", {"lease": job["lease"]}
    headers = {"traincost-lease": job["lease"], "content-type": "text/plain"}
    refused = [
        as_key("b")("POST", f"{path}/heartbeat", json=lease),
        as_key("b")("POST", f"{path}/finish", json={**lease, "outcome": "succeeded"}),
        as_key("b")("PUT", f"{path}/files/a", content=b"x", headers=headers),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(409, "lease_lost")] * 3
    kept = read_job(app.state.engine, "job_a")
    assert kept is not None
    assert (kept.status, kept.progress) == ("running", None)
    assert as_key("a")("POST", f"{path}/finish", json={**lease, "outcome": "succeeded"}).status_code == 204
    assert as_key("b")("POST", f"{path}/finish", json={**lease, "outcome": "succeeded"}).status_code == 409


def test_a_worker_key_without_an_owner_takes_jobs_of_every_owner(app: FastAPI, as_key: As) -> None:
    for job_id, owner in (("job_a", "vision"), ("job_b", "speech"), ("job_t", "team")):
        add(app, job_id, owner)
    assert {claim(as_key("shared"))["id"] for _ in range(3)} == {"job_a", "job_b", "job_t"}


def test_a_worker_key_of_an_owner_takes_jobs_of_that_owner_alone(app: FastAPI, as_key: As) -> None:
    body = {"worker": "w1", "kinds": [KIND], "wait_seconds": 0.5}
    for job_id, owner in (("job_a", "vision"), ("job_t", "team")):
        add(app, job_id, owner)
    assert as_key("b")("POST", "/v1/worker/claim", json=body).status_code == 204
    add(app, "job_b", "speech")
    assert as_key("b")("POST", "/v1/worker/claim", json=body).json()["job"]["id"] == "job_b"
    assert claim(as_key("a"))["id"] == "job_a"


def test_ids_of_jobs_are_shown_to_their_owners_alone(app: FastAPI, as_key: As) -> None:
    add(app, "job_a", "vision")
    add(app, "job_b", "speech")
    add(app, "job_t", "team")
    for key in ("a", "b", "shared"):
        claim(as_key(key))
    seen = {}
    for reader, workers in (("read_a", 2), ("read_b", 2), ("admin", 3)):
        items = as_key(reader)("GET", "/v1/workers").json()["items"]
        assert [(worker["id"], worker["is_busy"]) for worker in items] == [("w1", True)] * workers
        seen[reader] = sorted(job for worker in items for job in worker["jobs"])
    assert seen == {"read_a": ["job_a"], "read_b": ["job_b"], "admin": ["job_a", "job_b", "job_t"]}


def test_two_keys_may_have_a_worker_of_one_name(as_key: As) -> None:
    for key, threads in (("a", 2), ("b", 3)):
        body = {"worker": "w1", "kinds": [KIND], "capabilities": {"cpu_threads": threads}}
        assert as_key(key)("POST", "/v1/worker/claim", json=body).status_code == 204
    items = as_key("admin")("GET", "/v1/workers").json()["items"]
    assert sorted(worker["capabilities"]["cpu_threads"] for worker in items) == [2, 3]


def test_a_sweep_is_read_by_whoever_holds_a_piece_of_it(app: FastAPI, as_key: As) -> None:
    def read(key: str, sweep: str, lease: str | None) -> int:
        headers = {} if lease is None else {"traincost-lease": lease}
        return as_key(key)("GET", f"/v1/worker/sweeps/{sweep}", headers=headers).status_code

    add(app, "job_a", "vision")
    sweep = as_key("write_a")("POST", "/v1/sweeps", json=SWEEP).json()["id"]
    other = as_key("write_a")("POST", "/v1/sweeps", json={**SWEEP, "prices": [{"usd_per_gpu_hour": 3}]}).json()["id"]
    counted, piece = claim(as_key("a")), claim(as_key("shared"), "sweep-shard")
    assert piece["payload"]["sweep"] == sweep
    assert [read("shared", sweep, lease) for lease in (None, "none", counted["lease"])] == [422, 409, 409]
    assert read("a", sweep, piece["lease"]) == 409
    assert read("shared", other, piece["lease"]) == 409
    assert read("shared", sweep, piece["lease"]) == 200
    body = {"lease": piece["lease"], "outcome": "released"}
    assert as_key("shared")("POST", f"/v1/worker/jobs/{piece['id']}/finish", json=body).status_code == 204
    assert read("shared", sweep, piece["lease"]) == 409


def test_workers_of_a_key_are_limited_together(app: FastAPI, as_key: As) -> None:
    body = {"worker": "w1", "kinds": [KIND]}
    answers = [as_key("slow")("POST", "/v1/worker/claim", json=body) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [204, 204, 429]
    assert answers[0].headers["ratelimit-policy"] == '"worker";q=2;w=2'
    assert (answers[2].json()["code"], answers[2].headers["retry-after"]) == ("rate_limited", "1")
    usual = as_key("a")("POST", "/v1/worker/claim", json=body)
    assert usual.headers["ratelimit-policy"] == '"worker";q=20000;w=10'
    assert app.state.metrics.rate_limit_refusals.labels("worker").collect()[0].samples[0].value == 1
