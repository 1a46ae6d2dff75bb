"""Streams and waiting workers end soon after the key that let them in, and say why."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import httpx
import pytest

from service.api.access.key_rules import KeyRequest, NewKey, make_key, revoke
from service.client.sending import Event, events_of
from service.store import Engine
from service.store.engine import open_engine
from service.store.keys import Scope, create_key
from tests.api.asking import QUESTION
from tests.api.fake_worker import FakeWorker
from tests.features.sweeps.test_routes import BODY as SWEEP
from tests.live import bearer, serving


class Service:
    """A service that asks for keys, and its database."""

    def __init__(self, address: str, engine: Engine, writer: dict[str, str]) -> None:
        self.client = httpx.Client(base_url=f"http://{address}", timeout=30)
        self.engine, self.writer = engine, writer

    def key(self, scope: Scope, expires_at: datetime | None = None) -> NewKey:
        """A new key that the service knows."""
        made = make_key(self.engine, KeyRequest(name="tests", scopes=[scope]))
        if expires_at is not None:
            key = replace(made.key, id=made.key.id + "_", expires_at=expires_at)
            create_key(self.engine, key)
            made = NewKey(key, f"{key.id}.{made.presented.partition('.')[2]}")
        while self.client.get("/v1/gpus?limit=1", headers=sent(made)).status_code == 401:
            time.sleep(0.1)  # the key is seen within a second
        return made

    def streams(self) -> list[str]:
        """Addresses of streams that go on."""
        check = self.client.post(
            "/v1/launch-checks", json={"question": QUESTION, "probes": ["gemm"]}, headers=self.writer
        ).json()
        sweep = self.client.post("/v1/sweeps", json=SWEEP, headers=self.writer).json()
        return [f"/v1/launch-checks/{check['id']}/events", sweep["links"]["events"]]


def sent(key: NewKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.presented}"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("ends")
    writer = bearer(folder, "write")
    engine = open_engine(f"sqlite:///{folder}/traincost.db")
    with serving(folder) as address:
        found = Service(address, engine, writer)
        with found.client:
            yield found
    engine.dispose()


@contextmanager
def heard(service: Service, path: str, key: NewKey) -> Iterator[Iterator[Event]]:
    """The events of a stream, as they come."""
    with service.client.stream("GET", path, headers=sent(key)) as answer:
        assert answer.status_code == 200
        yield events_of(answer.iter_bytes())


def test_streams_of_a_revoked_key_end_and_say_why(service: Service) -> None:
    for path in service.streams():
        revoked, other = service.key("read"), service.key("read")
        with heard(service, path, revoked) as events, heard(service, path, other) as still:
            first, _ = next(events), next(still)
            assert first.name in {"queued", "progress"}
            revoke(service.engine, revoked.key.id)
            (last,) = events
            assert last.name == "problem"
            problem = json.loads(last.data)
            assert (problem["status"], problem["code"]) == (401, "unauthorized")
            assert "revoked" in problem["detail"]
            revoke(service.engine, other.key.id)
            assert [event.name for event in still] == ["problem"]


def test_streams_of_a_key_end_when_it_expires(service: Service) -> None:
    for path in service.streams():
        key = service.key("read", expires_at=datetime.now(UTC) + timedelta(seconds=4))
        with heard(service, path, key) as events:
            names = [event.name for event in events]
        assert names[-1] == "problem"
        assert "expired" in service.client.get(path, headers=sent(key)).json()["detail"]


def test_a_worker_whose_key_is_revoked_gets_no_job(service: Service) -> None:
    key = service.key("worker")
    said = {
        "worker": "lab",
        "kinds": ["nothing-of-this-kind"],
        "capabilities": FakeWorker(service.client.request).capabilities,
    }
    answers: list[httpx.Response] = []

    def wait() -> None:
        body = {**said, "wait_seconds": 20}
        answers.append(service.client.post("/v1/worker/claim", json=body, headers=sent(key)))

    assert service.client.post("/v1/worker/claim", json=said, headers=sent(key)).status_code == 204
    waiting = Thread(target=wait)
    waiting.start()
    revoke(service.engine, key.key.id)
    waiting.join(15)
    assert [answer.status_code for answer in answers] == [401]
    assert "revoked" in answers[0].json()["detail"]


def test_a_stream_that_needed_no_key_ends_with_the_first_key(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        engine = open_engine(f"sqlite:///{tmp_path}/traincost.db")
        open_to_all = Service(address, engine, {})
        with open_to_all.client as client, client.stream("GET", open_to_all.streams()[0]) as answer:
            events = events_of(answer.iter_bytes())
            assert next(events).name == "queued"
            make_key(engine, KeyRequest(name="tests", scopes=["read"]))
            assert [event.name for event in events] == ["problem"]
        engine.dispose()
