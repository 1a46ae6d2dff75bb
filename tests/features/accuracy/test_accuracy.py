"""GET /v1/accuracy answers the figures of the shipped measurements."""

import time
from typing import Any

import pytest
from fastapi import FastAPI
from openapi_schema_validator import OAS31Validator

from service.api.computing.write_queue import MOST_COMPUTING
from service.evaluation.accuracy import shipped_accuracy
from service.features.accuracy import routes
from service.validation.serialization import to_wire
from tests.api.asking import Ask
from tests.fixtures import asking


def test_the_answer_is_that_of_the_command(ask: Ask) -> None:
    answer = ask("GET", "/v1/accuracy")
    assert answer.status_code == 200
    told = answer.json()
    own = told["measured"].pop("own")
    assert isinstance(own, list), "the database was asked"
    shipped = to_wire(shipped_accuracy())
    assert shipped["measured"].pop("own") is None
    assert told == shipped


def test_it_is_not_sent_twice(ask: Ask) -> None:
    etag = ask("GET", "/v1/accuracy").headers["ETag"]
    assert ask("GET", "/v1/accuracy", headers={"If-None-Match": etag}).status_code == 304


def test_it_takes_no_parameters(ask: Ask) -> None:
    assert ask("GET", "/v1/accuracy?source_key=bloom").status_code == 422


def test_it_is_as_the_contract_says(ask: Ask, document: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/Accuracy", "components": document["components"]}
    OAS31Validator(schema).validate(ask("GET", "/v1/accuracy").json())


def test_few_threads_compute_at_once(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    computing: list[int] = []
    most = 0

    def computed(shipped: bytes, *_: object) -> bytes:
        nonlocal most
        computing.append(1)
        most = max(most, len(computing))
        time.sleep(0.02)
        computing.pop()
        return shipped

    monkeypatch.setattr(routes, "with_own_measurements", computed)
    with asking(app) as together:
        answers = together([{"method": "GET", "url": "/v1/accuracy"}] * 12)
    assert {answer.status_code for answer in answers} == {200}
    assert most == MOST_COMPUTING
