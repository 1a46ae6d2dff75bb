"""A service with callers of every kind, and objects that one of them makes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import insert

from service.api.access.key_rules import KeyRequest, make_key
from service.store.engine import writing
from service.store.keys import Scope, create_key, revoke_key
from service.store.tables import JOB_FILES
from tests.api.asking import CHOSEN, QUESTION, RECORDS, Ask, paged_items
from tests.api.authorization import FACTS
from tests.api.own_bodies import OWN
from tests.features.launch_checks.test_routes import QUESTION as MEASURED
from tests.features.sweeps.test_routes import BODY as SWEPT
from tests.fixtures import asking, one_by_one, running

MADE: Mapping[str, tuple[str, Scope]] = {
    "sheet": ("a", "sheet"),
    "reader": ("a", "read"),
    "a": ("a", "write"),
    "b": ("b", "write"),
    "worker": ("team", "worker"),
    "admin": ("team", "admin"),
}
"""Callers who are known: whose they are, and what their key is for."""


OWN_BY_LIST = {own.plural: own for own in OWN}


@dataclass
class Service:
    """A service with callers of every kind."""

    app: FastAPI
    ask: Ask
    keys: dict[str, str]
    ids: dict[str, str]
    objects: dict[tuple[str, str], str] = field(default_factory=dict)

    def by(self, caller: str, method: str, path: str, **request: Any) -> httpx.Response:
        """Sends a request as somebody."""
        headers = {} if caller == "anonymous" else {"Authorization": f"Bearer {self.keys[caller]}"}
        return self.ask(method, path, **{**request, "headers": {**headers, **request.get("headers", {})}})

    def made(self, path: str, body: Any, status: int = 201, caller: str = "a") -> httpx.Response:
        answer = self.by(caller, "POST", path, json=body)
        assert answer.status_code == status, (path, answer.text)
        return answer

    def listed(self, path: str, caller: str) -> list[dict[str, Any]]:
        """All that a list shows somebody."""

        def ask(method: str, path: str, **request: Any) -> httpx.Response:
            return self.by(caller, method, path, **request)

        return paged_items(ask, f"{path}?limit=900")

    def object(self, plural: str, turn: str) -> str:
        """What an object of A's is called, of which there is one for the turn of each who may change it."""
        if (plural, turn) not in self.objects:
            self.objects[plural, turn] = self._new(plural, turn)
        return self.objects[plural, turn]

    def _new(self, plural: str, turn: str) -> str:
        if plural in FACTS:
            own = OWN_BY_LIST[plural]
            self.made(f"/v1/{plural}", own.named(f"matrix {turn}" if plural == "prices" else f"matrix-{turn}"))
            return own.key(f"matrix {turn}" if plural == "prices" else f"matrix-{turn}")
        found: str
        if plural == "scenarios":
            found = self.made("/v1/scenarios", {"name": turn, "question": QUESTION}).json()["id"]
        elif plural == "launch-checks":
            found = self.made("/v1/launch-checks", {"question": MEASURED, "probes": ["profile"]}, 202).json()["id"]
            self.made(f"/v1/launch-checks/{found}/cancel", {}, 200)
            self._trace(found)
        elif plural == "sweeps":
            found = self.made("/v1/sweeps", SWEPT, 202).json()["id"]
            self.made(f"/v1/sweeps/{found}/cancel", {}, 200)
        else:
            ids = self.made("/v1/measurements", run(turn), 200).json()["ids"]
            if plural == "measurements":
                return str(ids[0])
            found = self.made("/v1/calibrations", {**CHOSEN, "runs": [turn]}).json()["id"]
        return found

    def _trace(self, check_id: str) -> None:
        """What a worker would have left."""
        file = {"job_id": check_id, "name": "trace.json.gz", "media_type": "application/gzip", "content": b"x"}
        with writing(self.app.state.engine) as connection:
            connection.execute(insert(JOB_FILES), file)


def run(name: str) -> dict[str, Any]:
    """The example's measurements once more, of another run."""
    body = deepcopy(RECORDS)
    factor = 1 + len(name) / 100
    for one in body["records"][0]["measurements"]:
        one |= {part: one[part] * factor for part in ("low", "value", "high")}
    return {**body, "run": name}


@contextmanager
def service_of_callers(url: str) -> Iterator[Service]:
    """A service that callers of every kind have keys to."""
    with running(url) as app, asking(app) as together:
        engine = app.state.engine
        made = {
            name: make_key(engine, KeyRequest(name=name, owner=owner, scopes=[scope]))
            for name, (owner, scope) in MADE.items()
        }
        old = replace(made["admin"].key, id="tck_expired", expires_at=datetime.now(UTC) - timedelta(seconds=1))
        create_key(engine, old)
        create_key(engine, replace(old, id="tck_revoked", expires_at=None))
        revoke_key(engine, "tck_revoked", datetime.now(UTC))
        app.state.keys.refresh()
        secret = made["admin"].presented.partition(".")[2]
        keys = {name: new.presented for name, new in made.items()}
        keys |= {name: f"tck_{name}.{secret}" for name in ("expired", "revoked", "unknown")}
        keys["wrong"] = made["admin"].presented[:-1]
        yield Service(app, one_by_one(together), keys, {name: new.key.id for name, new in made.items()})
