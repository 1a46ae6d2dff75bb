"""Is a page of a long list what a list that is held in memory would show, and read no further than it goes?"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from types import SimpleNamespace

import pytest
from sqlalchemy import String, func, insert, type_coerce, update

from service.features.launch_checks import launch_checks
from service.features.launch_checks.launch_checks import listed_launch_checks
from service.features.measurements.lists import COLUMNS, NEWEST_FIRST, row_of
from service.features.scenarios import scenarios
from service.features.sweeps import sweeps
from service.features.sweeps.sweeps import listed_sweeps
from service.store import Engine
from service.store.engine import RowPart, writing
from service.store.keys import ANYBODY
from service.store.measurements import Measured, read_measurements_of
from service.store.tables import ESTIMATES, JOBS, LAUNCH_CHECKS, MEASUREMENTS, SWEEPS
from service.tabular.lists import Listed, Page, Read, Record, csv_of, listed_in_parts, page_of, read_order, table_of
from tests.store import holding
from tests.store.filled import filled

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


def reading(database: Engine, counted: list[int] | None = None) -> Read:
    """Reads measurements as rows, and notes how many each time."""

    def read(part: RowPart | None) -> list[object]:
        found: list[Measured] = read_measurements_of(database, "a", part)
        if counted is not None:
            counted.append(len(found))
        return [row_of(one) for one in found]

    return read


def listed(database: Engine, sort: str | None, counted: list[int] | None = None) -> Listed:
    return listed_in_parts(COLUMNS, reading(database, counted), "measured_at", sort)


@pytest.fixture(scope="module")
def rows(database: Engine) -> tuple[object, ...]:
    """What the database holds."""
    return tuple(reading(database)(None))


def in_memory(rows: tuple[object, ...], sort: str | None) -> Listed:
    return Listed(COLUMNS, rows, sort=sort)


FILTERS: tuple[tuple[tuple[str, str], ...], ...] = (
    (), (("reason", ""),), (("gpu", "GPU Ü 4"), ("gpu", "gpu ü 7")), (("owner", "b"),),
)  # fmt: skip


@pytest.mark.parametrize(("filters", "sort", "limit"), [*product(FILTERS, (None, NEWEST_FIRST, "value"), (40, 300))])
def test_pages_are_those_of_a_list_in_memory(
    database: Engine, rows: tuple[object, ...], filters: tuple[tuple[str, str], ...], sort: str | None, limit: int
) -> None:
    held, expected = listed(database, sort), in_memory(rows, sort)
    cursor: tuple[tuple[str, str], ...] = ()
    for _ in range(5):
        asked = [*filters, ("limit", str(limit)), *cursor]
        shown = page_of(held, asked)
        assert shown == page_of(expected, asked)
        if shown.next_cursor is None:
            return
        cursor = (("cursor", shown.next_cursor),)


def test_every_row_stands_on_one_page(database: Engine) -> None:
    for sort in (None, NEWEST_FIRST):
        ids, cursor = [], None
        while True:
            page = page_of(listed(database, sort), [("limit", "50"), *([("cursor", cursor)] if cursor else [])])
            ids += _ids(page)
            if (cursor := page.next_cursor) is None:
                break
        assert sorted(ids) == sorted(one.id for one in read_measurements_of(database, "a", None))


def test_tables_are_those_of_a_list_in_memory(database: Engine, rows: tuple[object, ...]) -> None:
    for asked in ([], [("sort", "id"), ("limit", "5")], [("limit", "3")]):
        whole, shown = listed(database, NEWEST_FIRST), in_memory(rows, NEWEST_FIRST)
        assert csv_of(table_of(whole, asked)) == csv_of(table_of(shown, asked))


@pytest.mark.parametrize("sort", [None, NEWEST_FIRST])
def test_a_page_reads_little_more_than_it_shows(database: Engine, sort: str | None) -> None:
    counted: list[int] = []
    held = listed(database, sort, counted)
    first = page_of(held, [("limit", "50")])
    page_of(held, [("limit", "50"), ("cursor", str(first.next_cursor))])
    assert sum(counted) <= 4 * 51
    assert max(counted) <= 51


MOMENTS = ("x", "9999-12-31t23:59:59z", "2026-11-23t00:00:00.5z", "0001-01-01t00:00:00z", 5, None)
KEYS = ("x", "\0", "ü", "\U0001d518", 5, True)


@pytest.mark.parametrize(("moment", "key"), [*product(MOMENTS, KEYS)])
def test_a_cursor_that_nobody_gave_breaks_nothing(
    database: Engine, rows: tuple[object, ...], moment: object, key: object
) -> None:
    odd = SimpleNamespace(id=key, measured_at=moment)
    for sort in (
        (None, NEWEST_FIRST) if moment == MOMENTS[0] else (NEWEST_FIRST,)
    ):  # a moment stands in that order alone
        asked = [("limit", "5"), ("cursor", read_order(sort, COLUMNS).cursor_behind(odd))]
        assert page_of(listed(database, sort), asked) == page_of(in_memory(rows, sort), asked)


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
    shown: list[Record] = []
    cursor = None
    for _ in range(41):
        asked = [*sort, ("limit", str(limit)), *([("cursor", cursor)] if cursor else [])]
        page = page_of(LISTS[name](jobs, ANYBODY), asked)
        shown += page.items
        if (cursor := page.next_cursor) is None:
            break
    whole = page_of(LISTS[name](jobs, ANYBODY), [*sort, ("limit", "1000")])
    assert len(shown) == 40
    assert shown == [*whole.items]


def test_every_stored_list_is_paged_by_its_id() -> None:
    for columns in (COLUMNS, sweeps.COLUMNS, launch_checks.COLUMNS, scenarios.COLUMNS):
        assert columns[0].name == "id"


def _ids(page: Page) -> list[str]:
    return [str(item["id"]) for item in page.items]
