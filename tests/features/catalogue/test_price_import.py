"""A team's prices are imported from a spreadsheet, all or none, and exported unchanged."""

from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI
from openapi_schema_validator import OAS31Validator

from service.api.limits.http_limits import MAXIMUM_BODY_BYTES
from service.features.catalogue.price_import import (
    MOST_FINDINGS,
    ImportDraft,
    ImportOptions,
    draft_import,
    write_import,
)
from service.store.history import History, load_catalogue
from service.store.keys import Caller
from tests.api.asking import QUESTION, Ask, AskTogether
from tests.echoes import beyond_echo

CSV = {"Content-Type": "text/csv"}
HEADER = "provider,instance_type,gpu,region,price_model,usd_per_gpu_hour,as_of\r\n"
CANARY = "c4n4ry"


@pytest.fixture
def provider() -> str:
    return f"own {uuid4().hex}"


def _import(own: Ask, text: str | bytes, query: str = "") -> httpx.Response:
    content = text if isinstance(text, bytes) else text.encode()
    return own("POST", f"/v1/prices/import{query}", content=content, headers=CSV)


def _counts(answer: httpx.Response) -> tuple[int, int, int, int]:
    report = answer.json()
    assert answer.status_code == 200, answer.text
    assert report["rows"] == sum(report[name] for name in ("created", "updated", "unchanged", "failed"))
    return report["created"], report["updated"], report["unchanged"], report["failed"]


def _rows(own: Ask, provider: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = own("GET", "/v1/prices", params={"provider": provider, "limit": 1000}).json()["items"]
    return rows


def _table(provider: str, *prices: object) -> str:
    rows = "".join(f"{provider},box.{i},h100,here,spot,{price},2026-11\r\n" for i, price in enumerate(prices))
    return HEADER + rows


def _revisions(own: Ask) -> int:
    newest: int = own("GET", "/v1/catalogue/revisions?limit=1").json()["items"][0]["number"]
    return newest


def test_rows_become_own_prices_in_one_change(own: Ask, provider: str) -> None:
    before = _revisions(own)
    answer = _import(own, _table(provider, 2.5, 1e-2, 3))
    assert _counts(answer) == (3, 0, 0, 0)
    assert answer.json()["is_written"] is True
    assert _revisions(own) == before + 1
    rows = _rows(own, provider)
    assert [row["usd_per_gpu_hour"] for row in rows] == [2.5, 0.01, 3]
    assert {(row["owner"], row["gpu"], row["verified"], row["revision"]) for row in rows} == {
        ("team", "h100-sxm5-80gb", "no", 1)
    }
    price = {"provider": provider, "region": "here", "price_model": "spot", "instance_type": "box.0"}
    asked = own("POST", "/v1/estimates", json={**QUESTION, "price": price}).json()
    assert asked["versions"]["catalogue"] == answer.json()["catalogue"]
    assert asked["resolved"]["price"]["usd_per_gpu_hour"] == 2.5


def test_the_same_table_again_changes_nothing_and_another_updates(own: Ask, provider: str) -> None:
    _import(own, _table(provider, 2.5, 3))
    before = _revisions(own)
    again = _import(own, _table(provider, 2.5, 3))
    assert _counts(again) == (0, 0, 2, 0)
    assert again.json()["is_written"] is False
    assert _revisions(own) == before
    assert _counts(_import(own, _table(provider, 2.5, 4, 5))) == (1, 1, 1, 0)
    assert [(row["usd_per_gpu_hour"], row["revision"]) for row in _rows(own, provider)] == [(2.5, 1), (4, 2), (5, 1)]


def test_what_the_list_gives_is_imported_back_unchanged(own: Ask, provider: str) -> None:
    hostile = '"=1+1, ""x""\r\n;y"'
    table = f"provider,gpu,usd_per_gpu_hour,note,source\r\n{provider},h100,{1 / 3!r},{hostile},'@a\r\n"
    assert _counts(_import(own, table)) == (1, 0, 0, 0)
    listed = own("GET", "/v1/prices.csv", params={"provider": provider}).text
    before = own("GET", "/v1/prices.csv?owner=team").text
    for text in (listed, before, "\ufeff" + before):
        created, updated, unchanged, failed = _counts(_import(own, text))
        assert (created, updated, failed) == (0, 0, 0)
        assert unchanged > 0
    assert own("GET", "/v1/prices.csv?owner=team").text == before
    (row,) = _rows(own, provider)
    assert (row["usd_per_gpu_hour"], row["note"], row["source"]) == (1 / 3, '=1+1, "x"\r\n;y', "@a")


def test_an_export_that_was_edited_takes_the_place_of_what_it_was_made_of_and_of_nothing_newer(
    own: Ask, provider: str
) -> None:
    _import(own, _table(provider, 2.5))
    exported = own("GET", "/v1/prices.csv", params={"provider": provider}).text
    edited = exported.replace("2.5,2.5", "2.75,2.5")
    assert edited != exported
    assert _counts(_import(own, edited)) == (0, 1, 0, 0)
    assert _counts(_import(own, edited)) == (0, 0, 1, 0)
    (error,) = _import(own, exported).json()["errors"]
    assert (error["row"], error["column"], error["code"]) == (2, "revision", "stale")


def test_one_wrong_row_and_nothing_is_imported(own: Ask, provider: str) -> None:
    table = _table(provider, 2.5, CANARY, -1, 3) + f"{provider},box,no-such-{CANARY},here,spot,1,2026-11\r\nshort\r\n"
    before = _revisions(own)
    answer = _import(own, table)
    assert answer.status_code == 422
    problem = answer.json()
    told = [(error["row"], error["column"], error["code"]) for error in problem["errors"]]
    assert told == [
        (3, "usd_per_gpu_hour", "not_a_number"),
        (4, "usd_per_gpu_hour", "out_of_range"),
        (6, "gpu", "unknown_gpu"),
        (7, "", "wrong_width"),
    ]
    assert all(error["message"] and error["fix"] for error in problem["errors"])
    assert problem["report"]["findings"] == problem["errors"]
    assert (problem["report"]["created"], problem["report"]["failed"]) == (2, 4)
    assert problem["report"]["is_written"] is False
    assert CANARY not in beyond_echo(answer)
    assert _rows(own, provider) == []
    assert _revisions(own) == before


def test_wrong_rows_may_be_skipped(own: Ask, provider: str) -> None:
    answer = _import(own, _table(provider, 2.5, "x", 3), "?on_error=skip")
    assert _counts(answer) == (2, 0, 0, 1)
    assert [finding["row"] for finding in answer.json()["findings"]] == [3]
    assert len(_rows(own, provider)) == 2
    assert _import(own, _table(provider, "x"), "?on_error=skip").json()["is_written"] is False


def test_a_table_that_writes_nothing_keeps_nobody_out(
    own: Ask, own_app: FastAPI, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _import(own, _table(provider, 2.5))

    def refuse(*_: object) -> None:
        raise AssertionError("the database was locked")

    monkeypatch.setattr(own_app.state.history, "change", refuse)
    assert _counts(_import(own, _table(provider, 3), "?dry_run=true")) == (0, 1, 0, 0)
    assert _counts(_import(own, _table(provider, 2.5))) == (0, 0, 1, 0)
    assert _import(own, _table(provider, 3, "x")).status_code == 422


def test_of_equal_imports_at_once_one_writes(own: Ask, own_together: AskTogether, provider: str) -> None:
    before, table = _revisions(own), _table(provider, 2.5, 3)
    answers = own_together(
        [{"method": "POST", "url": "/v1/prices/import", "content": table.encode(), "headers": CSV}] * 8
    )
    assert sorted(_counts(answer) for answer in answers) == [(0, 0, 2, 0)] * 7 + [(2, 0, 0, 0)]
    assert [answer.json()["is_written"] for answer in answers].count(True) == 1
    assert len({answer.json()["catalogue"] for answer in answers}) == 1
    assert _revisions(own) == before + 1


def test_a_process_that_comes_second_names_the_catalogue_of_the_first(
    own: Ask, own_app: FastAPI, provider: str
) -> None:
    second = History(own_app.state.engine, load_catalogue(own_app.state.engine))
    second.refresh()
    options, table, before = ImportOptions(caller=Caller(owner="team")), _table(provider, 2.5), second.snapshot
    draft = draft_import(table.encode(), options, second.view("team"))
    assert isinstance(draft, ImportDraft)
    first = _import(own, table).json()
    report = write_import(second, before, draft, options)
    assert (report.is_written, report.unchanged, report.catalogue) == (False, 1, first["catalogue"])


def test_a_long_export_is_imported_back(own: Ask, provider: str) -> None:
    rows = "".join(f"{provider},{i},h100,1,{'x' * 3_000}\r\n" for i in range(400))
    assert _counts(_import(own, f"provider,instance_type,gpu,usd_per_gpu_hour,note\r\n{rows}")) == (400, 0, 0, 0)
    exported = own("GET", "/v1/prices.csv", params={"provider": provider}).content
    assert len(exported) > MAXIMUM_BODY_BYTES
    assert _counts(_import(own, exported)) == (0, 0, 400, 0)


def test_a_trial_only_tells(own: Ask, provider: str) -> None:
    before = _revisions(own)
    answer = _import(own, _table(provider, 2.5, "x"), "?dry_run=true")
    assert _counts(answer) == (1, 0, 0, 1)
    assert answer.json()["is_written"] is False
    assert _rows(own, provider) == []
    assert _revisions(own) == before


def test_decimal_commas_are_taken_where_they_are_announced(own: Ask, provider: str) -> None:
    table = f"provider;gpu;usd_per_gpu_hour\r\n{provider};h100;2,5\r\n"
    (error,) = _import(own, table).json()["errors"]
    assert error["code"] == "decimal_comma"
    assert "dec=," in error["fix"]
    assert _counts(_import(own, table, "?dec=,")) == (1, 0, 0, 0)
    assert [row["usd_per_gpu_hour"] for row in _rows(own, provider)] == [2.5]
    (error,) = _import(own, table.replace("2,5", "2.5"), "?dec=,").json()["errors"]
    assert error["code"] == "decimal_point"


@pytest.mark.parametrize(
    ("row", "column", "code"),
    [
        ("id,{p},h100,1,2026", "id", "not_settable"),
        (",{p},h100,1,2026-13", "as_of", None),
        (",{p},h100,1e300,2026", "usd_per_gpu_hour", "out_of_range"),
        (",{p},h100,NaN,2026", "usd_per_gpu_hour", "not_a_number"),
        (",{p},h100,,2026", "usd_per_gpu_hour", "required"),
        (",,h100,1,2026", "provider", "required"),
        (",{long},h100,1,2026", "provider", "wrong_length"),
    ],
)
def test_a_wrong_cell_is_told_by_its_column(own: Ask, provider: str, row: str, column: str, code: str | None) -> None:
    table = "id,provider,gpu,usd_per_gpu_hour,as_of\r\n" + row.format(p=provider, long="x" * 300)
    answer = _import(own, table)
    assert answer.status_code == 422
    error = answer.json()["errors"][0]
    assert (error["row"], error["column"]) == (2, column)
    assert code in {None, error["code"]}


def test_a_price_stands_once_in_a_table_and_no_shipped_one_is_overwritten(own: Ask, provider: str) -> None:
    (error,) = _import(own, _table(provider, 1) + _table(provider, 2).removeprefix(HEADER)).json()["errors"]
    assert (error["row"], error["code"]) == (3, "repeated")
    shipped = own("GET", "/v1/prices.csv?owner=catalogue&limit=1").text
    (error,) = _import(own, shipped).json()["errors"]
    assert (error["row"], error["code"]) == (2, "shipped")


def test_many_wrong_rows_are_counted_and_the_first_ones_told(own: Ask) -> None:
    count = MOST_FINDINGS + 5
    answer = _import(own, "provider,gpu,usd_per_gpu_hour\n" + "a,h100,x\n" * count)
    assert answer.status_code == 422
    problem = answer.json()
    assert len(problem["errors"]) == 20
    report = problem["report"]
    assert (report["failed"], len(report["findings"]), report["findings_left_off"]) == (count, MOST_FINDINGS, 5)


@pytest.mark.parametrize(
    ("query", "parameter"), [("?dec=;", "dec"), ("?on_error=ignore", "on_error"), ("?dry_run=1&dry_run=1", "dry_run")]
)
def test_a_wrong_manner_is_refused(own: Ask, query: str, parameter: str) -> None:
    answer = _import(own, _table("a", 1), query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == parameter


@pytest.mark.parametrize("kind", ["text/csv", "text/csv; charset=utf-8", 'TEXT/CSV; charset="UTF-8"; header=present'])
def test_csv_in_utf_8_is_taken(own: Ask, provider: str, kind: str) -> None:
    answer = own("POST", "/v1/prices/import", content=_table(provider, 1), headers={"Content-Type": kind})
    assert _counts(answer) == (1, 0, 0, 0)


@pytest.mark.parametrize("kind", ["application/json", "text/csv; charset=latin-1", "text/plain", ""])
def test_nothing_else_is_taken(own: Ask, kind: str) -> None:
    answer = own("POST", "/v1/prices/import", content=_table("a", 1), headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert "text/csv" in answer.json()["detail"]


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\xff\xfe", b'provider\n"', b"c4n4ry,gpu\n1,2", b"\0" * 99, b"," * 9999, b"sep=;\n", b"c4n4ry" * 30_000,
        b"provider,gpu,usd_per_gpu_hour\r" + b"c4n4ry" * 30_000 + b",h100,2\r",
    ],
)  # fmt: skip
def test_a_body_that_is_no_table_is_refused(own: Ask, text: bytes) -> None:
    answer = _import(own, text)
    assert answer.status_code == 422
    assert CANARY not in beyond_echo(answer)
    assert len(answer.content) <= 16 * 1024


def test_line_ends_of_old_spreadsheets_are_taken(own: Ask, provider: str) -> None:
    assert _counts(_import(own, f"provider,gpu,usd_per_gpu_hour\r{provider},h100,2\r")) == (1, 0, 0, 0)
    assert [row["usd_per_gpu_hour"] for row in _rows(own, provider)] == [2]


def test_reports_are_as_the_contract_says(document: dict[str, Any], own: Ask, provider: str) -> None:
    operation = document["paths"]["/v1/prices/import"]["post"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    done = _import(own, _table(provider, 1, "x"), "?on_error=skip").json()
    OAS31Validator({**schema, "components": document["components"]}).validate(done)
    problem = _import(own, _table(provider, 1, "x")).json()
    schema = document["components"]["responses"]["Problem"]["content"]["application/problem+json"]["schema"]
    OAS31Validator({**schema, "components": document["components"]}).validate(problem)
    (example,) = operation["requestBody"]["content"]["text/csv"]["examples"].values()
    assert _counts(_import(own, example["value"]))[3] == 0
