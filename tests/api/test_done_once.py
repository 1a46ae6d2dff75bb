"""Every POST that creates something creates it once under an Idempotency-Key."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from service.api import caching
from tests.api.asking import CHOSEN, QUESTION, AskTogether
from tests.api.callers import run
from tests.api.own_bodies import OWN
from tests.features.catalogue.test_model_imports import CONFIG
from tests.features.launch_checks.test_routes import QUESTION as MEASURED
from tests.features.sweeps.test_routes import BODY as SWEPT
from tests.fixtures import asking

BODIES: dict[str, Any] = {
    "/v1/scenarios": {"name": "once", "question": QUESTION},
    **{f"/v1/{own.plural}": own.named("once") for own in OWN},
    "/v1/models/import": CONFIG,
    "/v1/calibrations": {**CHOSEN, "runs": ["once"]},
    "/v1/launch-checks": {"question": MEASURED, "probes": ["profile"]},
    "/v1/sweeps": SWEPT,
}
"""By the path of an operation that makes something, what it makes."""

NAMED = {"/v1/models/import": "?slug=imported-once"}


@pytest.fixture
def together(fresh_app: FastAPI) -> Iterator[AskTogether]:
    with asking(fresh_app) as send:
        yield send


def posted(path: str, body: Any, key: str = "k") -> dict[str, Any]:
    return {"method": "POST", "url": path, "json": body, "headers": {"Idempotency-Key": key}}


def test_every_operation_that_makes_something_takes_a_key(together: AskTogether) -> None:
    (answer,) = together([{"method": "GET", "url": "/openapi.json"}])
    making = {
        path: operations["post"]
        for path, operations in answer.json()["paths"].items()
        if "post" in operations and not {"201", "202"}.isdisjoint(operations["post"]["responses"])
    }
    assert making.keys() == BODIES.keys()
    taking = {path for path, told in making.items() if "Idempotency-Key" in json.dumps(told.get("parameters", []))}
    assert taking == making.keys()


@pytest.mark.parametrize("path", BODIES)
def test_what_is_sent_twice_is_made_once(together: AskTogether, path: str) -> None:
    if path == "/v1/calibrations":
        together([{"method": "POST", "url": "/v1/measurements", "json": run("once")}])
    place, body = path + NAMED.get(path, ""), BODIES[path]
    answers = together([posted(place, body) for _ in range(3)])
    assert {answer.status_code for answer in answers} <= {201, 202}, answers[0].text
    assert len({(answer.content, answer.headers["location"]) for answer in answers}) == 1
    assert sorted(answer.headers.get("idempotent-replayed", "") for answer in answers) == ["", "true", "true"]
    (found,) = together([{"method": "GET", "url": answers[0].headers["location"]}])
    assert found.status_code == 200, "it is there for the next request"


def test_another_name_in_the_query_is_another_request(together: AskTogether) -> None:
    made = together([posted("/v1/models/import?slug=one-name", CONFIG, "q")])[0]
    other = together([posted("/v1/models/import?slug=another-name", CONFIG, "q")])[0]
    assert (made.status_code, other.status_code, other.json()["code"]) == (201, 422, "key_reused")


def test_a_row_that_is_not_kept_is_in_no_answer(together: AskTogether, monkeypatch: pytest.MonkeyPatch) -> None:
    own = OWN[0]
    with monkeypatch.context() as patch:
        patch.setattr(caching, "StoredResponse", lambda **_: 1 / 0)  # after the row was written
        assert together([posted(f"/v1/{own.plural}", own.named("never-kept"), "never")])[0].status_code == 500
    (found,) = together([{"method": "GET", "url": own.path("never-kept")}])
    assert found.status_code == 404
    (again,) = together([posted(f"/v1/{own.plural}", own.named("never-kept"), "never")])
    assert again.status_code == 201
