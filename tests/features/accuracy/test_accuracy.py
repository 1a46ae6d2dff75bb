"""GET /v1/accuracy answers the figures of the shipped measurements."""

from typing import Any

from openapi_schema_validator import OAS31Validator

from service.evaluation.accuracy import shipped_accuracy
from service.validation.serialization import to_wire
from tests.api.asking import Ask


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
