"""Which rows of a list does a query string ask for? Filters by column, a limit, and where the page before ended."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from service.errors import Problem, Refused
from service.workflows.columns import Column
from service.workflows.flat_values import read_value

Test = Callable[[Any], bool]
Meanings = Mapping[str, Callable[[str], Collection[str]]]
"""By column, the values that a name of any spelling may mean there."""

PAGING = ("limit", "cursor")
"""Parameters that are no columns."""
DEFAULT_ROWS = 100
MOST_ROWS = 1000
MOST_PARAMETERS = 100
MOST_FINDINGS = 20
"""Unknown parameters that become problems: nobody mends more at once, and each costs time to word."""
LONGEST_GUESSED_NAME = 64
"""Characters up to which an unknown name is compared with the known ones."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a caller wants of a list."""

    tests: tuple[tuple[Column, tuple[Test, ...]], ...]
    """For each filtered column, tests of which a row has to pass one."""
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
        return all(any(test(column.value(row)) for test in tests) for column, tests in self.tests)


def read_list_query(parameters: Sequence[tuple[str, str]], columns: Sequence[Column], meanings: Meanings) -> ListQuery:
    """What a query string asks of a list.

    A column given twice admits either value; different columns must all agree; an empty value means that nothing
    is known. Text is compared without regard to capitals, a list by its members.

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
        raise Refused(*(_unknown(name, names) for name in unknown[:MOST_FINDINGS]))
    if len(parameters) > MOST_PARAMETERS:
        message = f"the query has {len(parameters)} parameters, each of which costs time on every row"
        raise Refused(Problem(field="", code="too_long", message=message, fix=f"give at most {MOST_PARAMETERS}"))
    given: dict[str, list[str]] = {}
    for name, text in parameters:
        given.setdefault(name, []).append(text)
    limit, cursor = (_once(name, given.pop(name, [])) for name in PAGING)
    return ListQuery(
        tests=tuple(
            (known[name], tuple(_test(known[name], text, meanings.get(name)) for text in texts))
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


def _test(column: Column, text: str, meant: Callable[[str], Collection[str]] | None) -> Test:
    """Whether a value is the one that a filter names."""
    types = column.types
    if not text:
        return lambda value: value is None or value in ("", ())
    if meant is not None:
        names = meant(text)
        return lambda value: value in names
    if types & {"integer", "number", "boolean"}:
        number = read_value(column.name, "truth" if "boolean" in types else "number", text, ".")
        return lambda value: value == number
    if column.choices and text not in column.choices:
        message = f"{column.name} has no such value"
        fix = f"use {' or '.join(column.choices)}"
        raise Refused(Problem(field=column.name, code="not_a_choice", message=message, fix=fix))
    wanted = text.casefold()
    if "array" in types:
        return lambda value: value is not None and any(item.casefold() == wanted for item in value)
    return lambda value: value is not None and value.casefold() == wanted


def _unknown(name: str, known: list[str]) -> Problem:
    near = get_close_matches(name[:LONGEST_GUESSED_NAME].lower(), known, n=3, cutoff=0.6)
    fix = f"did you mean {' or '.join(near)}?" if near else f"leave it out, or use {', '.join(known)}"
    message = "the query names a column that this list does not have; it would change nothing, so it is refused"
    return Problem(field="", code="unknown_parameter", message=message, fix=fix)
