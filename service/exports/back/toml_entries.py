"""What does a TOML file say, setting by setting?"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from service.exports.back.entries import Entry, Place, once, place_of, refusal

_SAID_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")
_TABLE = re.compile(r"^[ \t]*\[([A-Za-z0-9_. \t\"'-]+)\][ \t]*(?:#.*)?$")
_KEY = re.compile(r"^[ \t]*([A-Za-z0-9_.\"'-]+)[ \t]*=[ \t]*")


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
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = _SAID_PLACE.search(str(error))
        place = Place(int(said[1]), int(said[2])) if said else place_of(text, len(text))
        fix = "mend it there, or before; a key is given once"
        raise refusal(place, "not_toml", "this is no TOML", fix) from None
    except RecursionError:
        raise refusal(Place(1, 1), "too_deep", "lists stand too deep inside each other", "flatten the file") from None
    places = dict(_places(text))
    return once([Entry(name, value, _nearest(places, name)) for name, value in _flat(tables, "")])


def _flat(table: Mapping[str, Any], outer: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{outer}.{key}" if outer else key
        if isinstance(value, Mapping):
            yield from _flat(value, name)
        else:
            yield name, tuple(value) if isinstance(value, list) else value


def _places(text: str) -> Iterator[tuple[str, Place]]:
    """Where values stand, as far as lines tell: a line that only looks like a setting gives a place nobody asks for."""
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")  # noqa: PLW2901 - the same line, without what ends it
        if head := _TABLE.match(line):
            table = head[1].strip()
            yield table, Place(number, 1)
        elif key := _KEY.match(line):
            name = key[1].replace('"', "").replace("'", "")
            yield (f"{table}.{name}" if table else name), Place(number, key.end() + 1)


def _nearest(places: Mapping[str, Place], name: str) -> Place:
    while name not in places and name:
        name = name.rpartition(".")[0]
    return places.get(name, Place(1, 1))
