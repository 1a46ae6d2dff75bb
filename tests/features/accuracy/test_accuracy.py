"""GET /v1/accuracy answers the figures of the shipped measurements, GET /v1/accuracy/totals the published runs."""

from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from service.evaluation.shipped import shipped_accuracy, shipped_points
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


def test_points_are_listed_by_class(ask: Ask) -> None:
    classes = {point.memory_class for point in shipped_points()}
    for name in sorted(classes):
        own = {point.id for point in shipped_points() if point.memory_class == name}
        answer = ask("GET", "/v1/accuracy/points", params={"class": name, "limit": "1000"})
        assert answer.status_code == 200
        assert {one["id"] for one in answer.json()["items"]} == own
    page = ask("GET", "/v1/accuracy/points?quantity=step&limit=2").json()
    assert len(page["items"]) == 2
    assert page["next_cursor"]
    assert ask("GET", "/v1/accuracy/points?limit=1001").status_code == 422
    lines = ask("GET", "/v1/accuracy/points.csv").text.splitlines()
    assert len(lines) == 1 + len(shipped_points())
