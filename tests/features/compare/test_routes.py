"""POST and GET of /v1/compare: the same rows as JSON, as CSV and as a workbook, none of which a spreadsheet runs."""

import csv
import io
from typing import Any

import pytest
from openpyxl import load_workbook

from service.api.openapi import XLSX, request_bodies
from tests.api.asking import Ask
from tests.api.test_contract import check
from tests.echoes import beyond_echo

CANARY = "c4n4ry"
COMPARISONS = request_bodies("createComparison")
JOB: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 512, "training_tokens": 2e11},
    "layout": {"tensor": 2},
}
FP8 = {"name": "fp8", "cluster": {"gpu": "a100-sxm4-80gb", "gpus": 8}, "recipe": {"precision": "fp8-tensorwise"}}
BODY: dict[str, Any] = {
    "question": JOB,
    "clusters": ["dgx-h100", {"gpu": "a100-sxm4-80gb", "gpus": 64}, FP8],
    "prices": [{"usd_per_gpu_hour": 2.5}, {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"}],
}
FLAT = [
    ("model", "llama-3.1-8b"), ("sequence_length", "8192"), ("gbs", "512"), ("training_tokens", "2e11"), ("tp", "2"),
    ("gpu", "h100-sxm5-80gb"), ("gpu", "a100-sxm4-80gb"), ("gpus", "8"), ("gpus", "64"),
    ("usd_per_gpu_hour", "2.5"), ("usd_per_gpu_hour", "3"),
]  # fmt: skip


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def sheet(file: bytes) -> list[dict[str, Any]]:
    (found,) = load_workbook(io.BytesIO(file)).worksheets
    header, *rows = found.iter_rows(values_only=True)
    return [dict(zip(map(str, header), row, strict=True)) for row in rows]


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_example_is_answered_in_full(ask: Ask, document: dict[str, Any], name: str) -> None:
    answer = ask("POST", "/v1/compare", json=COMPARISONS[name]["value"])
    check(document, document["paths"]["/v1/compare"]["post"]["responses"]["200"], answer.json())
    assert [row["reason"] for row in answer.json()["rows"] if row["status"] != 200] == []
    assert len(answer.json()["rows"]) > 1


def test_refused_rows_are_as_the_contract_says(ask: Ask, document: dict[str, Any]) -> None:
    answer = ask("POST", "/v1/compare", json=BODY)
    check(document, document["paths"]["/v1/compare"]["post"]["responses"]["200"], answer.json())
    assert [row["status"] for row in answer.json()["rows"]] == [200] * 4 + [422] * 2


def test_every_form_holds_the_same_rows(ask: Ask) -> None:
    rows = ask("POST", "/v1/compare", json=BODY).json()["rows"]
    text, file = ask("POST", "/v1/compare.csv", json=BODY), ask("POST", "/v1/compare.xlsx", json=BODY)
    assert text.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert "compare.xlsx" in file.headers["content-disposition"]
    assert len(table(text.text)) == len(sheet(file.content)) == len(rows) == 6
    for row, line, cells in zip(rows, table(text.text), sheet(file.content), strict=True):
        assert list(line) == list(cells)
        for name, value in row.items():
            if isinstance(value, dict):
                ends = {end: value[key] for end, key in (("", "value"), (".low", "low"), (".high", "high"))}
                assert {end: float(line[name + end]) for end in ends} == ends
                assert {end: cells[name + end] for end in ends} == pytest.approx(ends, rel=1e-15)
            elif isinstance(value, (int, float)):
                assert float(line[name]) == cells[name] == value
            elif isinstance(value, str):
                assert line[name] == cells[name] == value
        assert line["cost_usd.low"] or row["status"] == 422


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("text/csv", "text/csv; charset=utf-8; header=present"),
        (XLSX, XLSX),
        ("text/csv;q=0.5, application/json", "application/json"),
        ("*/*", "application/json"),
        ("text/html", "application/json"),
        (f"application/json;q=0.1, {XLSX};q=0.9, text/csv;q=x", "text/csv; charset=utf-8; header=present"),
    ],
)
def test_the_caller_chooses_the_form(ask: Ask, accept: str, media_type: str) -> None:
    answer = ask("POST", "/v1/compare", json=BODY, headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
    assert ask("POST", "/v1/compare.csv", json=BODY, headers={"accept": accept}).text.startswith("cluster,")


def test_the_flat_form_is_the_same_comparison(ask: Ask) -> None:
    clusters = [{"gpu": gpu, "gpus": gpus} for gpu in ("h100-sxm5-80gb", "a100-sxm4-80gb") for gpus in (8, 64)]
    prices = [{"usd_per_gpu_hour": rate} for rate in (2.5, 3)]
    body = {"question": JOB, "clusters": clusters, "prices": prices, "sort_by": "days", "columns": ["days", "fits"]}
    manner = [("sort_by", "days"), ("columns", "days;fits")]
    flat = ask("GET", "/v1/compare", params=[*FLAT, *manner])
    assert flat.content == ask("POST", "/v1/compare", json=body).content
    assert len(flat.json()["rows"]) == 8
    for suffix in (".csv", ".xlsx"):
        there = ask("POST", f"/v1/compare{suffix}", json=body)
        assert ask("GET", f"/v1/compare{suffix}", params=[*FLAT, *manner]).content == there.content


def test_too_many_rows_are_refused_with_their_parameter(ask: Ask) -> None:
    answer = ask("GET", "/v1/compare", params=[*FLAT, *(("gpus", str(gpus)) for gpus in range(1, 1001))])
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["parameter"], error["code"]) == (422, "gpus", "too_many_rows")


def test_what_is_wrong_is_refused_with_its_pointer_and_without_an_echo(ask: Ask) -> None:
    body = {
        "question": {**JOB, CANARY: 1},
        "clusters": [{"gpu": CANARY, "gpus": 8}, {"cluster": "dgx-h100", CANARY: CANARY}],
        "prices": [{CANARY: 1}],
        "columns": [CANARY],
    }
    answer = ask("POST", "/v1/compare", json=body)
    assert answer.status_code == 422
    assert CANARY not in beyond_echo(answer)
    assert {error["pointer"] for error in answer.json()["errors"]} >= {"/clusters/1/c4n4ry", "/prices/0/c4n4ry"}
    infinite = '{"question": {"model": "a"}, "clusters": [{"gpu": "h100", "gpus": 1e400}]}'
    answer = ask("POST", "/v1/compare", content=infinite, headers={"content-type": "application/json"})
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/clusters/gpus"]


def test_no_text_of_a_caller_runs_in_a_spreadsheet(ask: Ask) -> None:
    name = '=HYPERLINK("http://a";1)'
    cluster = {"name": name, "cluster": {"gpu": "h100", "gpus": 8}}
    body = {
        "question": JOB,
        "clusters": [cluster],
        "prices": [{"provider": "@SUM(1)", "region": "-1", "price_model": "spot"}],
    }
    (line,) = table(ask("POST", "/v1/compare.csv", json=body).text)
    assert (line["cluster"], line["provider"], line["region"]) == (f"'{name}", "'@SUM(1)", "'-1")
    file = ask("POST", "/v1/compare.xlsx", json=body).content
    cell = load_workbook(io.BytesIO(file)).worksheets[0]["A2"]
    assert (cell.value, cell.data_type) == (name, "s")


def test_an_earlier_catalogue_answers_too(ask: Ask) -> None:
    first = ask("POST", "/v1/compare", json=BODY)
    again = ask("POST", f"/v1/compare?rev={first.json()['versions']['catalogue']}", json=BODY)
    assert again.content == first.content
    assert ask("POST", "/v1/compare?rev=000000000000", json=BODY).status_code == 404


def test_a_flat_comparison_that_the_caller_holds_is_not_sent_again(ask: Ask) -> None:
    etag = ask("GET", "/v1/compare.csv", params=FLAT).headers["etag"]
    assert ask("GET", "/v1/compare.csv", params=FLAT, headers={"If-None-Match": etag}).status_code == 304
