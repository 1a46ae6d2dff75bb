"""Which rows of a list does a query string ask for? Filters by column, an order, a limit, where a page begins."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest
from service.workflows.columns import Column
from service.workflows.flat_values import MOST_PARAMETERS, TOO_MANY, read_value
from service.workflows.list_order import Form, Order, Place, forms_of, read_order
from service.workflows.plain_text import composed

Meanings = Mapping[str, Callable[[str], Collection[str]]]
"""By column, the values that a name of any spelling may mean there."""

PAGING = ("limit", "cursor", "sort")
"""Parameters that are no columns."""
DEFAULT_ROWS = 100
MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a caller wants of a list."""

    filters: tuple[tuple[Column, frozenset[Form]], ...]
    """Each filtered column, and the values of which a row has to hold one."""
    limit: int | None
    """Rows on a page; None where the caller gave none."""
    order: Order
    """How the rows stand."""
    after: Place | None
    """Where the page before ended; None for the first page."""

    def select(self, rows: Iterable[Any], most: int | None = None) -> list[Any]:
        """The rows of this page and of all that follow.

        Args:
            rows: every row of the list
            most: how many of them are wanted; None for all

        Returns:
            those that pass every filter, in order
        """
        return self.order.sorted(self.admitted(rows), most)

    def select_in_order(self, rows: Sequence[Any], most: int | None = None) -> list[Any]:
        """The same of rows that stand in the order of their keys: of most of them no key is told.

        Args:
            rows: every row of the list, in the order of their keys
            most: how many of them are wanted; None for all

        Returns:
            those that pass every filter, in order
        """
        if self.after is None or self.order.by:
            return self.order.first(self.admitted(rows), most)
        begin = bisect_right(rows, str(self.after[-1]), key=self.order.key.value)
        return list(islice((row for row in islice(rows, begin, None) if self._admits(row)), most))

    def admitted(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The rows of this page and of all that follow, as they come.

        Args:
            rows: rows of the list

        Yields:
            those that pass every filter
        """
        after = self.after
        for row in rows:
            if self._admits(row) and (after is None or self.order.is_behind(row, after)):
                yield row

    def _admits(self, row: object) -> bool:
        return not any(wanted.isdisjoint(forms_of(column.value(row))) for column, wanted in self.filters)


def read_list_query(
    parameters: Sequence[tuple[str, str]], columns: Sequence[Column], meanings: Meanings, sort: str | None = None
) -> ListQuery:
    """What a query string asks of a list.

    A column given twice admits either value; different columns must all agree; an empty value means that nothing
    is known. Text is compared without regard to capitals, a list by its members, a name by what it means.

    Args:
        parameters: the query string, in order
        columns: columns of the list, the key first
        meanings: of the columns that hold names of the catalogue
        sort: the order where the caller gives none; None for that of the keys

    Returns:
        the query

    Raises:
        Refused: an unknown parameter, a value that its column cannot hold, or a name that means nothing
    """
    known = {column.name: column for column in columns}
    names = [*known, *PAGING]
    unknown = [name for name, _ in parameters if name not in names]
    if unknown:
        raise Refused(*(_unknown(name, names) for name in unknown[:MOST_PROBLEMS]))
    if len(parameters) > MOST_PARAMETERS:
        raise Refused(TOO_MANY)
    given: dict[str, list[str]] = {}
    for name, text in parameters:
        given.setdefault(name, []).append(text)
    limit, cursor = (_once(name, given.pop(name, [])) for name in ("limit", "cursor"))
    asked = given.pop("sort", [])
    order = read_order(",".join(asked) if asked else sort, columns)
    return ListQuery(
        filters=tuple(
            (known[name], frozenset(form for text in texts for form in _wanted(known[name], text, meanings.get(name))))
            for name, texts in given.items()
        ),
        limit=None if limit is None else _limit(limit),
        order=order,
        after=None if cursor is None else order.read_cursor(cursor),
    )


def _once(name: str, texts: list[str]) -> str | None:
    if len(texts) > 1:
        message = f"{name} is given {len(texts)} times, so it is unclear which counts"
        raise Refused(Problem(field=name, code="repeated", message=message, fix="give it once"))
    return texts[0] if texts else None


def _limit(text: str) -> int:
    limit = read_value("limit", "integer", text, ".")
    if not isinstance(limit, int) or not 1 <= limit <= MOST_ROWS:
        message = f"limit is not from 1 to {MOST_ROWS}, the rows that one answer may hold"
        fix = f"give 1 to {MOST_ROWS} and follow next_cursor"
        raise Refused(Problem(field="limit", code="out_of_range", message=message, fix=fix))
    return limit


def _wanted(column: Column, text: str, meant: Callable[[str], Collection[str]] | None) -> list[Form]:
    """The values that a filter admits."""
    types = column.types
    if not text:
        return [None]
    if meant is not None:
        return [name.casefold() for name in meant(text)]
    if types & {"integer", "number", "boolean"}:
        return [read_value(column.name, "truth" if "boolean" in types else "number", text, ".")]
    if column.choices and text not in column.choices:
        message = f"{column.name} has no such value"
        fix = f"use {' or '.join(column.choices)}"
        raise Refused(Problem(field=column.name, code="not_a_choice", message=message, fix=fix))
    return [composed(text).casefold()]


def _unknown(name: str, known: list[str]) -> Problem:
    fix = did_you_mean(nearest(name, known)) or f"leave it out, or use {', '.join(known)}"
    message = "the query names a column that this list does not have; it would change nothing, so it is refused"
    return Problem(field="", code="unknown_parameter", message=message, fix=fix)
