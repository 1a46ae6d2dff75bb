"""Which rows of a list does a query string ask for? Filters by column, a limit, and where the page before ended."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest
from service.workflows.columns import Column
from service.workflows.flat_values import MOST_PARAMETERS, TOO_MANY, read_value

Form = str | int | float | None
"""A value as filters compare it: text without regard to capitals, None for nothing known."""
Meanings = Mapping[str, Callable[[str], Collection[str]]]
"""By column, the values that a name of any spelling may mean there."""

PAGING = ("limit", "cursor")
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
    after: str
    """Key of the last row of the page before; empty for the first page."""

    def admits(self, row: object) -> bool:
        """Whether a row passes every filter.

        Args:
            row: a row of the list

        Returns:
            true if it does
        """
        return not any(wanted.isdisjoint(_forms(column.value(row))) for column, wanted in self.filters)


def read_list_query(parameters: Sequence[tuple[str, str]], columns: Sequence[Column], meanings: Meanings) -> ListQuery:
    """What a query string asks of a list.

    A column given twice admits either value; different columns must all agree; an empty value means that nothing
    is known. Text is compared without regard to capitals, a list by its members, a name by what it means.

    Args:
        parameters: the query string, in order
        columns: columns of the list
        meanings: of the columns that hold names of the catalogue

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
    limit, cursor = (_once(name, given.pop(name, [])) for name in PAGING)
    return ListQuery(
        filters=tuple(
            (known[name], frozenset(form for text in texts for form in _wanted(known[name], text, meanings.get(name))))
            for name, texts in given.items()
        ),
        limit=None if limit is None else _limit(limit),
        after="" if cursor is None else _key(cursor),
    )


def cursor_after(key: str) -> str:
    """The opaque text with which the next page is asked for.

    Args:
        key: key of the last row of this page

    Returns:
        the cursor

    >>> cursor_after("h100-sxm5-80gb")
    'aDEwMC1zeG01LTgwZ2I'
    """
    return urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _key(cursor: str) -> str:
    try:
        key = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        key = ""
    if not key or cursor_after(key) != cursor:
        message = "cursor is none that this service gave out, so it leads to no page"
        raise Refused(
            Problem(field="cursor", code="invalid", message=message, fix="give next_cursor of the page before")
        )
    return key


def _once(name: str, texts: list[str]) -> str | None:
    if len(texts) > 1:
        message = f"{name} is given {len(texts)} times, so it is unclear which counts"
        raise Refused(Problem(field=name, code="repeated", message=message, fix="give it once"))
    return texts[0] if texts else None


def _limit(text: str) -> int:
    limit = read_value("limit", "integer", text, ".")
    if not isinstance(limit, int) or not 1 <= limit <= MOST_ROWS:
        message = f"limit is not from 1 to {MOST_ROWS}, the rows that one answer may hold"
        fix = f"give at most {MOST_ROWS} and follow next_cursor"
        raise Refused(Problem(field="limit", code="out_of_range", message=message, fix=fix))
    return limit


def _forms(value: Any) -> list[Form]:
    """What a row holds in a column, as filters compare it."""
    if value is None or value in ("", ()):
        return [None]
    held = value if isinstance(value, tuple) else (value,)
    return [item if isinstance(item, int | float) else str(item).casefold() for item in held]


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
    return [text.casefold()]


def _unknown(name: str, known: list[str]) -> Problem:
    fix = did_you_mean(nearest(name, known)) or f"leave it out, or use {', '.join(known)}"
    message = "the query names a column that this list does not have; it would change nothing, so it is refused"
    return Problem(field="", code="unknown_parameter", message=message, fix=fix)
