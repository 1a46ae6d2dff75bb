"""Order, cursors and parts of lists, and files with the same rows in which no text runs as a formula."""

import csv
import io
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from random import Random
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openpyxl import load_workbook
from openpyxl.utils.escape import unescape
from openpyxl.worksheet.worksheet import Worksheet
from sqlalchemy import String, func, insert, type_coerce, update

from service.api import answers
from service.api.compute import MOST_COMPUTING
from service.catalogue import Catalogue
from service.features.catalogue.lists import LISTINGS, listed
from service.features.launch_checks import launch_checks
from service.features.launch_checks.launch_checks import listed_launch_checks
from service.features.measurements.measurements import COLUMNS, NEWEST_FIRST
from service.features.scenarios import scenarios
from service.features.sweeps import sweeps
from service.features.sweeps.sweeps import listed_sweeps
from service.store import Engine
from service.store.engine import RowPart, writing
from service.store.keys import UNRESTRICTED
from service.store.measurements import Measured, read_measurements_of
from service.store.tables import ESTIMATES, JOBS, LAUNCH_CHECKS, MEASUREMENTS, SWEEPS
from service.tabular import lists
from service.tabular.sheets import LONGEST_CELL, workbook
from tests.amounts import sample
from tests.api.asking import KEYS, Ask, items_of, paged_items
from tests.echoes import beyond_echo
from tests.fixtures import asking
from tests.store import holding
from tests.store.filled import filled


def _sortable(value: object) -> Any:
    return lists.sortable(tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("plural", KEYS)
@pytest.mark.parametrize("sign", ["", "-"])
def test_every_column_sorts_with_what_is_not_known_at_the_end(ask: Ask, plural: str, sign: str) -> None:
    whole = items_of(ask, f"/v1/{plural}?limit=1000")
    for column in sample(list(whole[0]), 40 if sign == "" else 8):
        items = items_of(ask, f"/v1/{plural}?limit=1000&sort={sign}{column}")
        assert len(items) == len(whole)
        values = [_sortable(item[column]) for item in items]
        known = [value for value in values if value is not None]
        assert values == known + [None] * (len(values) - len(known)), column
        assert known == sorted(known, reverse=bool(sign)), column
        for first, second in pairwise(items):
            if first[column] == second[column]:
                assert first[KEYS[plural]] < second[KEYS[plural]], column


def test_text_is_ordered_without_regard_to_capitals() -> None:
    assert lists.sortable("nvidia") == lists.sortable("NVIDIA")


def test_later_columns_decide_among_rows_that_agree(ask: Ask) -> None:
    items = items_of(ask, "/v1/gpus?sort=vendor,-memory_bytes,slug&limit=1000")
    assert items_of(ask, "/v1/gpus?sort=vendor&sort=-memory_bytes,slug&limit=1000") == items
    places = [(item["vendor"].casefold(), -item["memory_bytes"], item["slug"]) for item in items]
    assert places == sorted(places)


@pytest.mark.parametrize("sort", ["", "&sort=-usd_per_gpu_hour", "&sort=provider,-as_of", "&sort=note,-gpu"])
def test_pages_in_any_order_hold_every_row_once(ask: Ask, sort: str) -> None:
    whole = items_of(ask, f"/v1/prices?limit=1000{sort}")
    assert paged_items(ask, f"/v1/prices?limit=61{sort}") == whole


def test_a_cursor_works_with_the_filters_and_the_tables_too(ask: Ask) -> None:
    query = "vendor=NVIDIA&sort=-release_year"
    first = ask("GET", f"/v1/gpus?{query}&limit=3").json()
    rest = items_of(ask, f"/v1/gpus?{query}&cursor={first['next_cursor']}")
    assert first["items"] + rest == items_of(ask, f"/v1/gpus?{query}")
    table = ask("GET", f"/v1/gpus.csv?{query}&cursor={first['next_cursor']}").text
    assert [line.partition(",")[0] for line in table.splitlines()[1:]] == [item["slug"] for item in rest]


def _page(catalogue: Catalogue, cursor: str | None) -> lists.Page:
    query = [("sort", "-release_year"), ("limit", "3"), *([] if cursor is None else [("cursor", cursor)])]
    return lists.page_of(listed(LISTINGS["gpus"], catalogue), query)


def test_the_next_page_is_right_where_rows_came_and_went_in_between(catalogue: Catalogue) -> None:
    rows = sorted(catalogue.gpus.values(), key=lambda row: (-row.release_year, row.slug))
    first = _page(catalogue, None)
    assert [item["slug"] for item in first.items] == [row.slug for row in rows[:3]]
    last = rows[2]
    earlier = replace(rows[0], gpu=replace(rows[0].gpu, slug="00-new"), name="New", aliases=(), default_for=())
    later = replace(earlier, gpu=replace(rows[0].gpu, slug="zz-new"), name="Newer", release_year=1999)
    changed = [row for row in rows if row is not last and row is not rows[4]]
    held = Catalogue.of(models=(), gpus=[*changed, earlier, later], clusters=(), prices=())
    slugs: list[str] = []
    cursor = first.next_cursor
    while cursor:
        page = _page(held, cursor)
        slugs += [item["slug"] for item in page.items]
        cursor = page.next_cursor
    assert slugs == [row.slug for row in rows[3:] if row is not rows[4]] + ["zz-new"]


def test_a_cursor_of_another_order_is_refused(ask: Ask) -> None:
    cursor = ask("GET", "/v1/gpus?limit=1&sort=-release_year").json()["next_cursor"]
    for query in ("", "sort=release_year&", "sort=vendor&"):
        answer = ask("GET", f"/v1/gpus?{query}cursor={cursor}")
        assert answer.status_code == 422
        (problem,) = answer.json()["errors"]
        assert (problem["parameter"], problem["code"]) == ("cursor", "cursor_of_another_sort")
        assert "sort" in problem["fix"]
    assert items_of(ask, f"/v1/gpus?sort=-release_year&cursor={cursor}")


@pytest.mark.parametrize(
    "sealed",
    [
        '"c4n4ry"', "[]", "{}", "null", '["",["c4n4ry"]]', '["",null]', '["","a","b"]', '[""]', "[NaN,1]",
        '["", "spaced"]', "[" * 500, '["","\\ud800"]',
    ],
)  # fmt: skip
def test_a_forged_cursor_is_refused_without_an_echo(ask: Ask, sealed: str) -> None:

    answer = ask("GET", "/v1/gpus", params={"cursor": urlsafe_b64encode(sealed.encode()).decode().rstrip("=")})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["parameter"] == "cursor"
    assert problem["code"] in {"invalid", "cursor_of_another_sort"}
    assert "c4n4ry" not in beyond_echo(answer)


def test_a_forged_cursor_of_another_kind_of_value_is_an_answer(ask: Ask) -> None:

    for value in ('"text"', "true", "null", "-5", "1e300"):
        sealed = f'["release_year",{value},"k"]'.encode()
        answer = ask("GET", f"/v1/gpus?sort=release_year&cursor={urlsafe_b64encode(sealed).decode().rstrip('=')}")
        assert answer.status_code in {200, 422}


def test_every_unknown_column_of_an_order_is_told(ask: Ask) -> None:
    problems = ask("GET", "/v1/gpus?sort=vender,nam,vendor").json()["errors"]
    assert [problem["fix"] for problem in problems] == ["did you mean vendor?", "did you mean name?"]
    assert len(ask("GET", "/v1/gpus?sort=" + ",".join(["x"] * 500)).json()["errors"]) <= 20


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
    (row,) = _table(lists.csv_of(lists.table_of(listed(LISTINGS["gpus"], _hostile(catalogue, f"{start}1+1")), ())))
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
    file = lists.workbook_of(lists.table_of(listed(LISTINGS["gpus"], _hostile(catalogue, text)), ()))
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

    def computed(_: lists.Table) -> str:
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


ROWS = 1_000
START = datetime(2026, 11, 23, tzinfo=UTC)
OF_ONE_SECOND = 120
"""More than a page."""
LETTERS = "-_09AZaz"
"""Which a language's own order would mix."""


def row(number: int) -> dict[str, object]:
    random = Random(number)  # noqa: S311 - the same rows each time
    moment = START if number < OF_ONE_SECOND else START + timedelta(seconds=random.uniform(-300.0, 300.0))
    return {
        **holding.row_of(MEASUREMENTS, number),
        "id": f"{''.join(random.choices(LETTERS, k=6))}{number}",
        "measured_at": moment,
        "owner": random.choice(("a", "b")),
        "shape": {},
        "environment": {},
    }


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with filled(request, MEASUREMENTS, [row(number) for number in range(ROWS)]) as engine:
        yield engine


def reading(database: Engine, counted: list[int] | None = None) -> lists.Read:
    """Reads measurements as rows, and notes how many each time."""

    def read(part: RowPart | None) -> list[object]:
        found: list[Measured] = read_measurements_of(database, "a", part)
        if counted is not None:
            counted.append(len(found))
        return [*found]

    return read


def listed_measurements(database: Engine, sort: str | None, counted: list[int] | None = None) -> lists.Listed:
    return lists.listed_in_parts(COLUMNS, reading(database, counted), "measured_at", sort)


@pytest.fixture(scope="module")
def rows(database: Engine) -> tuple[object, ...]:
    """What the database holds."""
    return tuple(reading(database)(None))


def in_memory(rows: tuple[object, ...], sort: str | None) -> lists.Listed:
    return lists.Listed(COLUMNS, rows, sort=sort)


FILTERS: tuple[tuple[tuple[str, str], ...], ...] = (
    (), (("reason", ""),), (("gpu", "GPU Ü 4"), ("gpu", "gpu ü 7")), (("owner", "b"),),
)  # fmt: skip


@pytest.mark.parametrize(("filters", "sort", "limit"), [*product(FILTERS, (None, NEWEST_FIRST, "value"), (40, 300))])
def test_pages_are_those_of_a_list_in_memory(
    database: Engine, rows: tuple[object, ...], filters: tuple[tuple[str, str], ...], sort: str | None, limit: int
) -> None:
    held, expected = listed_measurements(database, sort), in_memory(rows, sort)
    cursor: tuple[tuple[str, str], ...] = ()
    for _ in range(5):
        asked = [*filters, ("limit", str(limit)), *cursor]
        shown = lists.page_of(held, asked)
        assert shown == lists.page_of(expected, asked)
        if shown.next_cursor is None:
            return
        cursor = (("cursor", shown.next_cursor),)


def test_every_row_stands_on_one_page(database: Engine) -> None:
    for sort in (None, NEWEST_FIRST):
        ids, cursor = [], None
        while True:
            page = lists.page_of(
                listed_measurements(database, sort), [("limit", "50"), *([("cursor", cursor)] if cursor else [])]
            )
            ids += _ids(page)
            if (cursor := page.next_cursor) is None:
                break
        assert sorted(ids) == sorted(one.id for one in read_measurements_of(database, "a", None))


def test_tables_are_those_of_a_list_in_memory(database: Engine, rows: tuple[object, ...]) -> None:
    for asked in ([], [("sort", "id"), ("limit", "5")], [("limit", "3")]):
        whole, shown = listed_measurements(database, NEWEST_FIRST), in_memory(rows, NEWEST_FIRST)
        assert lists.csv_of(lists.table_of(whole, asked)) == lists.csv_of(lists.table_of(shown, asked))


@pytest.mark.parametrize("sort", [None, NEWEST_FIRST])
def test_a_page_reads_little_more_than_it_shows(database: Engine, sort: str | None) -> None:
    counted: list[int] = []
    held = listed_measurements(database, sort, counted)
    first = lists.page_of(held, [("limit", "50")])
    lists.page_of(held, [("limit", "50"), ("cursor", str(first.next_cursor))])
    assert sum(counted) <= 4 * 51
    assert max(counted) <= 51


MOMENTS = ("x", "9999-12-31t23:59:59z", "2026-11-23t00:00:00.5z", "0001-01-01t00:00:00z", 5, None)
PART_KEYS = ("x", "\0", "ü", "\U0001d518", 5, True)


@pytest.mark.parametrize(("moment", "key"), [*product(MOMENTS, PART_KEYS)])
def test_a_cursor_that_nobody_gave_breaks_nothing(
    database: Engine, rows: tuple[object, ...], moment: object, key: object
) -> None:
    odd = SimpleNamespace(id=key, measured_at=moment)
    for sort in (
        (None, NEWEST_FIRST) if moment == MOMENTS[0] else (NEWEST_FIRST,)
    ):  # a moment stands in that order alone
        asked = [("limit", "5"), ("cursor", lists.read_order(sort, COLUMNS).cursor_behind(odd))]
        assert lists.page_of(listed_measurements(database, sort), asked) == lists.page_of(in_memory(rows, sort), asked)


@pytest.fixture(scope="module")
def jobs(database: Engine) -> Engine:
    """The database with launch checks and sweeps, every other of them made in the first moment of a second."""
    numbers = range(40)
    moments = [START + timedelta(seconds=number // 8, milliseconds=number % 2 * 250) for number in numbers]
    checks = [
        {**holding.row_of(LAUNCH_CHECKS, number), "probes": [], "verdict": None, "comparable": None}
        for number in numbers
    ]
    told = [{"status": "queued", "finished_at": None, "created_at": moment} for moment in moments]
    names: list[dict[str, object]] = [{"columns": [], "name": "same" if number % 3 else None} for number in numbers]
    with writing(database) as connection:
        connection.execute(insert(ESTIMATES), [holding.row_of(ESTIMATES, number) for number in numbers])
        connection.execute(insert(JOBS), [holding.row_of(JOBS, number) | told[number] for number in numbers])
        connection.execute(insert(LAUNCH_CHECKS), checks)
        rows = [holding.row_of(SWEEPS, number) | names[number] | {"created_at": moments[number]} for number in numbers]
        connection.execute(insert(SWEEPS), rows)
        if database.dialect.name == "sqlite":  # as its own clock writes them
            for table in (JOBS, SWEEPS):
                short = func.substr(type_coerce(table.c.created_at, String), 1, 23)
                connection.execute(update(table).values(created_at=type_coerce(short, String)))
    return database


LISTS = {"launch-checks": listed_launch_checks, "sweeps": listed_sweeps}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("sort", [(), (("sort", "-created_at"),), (("sort", "created_at"),)])
@pytest.mark.parametrize("limit", [1, 4, 7, 16])
def test_jobs_stand_on_one_page_each(jobs: Engine, name: str, sort: tuple[tuple[str, str], ...], limit: int) -> None:
    shown: list[lists.Record] = []
    cursor = None
    for _ in range(41):
        asked = [*sort, ("limit", str(limit)), *([("cursor", cursor)] if cursor else [])]
        page = lists.page_of(LISTS[name](jobs, UNRESTRICTED), asked)
        shown += page.items
        if (cursor := page.next_cursor) is None:
            break
    whole = lists.page_of(LISTS[name](jobs, UNRESTRICTED), [*sort, ("limit", "1000")])
    assert len(shown) == 40
    assert shown == [*whole.items]


def test_every_stored_list_is_paged_by_its_id() -> None:
    for columns in (COLUMNS, sweeps.COLUMNS, launch_checks.COLUMNS, scenarios.COLUMNS):
        assert columns[0].name == "id"


def _ids(page: lists.Page) -> list[str]:
    return [str(item["id"]) for item in page.items]
