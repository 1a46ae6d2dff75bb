"""GET /v1/accuracy answers the figures of the shipped measurements, GET /v1/accuracy/totals the published runs."""

from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from service.evaluation.accuracy import shipped_accuracy
from service.evaluation.totals import totals_accuracy
from service.validation.reading import to_wire
from tests.api.asking import Ask

BOTH = pytest.mark.parametrize(
    ("path", "name"), [("/v1/accuracy", "Accuracy"), ("/v1/accuracy/totals", "TotalsAccuracy")]
)


def test_the_answer_is_that_of_the_command(ask: Ask) -> None:
    answer = ask("GET", "/v1/accuracy")
    assert answer.status_code == 200
    told = answer.json()
    own = told["measured"].pop("own")
    assert isinstance(own, list), "the database was asked"
    shipped = to_wire(shipped_accuracy())
    assert shipped["measured"].pop("own") is None
    assert told == shipped


def test_the_answer_about_totals_is_that_of_the_command(ask: Ask) -> None:
    answer = ask("GET", "/v1/accuracy/totals")
    assert answer.status_code == 200
    assert answer.json() == to_wire(totals_accuracy())


def test_it_is_not_sent_twice(ask: Ask) -> None:
    etag = ask("GET", "/v1/accuracy").headers["ETag"]
    assert ask("GET", "/v1/accuracy", headers={"If-None-Match": etag}).status_code == 304


@BOTH
def test_it_takes_no_parameters_and_is_as_the_contract_says(
    ask: Ask, document: dict[str, Any], path: str, name: str
) -> None:
    assert ask("GET", f"{path}?source_key=bloom").status_code == 422
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    OAS31Validator(schema).validate(ask("GET", path).json())
