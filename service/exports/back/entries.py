"""The settings of a file, one by one, each with the place where it stands."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.text_bounds import (
    LONGEST_NAME,
    MOST_SETTINGS,
    Place,
    is_text,
    not_text,
    refusal,
    too_long_a_name,
    too_many_settings,
)

LONGEST_FILE_BYTES = 256 * 1024
"""Longest file that is read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting."""

    name: str
    """Its name, outer names before it with dots between."""
    value: Any
    """Text, number, truth, None, or a list of such; of an option all its words."""
    place: Place
    """Where its value stands, or its name where it has none."""


def once(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The settings of a file, none of which may be given twice.

    Args:
        entries: settings, read one by one: what is refused ends the reading

    Returns:
        the same

    Raises:
        Refused: one is given twice, so its meaning is unclear, a name is too long, or there are too many
    """
    found: dict[str, Entry] = {}
    for entry in entries:
        if len(entry.name) > LONGEST_NAME:
            raise too_long_a_name(entry.place)
        if not is_text(entry.name):
            raise not_text(entry.place)
        if entry.name in found:
            raise refusal(entry.place, "duplicate_key", "the setting is given before already", "give it once")
        found[entry.name] = entry
        if len(found) > MOST_SETTINGS:
            raise too_many_settings(entry.place)
    return tuple(found.values())


def joined(outer: str, key: str) -> str:
    """The whole name of a setting; cut where it is longer than any, so that it is refused and never grows."""
    return f"{outer}.{key}"[: LONGEST_NAME + 1] if outer else key[: LONGEST_NAME + 1]
