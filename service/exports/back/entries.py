"""What does a file say, setting by setting, and where in it does each stand?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.errors import Problem, Refused

LONGEST_FILE_BYTES = 256 * 1024
"""Longest file that is read."""

MOST_ENTRIES = 4096
"""Settings of one file; the longest real ones have some 300."""

MOST_WORDS = 4 * MOST_ENTRIES
"""Words of one file, names and values together."""

FIELD = "content"
"""The field that a refusal names: all of them are about the file."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text."""

    line: int
    """Its line, from 1."""
    column: int
    """Its column, from 1."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting."""

    name: str
    """Its name, outer names before it with dots between."""
    value: Any
    """Text, number, truth, None, or a list of such; of an option all its words."""
    place: Place
    """Where its value stands, or its name where it has none."""


def place_of(text: str, offset: int) -> Place:
    r"""The place of a character.

    Args:
        text: the text
        offset: characters before it

    Returns:
        the place

    >>> place_of("ab\ncd", 4)
    Place(line=2, column=2)
    """
    before = text.rfind("\n", 0, offset)
    return Place(text.count("\n", 0, offset) + 1, offset - before)


def refusal(place: Place, code: str, message: str, fix: str) -> Refused:
    """The refusal of a file for what stands at a place.

    Args:
        place: where
        code: which rule it breaks
        message: what is wrong there
        fix: what to do about it

    Returns:
        the refusal; it repeats nothing of the file
    """
    said = f"line {place.line}, column {place.column}: {message}"
    return Refused(Problem(field=FIELD, code=code, message=said, fix=fix))


def once(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Settings, none of which stands there twice.

    Args:
        entries: what a file says

    Returns:
        the same

    Raises:
        Refused: one is given twice, so its meaning is unclear, or there are too many
    """
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise refusal(entry.place, "duplicate_key", "the setting is given before already", "give it once")
        seen.add(entry.name)
        if len(seen) > MOST_ENTRIES:
            raise refusal(entry.place, "too_long", f"a file has at most {MOST_ENTRIES} settings", "send less")
    return tuple(entries)
