"""Files of lists: the same rows as the pages, and no text in them that a spreadsheet would run."""

import csv
import io
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openpyxl import load_workbook
from openpyxl.utils.escape import unescape
from openpyxl.worksheet.worksheet import Worksheet

from service.api import answers
from service.api.computing.write_queue import MOST_COMPUTING
from service.catalogue import Catalogue
from service.features.catalogue.lists import LISTINGS, listed
from service.tabular.lists import Table, csv_of, table_of, workbook_of
from service.tabular.sheets import LONGEST_CELL, workbook
from tests.api.asking import KEYS, Ask
from tests.fixtures import asking

STARTS = ["=", "+", "-", "@", "\t", "\r"]


def _table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _sheet(file: bytes) -> Worksheet:
    book = load_workbook(io.BytesIO(file))
    (sheet,) = book.worksheets
    return sheet


def _cells(sheet: Worksheet) -> list[list[Any]]:
    return [[cell.value for cell in row] for row in sheet.iter_rows()]


def _items(answer: httpx.Response) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


@pytest.mark.parametrize("plural", KEYS)
def test_the_csv_twin_holds_every_row_and_column_of_the_list(ask: Ask, plural: str) -> None:
    answer = ask("GET", f"/v1/{plural}.csv")
    assert answer.headers["content-type"].startswith("text/csv; charset=utf-8")
    items = _items(ask("GET", f"/v1/{plural}?limit=1000"))
    rows = _table(answer.text)
    assert [row[KEYS[plural]] for row in rows] == [item[KEYS[plural]] for item in items]
    assert list(rows[0]) == list(items[0])
    for row, item in zip(rows, items, strict=True):
        assert {name: _read(text, item[name]) for name, text in row.items()} == item


def _read(text: str, like: object) -> object:
    """A cell as the value that the JSON twin holds in its place."""
    if like is None:
        return text or None
    if isinstance(like, bool):
        return {"true": True, "false": False}[text]
    if isinstance(like, int | float):
        return type(like)(text)
    if isinstance(like, list):
        return text.split(";") if text else []
    return text


@pytest.mark.parametrize("form", ["csv", "xlsx"])
def test_a_table_takes_filters_order_and_limit(ask: Ask, form: str) -> None:
    query = "vendor=AMD&sort=-memory_bytes&limit=2"
    answer = ask("GET", f"/v1/gpus.{form}?{query}")
    if form == "csv":
        slugs = [row["slug"] for row in _table(answer.text)]
        assert answer.text.count("\r\n") == answer.text.count("\n") == 3
    else:
        slugs = [row[0] for row in _cells(_sheet(answer.content))[1:]]
    assert len(slugs) == 2
    assert slugs == [item["slug"] for item in _items(ask("GET", f"/v1/gpus?{query}"))]
    (refusal,) = ask("GET", f"/v1/gpus.{form}?vender=AMD").json()["errors"]
    assert refusal["code"] == "unknown_parameter"


@pytest.mark.parametrize("plural", KEYS)
def test_the_workbook_holds_every_row_with_numbers_as_numbers(ask: Ask, plural: str) -> None:
    answer = ask("GET", f"/v1/{plural}.xlsx")
    assert answer.headers["content-type"] == "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    assert answer.headers["content-disposition"] == f'attachment; filename="{plural}.xlsx"'
    items = _items(ask("GET", f"/v1/{plural}?limit=1000"))
    head, *rows = _cells(_sheet(answer.content))
    assert head == list(items[0])
    assert len(rows) == len(items)
    for row, item in zip(rows, items, strict=True):
        assert row == [_as_cell(value) for value in item.values()]


def _as_cell(value: object) -> object:
    """What a typed cell holds for a value of the JSON twin."""
    if isinstance(value, list):
        return ";".join(value) or None
    return None if value == "" else value


def test_the_header_of_a_workbook_stays_in_sight_and_filters(ask: Ask) -> None:
    sheet = _sheet(ask("GET", "/v1/gpus.xlsx").content)
    assert sheet.freeze_panes == "A2"
    assert all(cell.font.bold for cell in sheet[1])
    assert not any(cell.font.bold for cell in sheet[2])
    assert sheet.auto_filter.ref == sheet.dimensions
    widths = {str(cell.value): sheet.column_dimensions[cell.coordinate.rstrip("1")].width for cell in sheet[1]}
    assert widths["name"] >= max(len(str(cell.value)) for cell in sheet["B"])
    assert 8 <= min(widths.values()) < max(widths.values()) <= 61


@pytest.mark.parametrize("path", ["/v1/prices.xlsx", "/v1/gpus.xlsx?sort=-as_of"])
def test_the_same_workbook_is_the_same_bytes_and_is_not_sent_again(ask: Ask, path: str) -> None:
    first, second = ask("GET", path), ask("GET", path)
    assert first.content == second.content
    again = ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("start", STARTS)
def test_no_text_of_a_csv_runs_as_a_formula(catalogue: Catalogue, start: str) -> None:
    (row,) = _table(csv_of(table_of(listed(LISTINGS["gpus"], _hostile(catalogue, f"{start}1+1")), ())))
    assert row["vendor"] == f"'{start}1+1"
    assert row["aliases"] == f"'{start}1+1;b"


@pytest.mark.parametrize(
    "text",
    [
        *(f"{start}1+1" for start in STARTS),
        "=HYPERLINK(1)", "{=1+1}", "https://example.org", "mailto:a@example.org", "internal:Sheet1!A1", "1234", "TRUE",
        "a\r\nb", "\x01\x1b", "_x0041_", "<&>\"'", " padded ", "größer 模型 🚀",
    ],
)  # fmt: skip
def test_every_text_of_a_workbook_stays_a_text(catalogue: Catalogue, text: str) -> None:
    file = workbook_of(table_of(listed(LISTINGS["gpus"], _hostile(catalogue, text)), ()))
    sheet = _sheet(file)
    cells = dict(zip([cell.value for cell in sheet[1]], sheet[2], strict=True))
    cell = cells["vendor"]
    assert cell.data_type == "s"
    assert cell.hyperlink is None
    assert text in {cell.value, unescape(str(cell.value))}  # control characters are escaped in the file
    assert cells["memory_bytes"].data_type == "n"


def _hostile(catalogue: Catalogue, text: str) -> Catalogue:
    gpu = replace(catalogue.gpus["h100-sxm5-80gb"], vendor=text, aliases=(text, "b"))
    return Catalogue.of(models=(), gpus=[gpu], clusters=(), prices=())


def test_a_workbook_holds_truths_zeros_and_gaps_as_what_they_are() -> None:
    _, row = _cells(_sheet(workbook(["a", "b", "c", "d"], [[True, 0, None, 2.5e-7]])))
    assert row == [True, 0, None, 2.5e-7]
    assert row[0] is True


def test_a_text_that_no_cell_can_hold_is_cut() -> None:
    _, (text,) = _cells(_sheet(workbook(["a"], [["x" * (LONGEST_CELL + 1)]])))
    assert text == "x" * LONGEST_CELL


def test_a_list_without_rows_is_a_header(ask: Ask) -> None:
    query = "vendor=AMD&architecture=Hopper"
    assert len(_cells(_sheet(ask("GET", f"/v1/gpus.xlsx?{query}").content))) == 1
    assert _table(ask("GET", f"/v1/gpus.csv?{query}").text) == []


def test_few_threads_compute_at_once(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    computing: list[int] = []
    most = 0

    def computed(_: Table) -> str:
        nonlocal most
        computing.append(1)
        most = max(most, len(computing))
        time.sleep(0.02)
        computing.pop()
        return ""

    media_type, _, words = answers.TABLE_FORMS["csv"]
    monkeypatch.setitem(answers.TABLE_FORMS, "csv", (media_type, computed, words))
    with asking(app) as together:
        sent = together([{"method": "GET", "url": "/v1/regions.csv?limit=3"}] * 12)
    assert {answer.status_code for answer in sent} == {200}
    assert most == MOST_COMPUTING
