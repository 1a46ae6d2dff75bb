"""How is a list shown: page by page as JSON, or whole as a table of texts or of typed cells?

Every form takes the same query: filters by column, sort, limit, cursor.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.workflows.columns import Column
from service.workflows.formula_text import marked
from service.workflows.list_query import DEFAULT_ROWS, ListQuery, Meanings, read_list_query
from service.workflows.number_text import exact_text
from service.workflows.parquet_file import parquet
from service.workflows.workbook import workbook

Record = Mapping[str, Any]

IsCurrent = Callable[[Record], bool]
"""Whether the version of a row that a caller saw is the current one."""
Parameters = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Listed:
    """A list, before anybody says what of it to show."""

    columns: Sequence[Column]
    """Its columns, the key first."""
    rows: Iterable[Any]
    """All of its rows."""
    meanings: Meanings = field(default_factory=dict)
    """By column, what a name in a filter may mean."""
    sort: str | None = None
    """How its rows stand where the caller does not say; None for the order of the keys."""
    find: Callable[[ListQuery, int | None], list[Any]] | None = None
    """Finds the rows that a query asks for, at most so many, where there are too many to be held; None where `rows` are
    all of them."""
    is_in_order: bool = False
    """Whether the rows come in the order of their keys."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a list."""

    items: tuple[Record, ...]
    """The rows, column by column."""
    next_cursor: str | None
    """Where the next page begins; null after the last one."""


def page_of(held: Listed, parameters: Parameters) -> Page:
    """One page of a list.

    Args:
        held: the list
        parameters: the query string

    Returns:
        the page

    Raises:
        Refused: an unknown parameter or a wrong value
    """
    query = _query(held, parameters)
    limit = query.limit or DEFAULT_ROWS
    rows = _found(held, query, limit + 1)
    shown = rows[:limit]
    more = query.order.cursor_behind(shown[-1]) if len(rows) > limit else None
    return Page(tuple(as_record(held.columns, row) for row in shown), more)


def csv_of(held: Listed, parameters: Parameters) -> str:
    """A list as CSV: every row that passes the filters, unless the caller limits them.

    Args:
        held: the list
        parameters: the query string

    Returns:
        CSV of RFC 4180 with a header; the members of a list stand in one cell, separated by semicolons

    Raises:
        Refused: an unknown parameter or a wrong value
    """
    rows = _table(held, parameters)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(column.name for column in held.columns)
    writer.writerows([cell_text(column.value(row)) for column in held.columns] for row in rows)
    return text.getvalue()


def workbook_of(held: Listed, parameters: Parameters) -> bytes:
    """A list as a workbook of one sheet: the same rows as its CSV.

    Args:
        held: the list
        parameters: the query string

    Returns:
        an .xlsx file; the same list is the same bytes

    Raises:
        Refused: an unknown parameter or a wrong value
    """
    rows = _table(held, parameters)
    return workbook(
        [column.name for column in held.columns],
        [[typed_cell(column.value(row)) for column in held.columns] for row in rows],
    )


def parquet_of(held: Listed, parameters: Parameters) -> bytes:
    """A list as Parquet: the same rows as its CSV.

    Args:
        held: the list
        parameters: the query string

    Returns:
        a Parquet file

    Raises:
        Refused: an unknown parameter or a wrong value
    """
    return parquet(held.columns, _table(held, parameters))


def as_record(columns: Sequence[Column], row: object) -> Record:
    """A row as the JSON object that shows it.

    Args:
        columns: columns of its list
        row: the row

    Returns:
        its values by column
    """
    return {column.name: column.value(row) for column in columns}


def cell_text(value: object) -> str:
    """A value as the text of one CSV cell, which no spreadsheet runs as a formula.

    Args:
        value: text, number, truth, tuple of texts, or None

    Returns:
        its text; empty for None

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
    """A value as one cell of a workbook, where a text is a text whatever it begins with.

    Args:
        value: text, number, truth, tuple of texts, or None

    Returns:
        number or truth as it is, anything else as text; None for an empty cell

    >>> typed_cell("=1+1"), typed_cell(2.5), typed_cell(("a", "b")), typed_cell(())
    ('=1+1', 2.5, 'a;b', None)
    """
    if isinstance(value, tuple):
        return ";".join(map(str, value)) or None
    return value if isinstance(value, int | float) else str(value) if value else None


def _query(held: Listed, parameters: Parameters) -> ListQuery:
    return read_list_query(parameters, held.columns, held.meanings, held.sort)


def _table(held: Listed, parameters: Parameters) -> list[Any]:
    query = _query(held, parameters)
    return _found(held, query, query.limit)


def _found(held: Listed, query: ListQuery, most: int | None) -> list[Any]:
    if held.find is not None:
        return held.find(query, most)
    return query.select_in_order(tuple(held.rows), most) if held.is_in_order else query.select(held.rows, most)
