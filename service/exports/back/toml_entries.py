"""The settings of a TOML file."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from service.exports.back.entries import Entry, joined, once
from service.text_bounds import LONGEST_NAME, Lines, Place, bound_toml, refusal, too_deep

_ERROR_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")
_TABLE = re.compile(r"^[ \t]*\[([A-Za-z0-9_. \t\"'-]++)\][ \t]*(?:#.*)?$")
_KEY = re.compile(r"^[ \t]*([A-Za-z0-9_.\"'-]++)[ \t]*=[ \t]*")


def read_toml(text: str) -> tuple[Entry, ...]:
    r"""The settings of a TOML file.

    Args:
        text: the file

    Returns:
        each value that is no table

    Raises:
        Refused: it is no TOML; a key given twice is none either

    >>> [(entry.name, entry.value, entry.place.line) for entry in read_toml("[a]\nb = 1\n")]
    [('a.b', 1, 2)]
    """
    bound_toml(text)
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise too_deep(Place(1, 1)) from None
    except ValueError as error:
        stated = _ERROR_PLACE.search(str(error))
        place = Place(int(stated[1]), int(stated[2])) if stated else Lines(text).place(len(text))
        fix = "mend it there, or before; a key is given once"
        raise refusal(place, "not_toml", "this is no TOML", fix) from None
    places = dict(_places(text))
    return once(Entry(name, value, _nearest(places, name)) for name, value in _flat(tables, ""))


def _flat(table: Mapping[str, Any], outer: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = joined(outer, key)
        if isinstance(value, Mapping):
            yield from _flat(value, name)
        else:
            yield name, tuple(value) if isinstance(value, list) else value


def _places(text: str) -> Iterator[tuple[str, Place]]:
    """Where values stand, as far as lines show: a line that only resembles a setting gives a place nobody asks for."""
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")  # noqa: PLW2901 - the same line, without what ends it
        if head := _TABLE.match(line):
            table = head[1].strip()[: LONGEST_NAME + 1]
            yield table, Place(number, 1)
        elif key := _KEY.match(line):
            yield joined(table, key[1].replace('"', "").replace("'", "")), Place(number, key.end() + 1)


def _nearest(places: Mapping[str, Place], name: str) -> Place:
    while name not in places and name:
        name = name.rpartition(".")[0]
    return places.get(name, Place(1, 1))
