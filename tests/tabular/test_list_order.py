"""Do the rows of a list stand as asked, and does a cursor lead behind the row it was given for, whatever happens?"""

from base64 import urlsafe_b64encode
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.features.catalogue.lists import LISTINGS, listed
from service.tabular.lists import Page, page_of, sortable
from tests.amounts import sample
from tests.api.asking import KEYS, Ask, items_of, paged_items


def _sortable(value: object) -> Any:
    return sortable(tuple(value) if isinstance(value, list) else value)


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
    assert sortable("nvidia") == sortable("NVIDIA")


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


def _page(catalogue: Catalogue, cursor: str | None) -> Page:
    query = [("sort", "-release_year"), ("limit", "3"), *([] if cursor is None else [("cursor", cursor)])]
    return page_of(listed(LISTINGS["gpus"], catalogue), query)


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
    assert "c4n4ry" not in answer.text


def test_a_forged_cursor_of_another_kind_of_value_is_an_answer(ask: Ask) -> None:

    for value in ('"text"', "true", "null", "-5", "1e300"):
        sealed = f'["release_year",{value},"k"]'.encode()
        answer = ask("GET", f"/v1/gpus?sort=release_year&cursor={urlsafe_b64encode(sealed).decode().rstrip('=')}")
        assert answer.status_code in {200, 422}


@pytest.mark.parametrize(
    ("query", "code", "fix"),
    [
        ("sort=memory_byte", "unknown_column", "did you mean memory_bytes or"),
        ("sort=-vender", "unknown_column", "did you mean vendor?"),
        ("sort=c4n4ryc4n4ry", "unknown_column", "use slug, name, vendor"),
        ("sort=", "unknown_column", "use slug, name, vendor"),
        ("sort=vendor,", "unknown_column", "use slug, name, vendor"),
        ("sort=--vendor", "unknown_column", "did you mean vendor?"),
        ("sort=vendor,-vendor", "repeated", "name each column once"),
        ("sort=vendor&sort=-vendor", "repeated", "name each column once"),
    ],
)
def test_a_wrong_order_is_refused_without_an_echo(ask: Ask, query: str, code: str, fix: str) -> None:
    answer = ask("GET", f"/v1/gpus?{query}")
    assert answer.status_code == 422
    problem = answer.json()["errors"][0]
    assert (problem["parameter"], problem["code"]) == ("sort", code)
    assert fix in problem["fix"]
    assert "c4n4ry" not in answer.text


def test_every_unknown_column_of_an_order_is_told(ask: Ask) -> None:
    problems = ask("GET", "/v1/gpus?sort=vender,nam,vendor").json()["errors"]
    assert [problem["fix"] for problem in problems] == ["did you mean vendor?", "did you mean name?"]
    assert len(ask("GET", "/v1/gpus?sort=" + ",".join(["x"] * 500)).json()["errors"]) <= 20
