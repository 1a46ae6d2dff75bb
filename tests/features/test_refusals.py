"""Refusals of searches, comparisons, sweeps and diagnoses: the status, the place and the code of each."""

import json
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.features.diagnose.schemas import EXAMPLE
from tests.api.asking import QUESTION, Ask
from tests.echoes import beyond_echo

BATCH = {"sequence_length": 8192, "global_batch": 128}
COMPARED = {"question": {"model": "llama-3.1-8b", "recipe": BATCH}, "clusters": [{"gpu": "h100", "gpus": 8}]}


def cases_of(file: str) -> tuple[dict[str, Any], list[Any]]:
    """A table of refusals, and its cases with their paths."""
    tables: dict[str, Any] = json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return tables, [
        pytest.param(path, case, id=f"{path}-{number}")
        for path, table in tables.items()
        for number, case in enumerate(table["refused"])
    ]


REFUSALS, REFUSED = cases_of("refusals.json")
"""By operation, a body that is answered, and changes that are refused: fields that are set, at any depth, the
pointer and the code of each error, perhaps with words of its fix, and fields that are left out."""
QUERY_REFUSALS, QUERIES_REFUSED = cases_of("query_refusals.json")
"""By path, a query that is answered, and changes that are refused: the parameter and the code of each error."""


def merged(body: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    both = {name for name in change if isinstance(change[name], dict) and isinstance(body.get(name), dict)}
    return {**body, **{name: merged(body[name], one) if name in both else one for name, one in change.items()}}


@pytest.mark.parametrize(("path", "case"), REFUSED)
def test_a_wrong_request_is_refused_at_its_place(ask: Ask, path: str, case: list[Any]) -> None:
    change, expected, *left_out = case
    body = deepcopy(REFUSALS[path]["body"])
    for field in (field for fields in left_out for field in fields):
        *outer, last = field.split(".")
        del reduce(getitem, outer, body)[last]
    answer = ask("POST", f"/v1/{path}", json=merged(body, change))
    refused_with(answer, "pointer", expected)


@pytest.mark.parametrize(("path", "case"), QUERIES_REFUSED)
def test_a_wrong_query_is_refused_with_its_parameter(ask: Ask, path: str, case: list[Any]) -> None:
    change, expected = case
    refused_with(ask("GET", path, params={**QUERY_REFUSALS[path]["query"], **change}), "parameter", expected)


def refused_with(answer: httpx.Response, place: str, expected: list[list[str]]) -> None:
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "c4n4ry" not in beyond_echo(answer)
    errors = answer.json()["errors"]
    assert [[one.get(place), one["code"]] for one in errors] == [one[:2] for one in expected]
    for error, (_, _, *fix) in zip(errors, expected, strict=True):
        assert error["message"]
        assert error["fix"]
        assert "".join(fix) in error["fix"]


def test_an_unknown_rate_card_refuses_its_rows_alone(ask: Ask) -> None:
    prices = [{"rate_card": "no card"}, {"usd_per_gpu_hour": 2.5}]
    answer = ask("POST", "/v1/compare", json={**COMPARED, "prices": prices})
    rows = {row["rate_card"]: row for row in answer.json()["rows"]}
    assert (answer.status_code, rows["no card"]["status"], rows[None]["status"]) == (200, 422, 200)
    assert [one["pointer"] for one in rows["no card"]["errors"]] == ["/prices/0/rate_card"]


@pytest.mark.parametrize(
    "recipe",
    [
        {**BATCH, "recompute": "full"},
        {**BATCH, "precision": "fp32"},
        {**BATCH, "method": {"name": "lora", "rank": 16}},
        {**BATCH, "attention": "eager"},
    ],
)
def test_a_diagnosis_tries_what_else_may_have_run(ask: Ask, recipe: Any) -> None:
    answer = ask("POST", "/v1/diagnose", json={**QUESTION, "recipe": recipe, "message": EXAMPLE})
    assert answer.status_code == 200, answer.text
    assert answer.json()["changes"] or answer.json()["assumptions"]
