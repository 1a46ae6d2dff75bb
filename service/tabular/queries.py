"""Filters, order, limit and cursor of a list, from a query string.

A cursor holds the place of the last row shown, not a number of rows, so the next page begins right behind that row
even where rows were added or removed.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Any

from pydantic_core import from_json, to_json

from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest
from service.tabular.columns import Column
from service.validation.flat_values import MOST_PARAMETERS, TOO_MANY, read_value
from service.validation.text import normalized

Form = str | int | float | None
"""A comparable value of a row: text is case-folded, None is unknown."""
Place = tuple[Form, ...]
"""Position of a row: its value in each column of the order, then its key."""

SortKey = list[tuple[Any, ...]]
"""Sort key of Python: one tuple for each column of the order."""

DESCENDING = "-"
"""Prefix of a descending column."""


@dataclass(frozen=True, slots=True)
class Order:
    """Columns of a sort order, the first one first; the key breaks ties."""

    by: tuple[tuple[Column, bool], ...]
    """Each column, and whether it descends; unknown values come last either way."""
    key: Column
    """The unique key of rows."""

    def place(self, row: object) -> Place:
        """Position of a row."""
        return (*self._forms(row), self.key.value(row))

    def sorted(self, rows: Iterable[Any], most: int | None = None) -> list[Any]:
        """Rows in this order."""

        def place(row: object) -> Any:
            return self._sort_key(row), self.key.value(row)

        return sorted(rows, key=place) if most is None else nsmallest(most, rows, key=place)

    def first(self, rows: Iterable[Any], most: int | None) -> list[Any]:
        """The first rows in this order."""
        if not self.by:
            return list(islice(rows, most))
        key = self._sort_key
        return sorted(rows, key=key) if most is None else nsmallest(most, rows, key=key)

    def is_behind(self, row: object, place: Place) -> bool:
        """Whether a row comes after a position."""
        ended = (self._sort_key_of(place[:-1]), _rising(place[-1]))
        return ended < (self._sort_key(row), _rising(self.key.value(row)))

    def cursor_behind(self, row: object) -> str:
        """The opaque cursor of the page after a row."""
        return _sealed([self._order_digest, *self.place(row)])

    def read_cursor(self, cursor: str) -> Place:
        """Position at which the previous page ended."""
        digest, *place = _opened(cursor)
        if digest != self._order_digest:
            message = "cursor comes from a list in another order, so it leads to no page of this one"
            fix = "give the sort of the page before too, or leave cursor out and begin anew"
            raise Refused(Problem(field="cursor", code="cursor_of_another_sort", message=message, fix=fix))
        if len(place) != len(self.by) + 1 or place[-1] is None:
            raise Refused(NO_CURSOR)
        return tuple(place)

    @property
    def _order_digest(self) -> str:
        return ",".join(f"{DESCENDING if descends else ''}{column.name}" for column, descends in self.by)

    def _sort_key(self, row: object) -> SortKey:
        return self._sort_key_of(self._forms(row))

    def _sort_key_of(self, forms: Place) -> SortKey:
        """The columns of the order without the key of the row: a smaller sort key comes first."""
        return [
            _falling(form) if descends else _rising(form) for form, (_, descends) in zip(forms, self.by, strict=True)
        ]

    def _forms(self, row: object) -> Place:
        """Values of a row in the columns of the order, without its key, which takes longer to compute."""
        return tuple(sortable(column.value(row)) for column, _ in self.by)


NO_CURSOR = Problem(
    field="cursor",
    code="invalid",
    message="cursor is none that this service gave out, so it leads to no page",
    fix="give next_cursor of the page before",
)


def read_order(text: str | None, columns: Sequence[Column]) -> Order:
    """Parse the `sort` parameter."""
    known = {column.name: column for column in columns}
    given = [] if text is None else text.split(",")
    parsed = [(name.removeprefix(DESCENDING), name.startswith(DESCENDING)) for name in given]
    names = [name for name, _ in parsed]
    unknown = [_unknown_column(name, list(known)) for name in names if name not in known]
    if unknown:
        raise Refused(*unknown[:MOST_PROBLEMS])
    if len(set(names)) < len(names):
        message = "sort names a column twice, and only the first time could count"
        raise Refused(Problem(field="sort", code="repeated", message=message, fix="name each column once"))
    return Order(tuple((known[name], descends) for name, descends in parsed), columns[0])


def forms_of(value: Any) -> list[Form]:
    """Values of a cell, as filters compare them.

    >>> forms_of("H100"), forms_of(("A", "b")), forms_of(()), forms_of(80)
    (['h100'], ['a', 'b'], [None], [80])
    """
    if value is None or value in ("", ()):
        return [None]
    items = value if isinstance(value, tuple) else (value,)
    return [item if isinstance(item, int | float) else str(item).casefold() for item in items]


def sortable(value: Any) -> Form:
    """Value of a cell, as an order compares it: a list by its members.

    >>> sortable(("B", "a")), sortable(80), sortable("") is None
    ('b;a', 80, True)
    """
    forms = forms_of(value)
    return forms[0] if len(forms) == 1 else ";".join(map(str, forms))


class _Falling(str):
    """A text that sorts in descending order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _rising(form: Form) -> tuple[Any, ...]:
    """Sort key of an ascending column: numbers, then texts, then unknown values."""
    return (True,) if form is None else (False, isinstance(form, str), form)


def _falling(form: Form) -> tuple[Any, ...]:
    """Sort key of a descending column: texts, then numbers, then unknown values."""
    if form is None:
        return (True,)
    return (False, False, _Falling(form)) if isinstance(form, str) else (False, True, -form)


def _sealed(parts: list[Form]) -> str:
    return urlsafe_b64encode(to_json(parts)).decode().rstrip("=")


def _opened(cursor: str) -> list[Form]:
    """Contents of a cursor: the digest of its order, then a position."""
    try:
        parts = from_json(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), allow_inf_nan=False)
    except ValueError:
        parts = None
    if (
        not isinstance(parts, list)
        or not parts
        or not all(part is None or isinstance(part, str | int | float) for part in parts)
        or _sealed(parts) != cursor
    ):
        raise Refused(NO_CURSOR)
    return parts


def _unknown_column(name: str, known: list[str]) -> Problem:
    fix = did_you_mean(nearest(name, known)) or f"use {', '.join(known)}"
    message = "sort names a column that this list does not have, so there is no such order"
    return Problem(field="sort", code="unknown_column", message=message, fix=fix)


Meanings = Mapping[str, Callable[[str], Collection[str]]]
"""By column, the values that a name in any spelling may mean."""

PAGING = ("limit", "cursor", "sort")
"""Parameters that are not columns."""
DEFAULT_ROWS = 100
MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Filters, order and page of a list."""

    filters: tuple[tuple[Column, frozenset[Form]], ...]
    """Each filtered column with its accepted values."""
    limit: int | None
    """Rows on a page; None where the request sets no limit."""
    order: Order
    """Order of the rows."""
    after: Place | None
    """Position at which the previous page ended; None for the first page."""

    def select(self, rows: Iterable[Any], most: int | None = None) -> list[Any]:
        """Rows of this page and of all later ones."""
        return self.order.sorted(self.admitted(rows), most)

    def select_in_order(self, rows: Sequence[Any], most: int | None = None) -> list[Any]:
        """Rows of this page and of all later ones, from rows in the order of their keys."""
        if self.after is None or self.order.by:
            return self.order.first(self.admitted(rows), most)
        begin = bisect_right(rows, str(self.after[-1]), key=self.order.key.value)
        return list(islice((row for row in islice(rows, begin, None) if self._admits(row)), most))

    def admitted(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Rows of this page and of all later ones, in the order given."""
        after = self.after
        for row in rows:
            if self._admits(row) and (after is None or self.order.is_behind(row, after)):
                yield row

    def _admits(self, row: object) -> bool:
        return not any(accepted.isdisjoint(forms_of(column.value(row))) for column, accepted in self.filters)


def read_list_query(
    parameters: Sequence[tuple[str, str]], columns: Sequence[Column], meanings: Meanings, sort: str | None = None
) -> ListQuery:
    """Parse the query string of a list.

    A column given twice admits either value; different columns must all agree; an empty value means that nothing
    is known. Text is compared without regard to capitals, a list by its members, a name by what it means.
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
    sorts = given.pop("sort", [])
    order = read_order(",".join(sorts) if sorts else sort, columns)
    return ListQuery(
        filters=tuple(
            (
                known[name],
                frozenset(form for text in texts for form in _accepted(known[name], text, meanings.get(name))),
            )
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


def _accepted(column: Column, text: str, meant: Callable[[str], Collection[str]] | None) -> list[Form]:
    """The values that a filter accepts."""
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
    return [normalized(text).casefold()]


def _unknown(name: str, known: list[str]) -> Problem:
    fix = did_you_mean(nearest(name, known)) or f"leave it out, or use {', '.join(known)}"
    message = "the query names a column that this list does not have; it would change nothing, so it is refused"
    return Problem(field="", code="unknown_parameter", message=message, fix=fix)
