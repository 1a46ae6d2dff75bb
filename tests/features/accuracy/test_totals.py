"""GET /v1/accuracy/totals answers the comparison of published runs."""

from typing import Any

from openapi_schema_validator import OAS31Validator

from service.evaluation.totals import totals_accuracy
from service.validation.serialization import to_wire
from tests.api.asking import Ask


def test_the_answer_is_that_of_the_command(ask: Ask) -> None:
    answer = ask("GET", "/v1/accuracy/totals")
    assert answer.status_code == 200
    assert answer.json() == to_wire(totals_accuracy())


def test_it_takes_no_parameters(ask: Ask) -> None:
    assert ask("GET", "/v1/accuracy/totals?source_key=bloom").status_code == 422


def test_it_is_as_the_contract_says(ask: Ask, document: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/TotalsAccuracy", "components": document["components"]}
    OAS31Validator(schema).validate(ask("GET", "/v1/accuracy/totals").json())
