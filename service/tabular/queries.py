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
"""A value as rows are compared by it: text without regard to capitals, None for nothing known."""
Place = tuple[Form, ...]
"""Where a row stands: its value in each column of the order, then its key."""

SortKey = list[tuple[Any, ...]]
"""What Python compares: one tuple for each column of the order."""

DESCENDING = "-"
"""What stands before a column that goes from the largest value to the smallest."""


@dataclass(frozen=True, slots=True)
class Order:
    """The columns by which rows stand, the first one first; rows that agree in all of them stand by their key."""

    by: tuple[tuple[Column, bool], ...]
    """Each column, and whether it descends; nothing known comes last either way."""
    key: Column
    """What every row has, and no two alike."""

    def place(self, row: object) -> Place:
        """Where a row stands."""
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
        """Whether a row stands behind a place."""
        ended = (self._sort_key_of(place[:-1]), _rising(place[-1]))
        return ended < (self._sort_key(row), _rising(self.key.value(row)))

    def cursor_behind(self, row: object) -> str:
        """The opaque text with which the page behind a row is asked for."""
        return _sealed([self._order_digest, *self.place(row)])

    def read_cursor(self, cursor: str) -> Place:
        """Where the page before ended."""
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
        """What a row holds in the columns of the order, without its key, which takes longer to tell."""
        return tuple(sortable(column.value(row)) for column, _ in self.by)


NO_CURSOR = Problem(
    field="cursor",
    code="invalid",
    message="cursor is none that this service gave out, so it leads to no page",
    fix="give next_cursor of the page before",
)


def read_order(text: str | None, columns: Sequence[Column]) -> Order:
    """The order that a caller asks for."""
    known = {column.name: column for column in columns}
    given = [] if text is None else text.split(",")
    asked = [(name.removeprefix(DESCENDING), name.startswith(DESCENDING)) for name in given]
    names = [name for name, _ in asked]
    unknown = [_unknown_column(name, list(known)) for name in names if name not in known]
    if unknown:
        raise Refused(*unknown[:MOST_PROBLEMS])
    if len(set(names)) < len(names):
        message = "sort names a column twice, and only the first time could count"
        raise Refused(Problem(field="sort", code="repeated", message=message, fix="name each column once"))
    return Order(tuple((known[name], descends) for name, descends in asked), columns[0])


def forms_of(value: Any) -> list[Form]:
    """What a row holds in a column, as filters compare it.

    >>> forms_of("H100"), forms_of(("A", "b")), forms_of(()), forms_of(80)
    (['h100'], ['a', 'b'], [None], [80])
    """
    if value is None or value in ("", ()):
        return [None]
    held = value if isinstance(value, tuple) else (value,)
    return [item if isinstance(item, int | float) else str(item).casefold() for item in held]


def sortable(value: Any) -> Form:
    """What a row holds in a column, as an order compares it: a list by its members, one after another.

    >>> sortable(("B", "a")), sortable(80), sortable("") is None
    ('b;a', 80, True)
    """
    forms = forms_of(value)
    return forms[0] if len(forms) == 1 else ";".join(map(str, forms))


class _Falling(str):
    """A text that sorts before every smaller one."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _rising(form: Form) -> tuple[Any, ...]:
    """A sort key of a column that ascends: numbers, then texts, then what is not known."""
    return (True,) if form is None else (False, isinstance(form, str), form)


def _falling(form: Form) -> tuple[Any, ...]:
    """A sort key of a column that descends: texts, then numbers, then what is not known."""
    if form is None:
        return (True,)
    return (False, False, _Falling(form)) if isinstance(form, str) else (False, True, -form)


def _sealed(parts: list[Form]) -> str:
    return urlsafe_b64encode(to_json(parts)).decode().rstrip("=")


def _opened(cursor: str) -> list[Form]:
    """What a cursor holds: the order that it belongs to, then a place."""
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
        """The rows of this page and of all that follow."""
        return self.order.sorted(self.admitted(rows), most)

    def select_in_order(self, rows: Sequence[Any], most: int | None = None) -> list[Any]:
        """The same of rows that stand in the order of their keys: most of them have no known key."""
        if self.after is None or self.order.by:
            return self.order.first(self.admitted(rows), most)
        begin = bisect_right(rows, str(self.after[-1]), key=self.order.key.value)
        return list(islice((row for row in islice(rows, begin, None) if self._admits(row)), most))

    def admitted(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The rows of this page and of all that follow, as they come."""
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
    return [normalized(text).casefold()]


def _unknown(name: str, known: list[str]) -> Problem:
    fix = did_you_mean(nearest(name, known)) or f"leave it out, or use {', '.join(known)}"
    message = "the query names a column that this list does not have; it would change nothing, so it is refused"
    return Problem(field="", code="unknown_parameter", message=message, fix=fix)
