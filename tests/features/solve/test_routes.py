"""POST /v1/solve and /v1/sensitivity over HTTP: every example answered as the contract says, in every form."""

import csv
import io
from typing import Any

import pytest
from openpyxl import load_workbook

from service.api.openapi import XLSX, request_bodies
from tests.api.asking import QUESTION, Ask
from tests.api.test_contract import check
from tests.echoes import beyond_echo, unquoted

SOLUTIONS, VARIATIONS = request_bodies("createSolution"), request_bodies("createSensitivity")
CANARY = "c4n4ry"
VARIED: dict[str, Any] = {
    "question": QUESTION,
    "vary": {"recipe.micro_batch": [1, 2, 5], "recipe.recompute": ["full", {"granularity": "full", "layers": 2}]},
}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_every_open_field_of_the_examples_is_answered(ask: Ask, document: dict[str, Any], name: str) -> None:
    answer = ask("POST", "/v1/solve", json=SOLUTIONS[name]["value"])
    assert answer.status_code == 200, answer.text
    check(document, document["paths"]["/v1/solve"]["post"]["responses"]["200"], answer.json())
    assert answer.json()["value"] is not None


def test_no_value_is_as_the_contract_says_too(ask: Ask, document: dict[str, Any]) -> None:
    body = {"unknown": "recipe.micro_batch", "question": {**QUESTION, "model": "llama-3.1-405b"}}
    answer = ask("POST", "/v1/solve", json=body)
    check(document, document["paths"]["/v1/solve"]["post"]["responses"]["200"], answer.json())
    assert (answer.status_code, answer.json()["value"]) == (200, None)
    assert answer.json()["next"]["why_not"]["missing_bytes"] > 0


@pytest.mark.parametrize("name", VARIATIONS)
def test_every_table_of_the_examples_is_answered(ask: Ask, document: dict[str, Any], name: str) -> None:
    answer = ask("POST", "/v1/sensitivity", json=VARIATIONS[name]["value"])
    assert answer.status_code == 200, answer.text
    check(document, document["paths"]["/v1/sensitivity"]["post"]["responses"]["200"], answer.json())
    assert [row["reason"] for row in answer.json()["rows"] if row["status"] != 200] == []


def test_every_form_of_a_table_holds_the_same_rows(ask: Ask) -> None:
    rows = ask("POST", "/v1/sensitivity", json=VARIED).json()["rows"]
    assert [row["status"] for row in rows] == [200, 200, 200, 422, 200, 200]
    text, file = ask("POST", "/v1/sensitivity.csv", json=VARIED), ask("POST", "/v1/sensitivity.xlsx", json=VARIED)
    accepted = {
        form: ask("POST", "/v1/sensitivity", json=VARIED, headers={"accept": form}) for form in ("text/csv", XLSX)
    }
    assert (accepted["text/csv"].content, accepted[XLSX].content) == (text.content, file.content)
    lines = list(csv.DictReader(io.StringIO(text.text, newline="")))
    (sheet,) = load_workbook(io.BytesIO(file.content)).worksheets
    header, *cells = sheet.iter_rows(values_only=True)
    assert list(lines[0]) == list(header)
    assert len(lines) == len(cells) == len(rows)
    for row, line, values in zip(rows, lines, cells, strict=True):
        typed = dict(zip(map(str, header), values, strict=True))
        assert line["id"] == (row["id"] or "")
        if row["status"] == 200:
            assert float(line["days"]) == row["days"]["value"] == pytest.approx(typed["days"], rel=1e-15)


def test_what_is_wrong_has_its_pointer_and_no_echo(ask: Ask) -> None:
    solve = {"unknown": CANARY, "question": QUESTION, "limits": {CANARY: 1, "days": CANARY}, CANARY: CANARY}
    answer = ask("POST", "/v1/solve", json=solve)
    assert (answer.status_code, CANARY in beyond_echo(answer)) == (422, False)
    assert {error["pointer"] for error in answer.json()["errors"]} == {
        "/c4n4ry",
        "/unknown",
        "/limits/c4n4ry",
        "/limits/days",
    }
    table = {"question": QUESTION, "vary": {CANARY: [1], "layout.tensor": CANARY}, "metrics": [CANARY], CANARY: 1}
    answer = ask("POST", "/v1/sensitivity", json=table)
    assert (answer.status_code, CANARY in beyond_echo(answer)) == (422, False)
    row = ask("POST", "/v1/sensitivity", json={"question": QUESTION, "vary": {"model": [CANARY]}}).json()["rows"][1]
    assert row["status"] == 422
    assert CANARY not in unquoted(row["reason"])


def test_an_earlier_catalogue_answers_too(ask: Ask) -> None:
    body = SOLUTIONS["largest-micro-batch"]["value"]
    first = ask("POST", "/v1/solve", json=body)
    assert ask("POST", f"/v1/solve?rev={first.json()['versions']['catalogue']}", json=body).content == first.content
    assert ask("POST", "/v1/solve?rev=000000000000", json=body).status_code == 404
