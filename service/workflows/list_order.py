"""In which order do the rows of a list stand, and where in it did the page before end?

A cursor holds the place of the last row that was shown, not a number of rows: what it compares, and the key. So the
next page begins right behind that row, even where rows came or went in between, that row among them.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Any

from pydantic_core import from_json, to_json

from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest
from service.workflows.columns import Column

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
        """Where a row stands.

        Args:
            row: a row of the list

        Returns:
            its place
        """
        return (*self._forms(row), self.key.value(row))

    def sorted(self, rows: Iterable[Any], most: int | None = None) -> list[Any]:
        """Rows in this order.

        Args:
            rows: rows of the list
            most: how many of them; no more are held at once. None for all

        Returns:
            the first ones
        """

        def place(row: object) -> Any:
            return self._sort_key(row), self.key.value(row)

        return sorted(rows, key=place) if most is None else nsmallest(most, rows, key=place)

    def first(self, rows: Iterable[Any], most: int | None) -> list[Any]:
        """The first rows in this order.

        Args:
            rows: rows of the list, in the order of their keys
            most: how many at most; None for all of them

        Returns:
            some of the rows, or all of them
        """
        if not self.by:
            return list(islice(rows, most))
        key = self._sort_key
        return sorted(rows, key=key) if most is None else nsmallest(most, rows, key=key)

    def is_behind(self, row: object, place: Place) -> bool:
        """Whether a row stands behind a place.

        Args:
            row: a row of the list
            place: where a page ended

        Returns:
            true if it belongs to a later page
        """
        ended = (self._sort_key_of(place[:-1]), _rising(place[-1]))
        return ended < (self._sort_key(row), _rising(self.key.value(row)))

    def cursor_behind(self, row: object) -> str:
        """The opaque text with which the page behind a row is asked for.

        Args:
            row: the last row of a page

        Returns:
            the cursor
        """
        return _sealed([self._said, *self.place(row)])

    def read_cursor(self, cursor: str) -> Place:
        """Where the page before ended.

        Args:
            cursor: what a page gave as next_cursor

        Returns:
            the place

        Raises:
            Refused: no page gave this cursor, or one of another order did
        """
        said, *place = _opened(cursor)
        if said != self._said:
            message = "cursor comes from a list in another order, so it leads to no page of this one"
            fix = "give the sort of the page before too, or leave cursor out and begin anew"
            raise Refused(Problem(field="cursor", code="cursor_of_another_sort", message=message, fix=fix))
        if len(place) != len(self.by) + 1 or place[-1] is None:
            raise Refused(NO_CURSOR)
        return tuple(place)

    @property
    def _said(self) -> str:
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
    """The order that a caller asks for.

    Args:
        text: names of columns, separated by commas, each with `-` before it where it descends; None for the key
        columns: columns of the list, the key first

    Returns:
        the order

    Raises:
        Refused: a column that the list does not have, or one named twice
    """
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

    Args:
        value: text, number, truth, tuple of texts, or None

    Returns:
        each member of a list, any other value alone; None where nothing is known

    >>> forms_of("H100"), forms_of(("A", "b")), forms_of(()), forms_of(80)
    (['h100'], ['a', 'b'], [None], [80])
    """
    if value is None or value in ("", ()):
        return [None]
    held = value if isinstance(value, tuple) else (value,)
    return [item if isinstance(item, int | float) else str(item).casefold() for item in held]


def sortable(value: Any) -> Form:
    """What a row holds in a column, as an order compares it: a list by its members, one after another.

    Args:
        value: text, number, truth, tuple of texts, or None

    Returns:
        one value

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
