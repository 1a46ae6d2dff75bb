"""Lists, page by page as JSON, or whole as a table of texts or typed cells.

Every form takes the same query: filters by column, sort, limit, cursor.

A page is read from the database in parts, in order of key or newest first. In any other order every row is read.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from service.store.engine import RowPart, utc_text
from service.tabular.cell_text import exact_text, marked
from service.tabular.columns import Column
from service.tabular.parquet import parquet
from service.tabular.queries import DEFAULT_ROWS, ListQuery, Meanings, read_list_query
from service.tabular.workbooks import workbook

Record = Mapping[str, Any]

IsCurrent = Callable[[Record], bool]
"""Whether the version of a row in a request is the current one."""
Parameters = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Listed:
    """A list before filters and order."""

    columns: Sequence[Column]
    """Columns, the key first."""
    rows: Iterable[Any]
    """All rows."""
    meanings: Meanings = field(default_factory=dict)
    """By column, the values that a name in a filter may mean."""
    sort: str | None = None
    """Default order; None for the order of the keys."""
    find: Callable[[ListQuery, int | None], list[Any]] | None = None
    """Reads the rows of a query from the database, at most so many; None where `rows` are all of them."""
    is_in_order: bool = False
    """Whether `rows` are in the order of their keys."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list."""

    items: tuple[Record, ...]
    """Rows as JSON objects."""
    next_cursor: str | None
    """Cursor of the next page; null after the last one."""


def page_of(listed: Listed, parameters: Parameters) -> Page:
    """One page of a list."""
    query = _query(listed, parameters)
    limit = query.limit or DEFAULT_ROWS
    rows = _select(listed, query, limit + 1)
    shown = rows[:limit]
    more = query.order.cursor_behind(shown[-1]) if len(rows) > limit else None
    return Page(tuple(as_record(listed.columns, row) for row in shown), more)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a file."""

    columns: Sequence[Column]
    """Columns, the key first."""
    rows: Sequence[Any]
    """Rows, in order."""


def table_of(listed: Listed, parameters: Parameters) -> Table:
    """Every row of a list that passes the filters, up to the limit of the request."""
    query = _query(listed, parameters)
    return Table(listed.columns, _select(listed, query, query.limit))


def csv_of(table: Table) -> str:
    """A table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(column.name for column in table.columns)
    writer.writerows([cell_text(column.value(row)) for column in table.columns] for row in table.rows)
    return text.getvalue()


def workbook_of(table: Table) -> bytes:
    """A table as a workbook of one sheet."""
    return workbook(
        [column.name for column in table.columns],
        [[typed_cell(column.value(row)) for column in table.columns] for row in table.rows],
    )


def parquet_of(table: Table) -> bytes:
    """A table as Parquet."""
    return parquet(table.columns, table.rows)


def as_record(columns: Sequence[Column], row: object) -> Record:
    """A row as a JSON object."""
    return {column.name: column.value(row) for column in columns}


def cell_text(value: object) -> str:
    """A value as the text of one CSV cell that no spreadsheet evaluates as a formula.

    >>> cell_text("=HYPERLINK(1)"), cell_text(-0.5), cell_text(("a", "b")), cell_text(True)
    ("'=HYPERLINK(1)", '-0.5', 'a;b', 'true')
    >>> cell_text(("x", "=1+1"))
    "x;'=1+1"
    """
    cell = typed_cell(value)
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, float):
        return exact_text(cell)
    return marked(cell)


def typed_cell(value: object) -> str | int | float | None:
    """A value as one cell of a workbook, where text is never a formula.

    >>> typed_cell("=1+1"), typed_cell(2.5), typed_cell(("a", "b")), typed_cell(())
    ('=1+1', 2.5, 'a;b', None)
    """
    if isinstance(value, tuple):
        return ";".join(map(str, value)) or None
    return value if isinstance(value, int | float) else str(value) if value else None


def _query(listed: Listed, parameters: Parameters) -> ListQuery:
    return read_list_query(parameters, listed.columns, listed.meanings, listed.sort)


def _select(listed: Listed, query: ListQuery, most: int | None) -> list[Any]:
    if listed.find is not None:
        return listed.find(query, most)
    return query.select_in_order(tuple(listed.rows), most) if listed.is_in_order else query.select(listed.rows, most)


AT_ONCE = 1000
"""Rows of one read where only a page is needed. Source: a choice; some milliseconds."""
TIMES_AS_MANY = 8
"""Rows of one read where a whole read falls into one second. Source: a choice."""
SECOND = timedelta(seconds=1)

Read = Callable[[RowPart | None], Sequence[Any]]
"""Reads the rows of a part of the list; all rows, unordered, for None."""


def listed_in_parts(
    columns: Sequence[Column], read: Read, moment: str = "created_at", sort: str | None = None
) -> Listed:
    """A list that is read from the database in parts."""
    return Listed(columns, (), sort=sort, find=partial(_read_part, read, moment))


def _read_part(read: Read, moment: str, query: ListQuery, most: int | None) -> list[Any]:
    begin = None if most is None else _begin(moment, query, AT_ONCE if query.filters else most)
    if begin is None:
        return query.select(read(None), most)
    rows: Iterator[Any]
    if begin.newest_first:
        rows = (row for second in _by_seconds(read, begin, query.order.by[0][0]) for row in query.order.sorted(second))
    else:
        rows = _by_keys(read, begin, query.order.key)
    return [*islice(query.admitted(rows), most)]


def _begin(moment: str, query: ListQuery, most: int) -> RowPart | None:
    """The part at which a page begins; None where the database cannot order or seek it."""
    by = [(column.name, descends) for column, descends in query.order.by]
    after = query.after
    if not by:
        if after is None:
            return RowPart(most=most)
        key = after[-1]
        return RowPart(most=most, behind=key) if isinstance(key, str) and key.isascii() and key.isprintable() else None
    if by != [(moment, True)]:
        return None
    if after is None:
        return RowPart(most=most, newest_first=True)
    with suppress(ValueError, OverflowError):
        return RowPart(most=most, newest_first=True, before=_behind(str(after[0]).upper()))
    return None


def _by_keys(read: Read, part: RowPart, key: Column) -> Iterator[Any]:
    """Rows in the order of their keys."""
    while rows := read(part):
        yield from rows
        if len(rows) < part.most:
            return
        part = RowPart(most=part.most, behind=key.value(rows[-1]))


def _by_seconds(read: Read, part: RowPart, moment: Column) -> Iterator[Sequence[Any]]:
    """Rows in groups of whole seconds, the newest first: within a second the list has another order than the database.

    SQLite compares moments as texts, of which the database writes three digits and Python six, so that it may give rows
    of the very moment before which they are wanted.
    """
    while True:
        rows = read(part)
        selected = rows if part.before is None else [row for row in rows if moment.value(row) < utc_text(part.before)]
        if len(rows) < part.most:
            yield selected
            return
        last = moment.value(selected[-1]) if selected else None
        whole = [row for row in selected if moment.value(row) != last]
        if whole:
            yield whole
            part = RowPart(most=part.most, newest_first=True, before=_behind(str(last)))
        else:
            part = RowPart(most=TIMES_AS_MANY * part.most, newest_first=True, before=part.before)


def _behind(text: str) -> datetime:
    """The end of the second that contains a moment."""
    known = datetime.fromisoformat(text)
    if utc_text(known) != text:
        raise ValueError("a moment of a list is in UTC, to the second")
    return known + SECOND
