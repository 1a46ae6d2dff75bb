"""What does the catalogue hold? Its lists, page by page, row by row, or whole as CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from service.catalogue import Catalogue, ClusterRow, GpuRow, ModelRow, PriceRow, RateCardRow, Row
from service.catalogue.names import normal
from service.errors import NotFound, UnknownName
from service.workflows.columns import Column, columns_of
from service.workflows.list_query import DEFAULT_ROWS, ListQuery, cursor_after, read_list_query
from service.workflows.number_text import number_text

Record = Mapping[str, Any]
Parameters = Sequence[tuple[str, str]]

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a text that a spreadsheet would run as a formula."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One list of the catalogue."""

    row: type
    """Class of its rows."""
    key: Column
    """What a row is read by; rows are listed in its order."""
    rows: Callable[[Catalogue], Iterable[Any]]
    """Its rows."""
    find: Callable[[Catalogue, str], Any]
    """The row that a name means."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns, the key first."""
        return (self.key, *(column for column in columns_of(self.row) if column.name != self.key.name))


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a list."""

    items: tuple[Record, ...]
    """The rows, column by column."""
    next_cursor: str | None
    """Where the next page begins; null after the last one."""


def list_rows(listing: Listing, catalogue: Catalogue, parameters: Parameters) -> Page:
    """One page of a list.

    Args:
        listing: which list
        catalogue: the facts
        parameters: the query string: filters by column, limit, cursor

    Returns:
        the page

    Raises:
        Refused: an unknown parameter or a wrong value
    """
    query = _query(listing, catalogue, parameters)
    limit = query.limit or DEFAULT_ROWS
    rows = _rows(listing, catalogue, query)
    shown = rows[:limit]
    more = cursor_after(listing.key.value(shown[-1])) if len(rows) > limit else None
    return Page(tuple(record_of(listing, row) for row in shown), more)


def read_row(listing: Listing, catalogue: Catalogue, name: str) -> Record:
    """One row of a list.

    Args:
        listing: which list
        catalogue: the facts
        name: slug or any other name of the row; for a price its id

    Returns:
        the row, column by column

    Raises:
        NotFound: nothing has this name; the error lists the nearest ones
    """
    try:
        return record_of(listing, listing.find(catalogue, name))
    except UnknownName as error:
        problem = error.problems[0]
        raise NotFound(f"{problem.message}; {problem.fix}") from None


def record_of(listing: Listing, row: Row) -> Record:
    """A row as a list shows it.

    Args:
        listing: the list
        row: one of its rows

    Returns:
        the row, column by column
    """
    return {column.name: column.value(row) for column in listing.columns}


def list_csv(listing: Listing, catalogue: Catalogue, parameters: Parameters) -> str:
    """A list as CSV: every row that passes the filters, unless the caller limits them.

    Args:
        listing: which list
        catalogue: the facts
        parameters: the query string: filters by column, limit, cursor

    Returns:
        CSV of RFC 4180 with a header; the members of a list stand in one cell, separated by semicolons

    Raises:
        Refused: an unknown parameter or a wrong value
    """
    columns = listing.columns
    query = _query(listing, catalogue, parameters)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(column.name for column in columns)
    for row in _rows(listing, catalogue, query)[: query.limit]:
        writer.writerow(cell_text(column.value(row)) for column in columns)
    return text.getvalue()


def cell_text(value: object) -> str:
    """A value as the text of one CSV cell, which no spreadsheet runs as a formula.

    Args:
        value: text, number, truth, tuple of texts, or None

    Returns:
        its text; empty for None

    >>> cell_text("=HYPERLINK(1)"), cell_text(-0.5), cell_text(("a", "b")), cell_text(True)
    ("'=HYPERLINK(1)", '-0.5', 'a;b', 'true')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number_text(value, ".")
    text = ";".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _find_price(catalogue: Catalogue, name: str) -> PriceRow:
    found = next((row for row in catalogue.prices if row.id == name), None)
    if found is None:
        raise NotFound("the catalogue holds no price of this id; GET /v1/prices lists the ids")
    return found


def _query(listing: Listing, catalogue: Catalogue, parameters: Parameters) -> ListQuery:
    return read_list_query(parameters, listing.columns, {"gpu": partial(_gpus_meant, catalogue)})


def _gpus_meant(catalogue: Catalogue, name: str) -> tuple[str, ...]:
    """Every GPU that goes by a name: a filter need not choose between them."""
    return catalogue.gpu_index.slugs.get(normal(name)) or (catalogue.find_gpu(name, "gpu").row.slug,)


def _rows(listing: Listing, catalogue: Catalogue, query: ListQuery) -> list[Any]:
    """Every row that a query admits from its page on, in the order of the keys."""
    key = listing.key.value
    return sorted((row for row in listing.rows(catalogue) if key(row) > query.after and query.admits(row)), key=key)


_SLUG = Column("slug", attrgetter("slug"), {"type": "string", "description": "Catalogue name."})
_ID = Column("id", attrgetter("id"), {"type": "string", "description": "What this price is read by."})

LISTINGS: Mapping[str, Listing] = {
    "models": Listing(ModelRow, _SLUG, lambda held: held.models.values(), lambda held, name: held.find_model(name).row),
    "gpus": Listing(GpuRow, _SLUG, lambda held: held.gpus.values(), lambda held, name: held.find_gpu(name).row),
    "clusters": Listing(
        ClusterRow, _SLUG, lambda held: held.clusters.values(), lambda held, name: held.find_cluster(name).row
    ),
    "prices": Listing(PriceRow, _ID, lambda held: held.prices, _find_price),
    "rate-cards": Listing(
        RateCardRow, _SLUG, lambda held: held.rate_cards.values(), lambda held, name: held.find_rate_card(name).row
    ),
}
"""The lists by the name that stands in their path."""
