"""A page of the audit log equals that of a list in memory, and reads no more rows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from sqlalchemy import event, insert

from service.errors import Refused
from service.features.accounts import audit
from service.features.accounts.audit import COLUMNS, NEWEST_FIRST, listed_audit
from service.store import Engine
from service.store.engine import writing
from service.store.requests import AuditPart, StoredEntry, read_audit
from service.store.tables import AUDIT_LOG
from service.tabular.lists import Listed, ListQuery, Page, csv_of, page_of, read_order, table_of
from tests.store.filled import filled

ENTRIES = 1_300
START = datetime(2026, 11, 23, tzinfo=UTC)
OWNERS = ("Straße", "straße", "team", "K", "")
OPERATIONS = ("createKey", "createScenario", "deleteScenario")
OBJECTS = ("tck_A", "tck_a", "", None, "scn_1")


def row(number: int) -> dict[str, object]:
    return {
        "number": number,
        "at": START + timedelta(seconds=number % 400),
        "caller": None if number % 7 == 0 else f"tck_{number % 5}",
        "owner": OWNERS[number % len(OWNERS)],
        "operation": OPERATIONS[number % len(OPERATIONS)],
        "object": OBJECTS[number % len(OBJECTS)],
        "outcome": "done" if number % 11 else "forbidden",
        "request_id": f"{number:032x}",
    }


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def log(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with filled(request, AUDIT_LOG, [row(number) for number in range(1, ENTRIES + 1)]) as engine:
        yield engine


@pytest.fixture(scope="module")
def in_memory(log: Engine) -> Listed:
    rows = audit._entries(log, audit_query(), AuditPart(most=ENTRIES))
    return Listed(COLUMNS, tuple(rows), sort=NEWEST_FIRST)


def audit_query() -> ListQuery:
    return ListQuery((), None, read_order(None, COLUMNS), None)


FILTERS = (
    (), (("owner", "STRASSE"),), (("owner", "k"), ("outcome", "done")), (("object", ""),),
    (("object", "TCK_A"), ("object", "")), (("operation", "CREATEkey"), ("outcome", "forbidden")), (("caller", ""),),
    (("number", "17"), ("number", "1200")), (("request_id", f"{9:032X}"),), (("object", "nobody"),),
)  # fmt: skip
SORTS = (None, "number", "-number,at", "owner,-at", "-outcome")


ASKED = [*product(FILTERS, SORTS[:3]), *product(FILTERS[1:3], SORTS[3:]), ((), SORTS[3])]
"""Each filter in the orders of numbers; and in those for which every entry is read, some of the filters."""


@pytest.mark.parametrize(("filters", "sort"), ASKED)
def test_pages_are_those_of_a_list_in_memory(
    log: Engine, in_memory: Listed, filters: tuple[tuple[str, str], ...], sort: str | None
) -> None:
    asked = [*filters, *([] if sort is None else [("sort", sort)]), ("limit", "300")]
    cursors: list[tuple[str, str]] = []
    for _ in range(4):
        shown, expected = (page_of(held, [*asked, *cursors]) for held in (listed_audit(log), in_memory))
        assert shown == expected
        if shown.next_cursor is None:
            return
        cursors = [("cursor", shown.next_cursor)]


def test_tables_are_those_of_a_list_in_memory(log: Engine, in_memory: Listed) -> None:
    for asked in ([], [("owner", "team")], [("sort", "at"), ("limit", "5")], [("limit", "3")]):
        assert csv_of(table_of(listed_audit(log), asked)) == csv_of(table_of(in_memory, asked))


def test_a_page_reads_no_more_than_it_shows(log: Engine) -> None:
    read: list[int] = []

    def counted(engine: Engine, part: AuditPart) -> list[StoredEntry]:
        entries = read_audit(engine, part)
        read.append(len(entries))
        return entries

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "read_audit", counted)
        first = page_of(listed_audit(log), [("limit", "50")])
        rest = page_of(listed_audit(log), [("limit", "50"), ("cursor", str(first.next_cursor))])
        page_of(listed_audit(log), [("limit", "50"), ("operation", "createKey")])
    assert read == [51, 51, 51]
    assert numbers(first) + numbers(rest) == [*range(ENTRIES, ENTRIES - 100, -1)]


def test_what_comes_and_goes_between_two_pages_moves_nothing(log: Engine) -> None:
    first = page_of(listed_audit(log), [("limit", "10")])
    with writing(log) as connection:
        connection.execute(insert(AUDIT_LOG), [row(ENTRIES + 1)])
    again, rest = (
        page_of(listed_audit(log), [("limit", "10"), *cursor]) for cursor in ([], [("cursor", str(first.next_cursor))])
    )
    with writing(log) as connection:
        connection.execute(AUDIT_LOG.delete().where(AUDIT_LOG.c.number > ENTRIES))
    assert numbers(again)[0] == ENTRIES + 1
    assert numbers(rest) == [*range(ENTRIES - 10, ENTRIES - 20, -1)]


@pytest.mark.parametrize("place", [2**40, -(2**40), 1.5, "x", True])
def test_a_cursor_that_nobody_gave_breaks_nothing(log: Engine, in_memory: Listed, place: float | str) -> None:
    cursor = read_order(NEWEST_FIRST, COLUMNS).cursor_behind(_Odd(place))
    asked = [("limit", "5"), ("cursor", cursor)]
    assert page_of(listed_audit(log), asked) == page_of(in_memory, asked)
    with pytest.raises(Refused):
        page_of(listed_audit(log), [("cursor", cursor[:-1])])


def test_the_database_looks_for_a_page_by_its_key(log: Engine) -> None:
    said: list[str] = []
    event.listen(log, "before_cursor_execute", lambda *given: said.append(given[2]))
    page_of(listed_audit(log), [("limit", "5")])
    (query,) = [one for one in said if "audit_log" in one]
    assert "ORDER BY audit_log.number DESC" in query
    assert "LIMIT" in query


def numbers(page: Page) -> list[int]:
    return [item["number"] for item in page.items]


class _Odd:
    """A row whose number is none."""

    def __init__(self, number: float | str) -> None:
        self.number = number
