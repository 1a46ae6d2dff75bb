"""The settings of a JSON file."""

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

from service.exports.back.entries import Entry, joined, once
from service.text_bounds import Lines, Place, bound_json, is_text, not_text, refusal, too_deep

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]|[^\s{}\[\]:,"]++')


def read_json(text: str) -> tuple[Entry, ...]:
    """The settings of a JSON file.

    Args:
        text: the file

    Returns:
        each value that is no object

    Raises:
        Refused: it is no JSON object, or holds a key twice or a number that no field can hold

    >>> [(entry.name, entry.value, entry.place.column) for entry in read_json('{"a": {"b": [1, 2]}}')]
    [('a.b', (1, 2), 13)]
    """
    bound_json(text)
    try:
        json.loads(text, parse_int=lambda _: 0, parse_float=lambda _: 0)
    except json.JSONDecodeError as error:
        raise refusal(Place(error.lineno, error.colno), "not_json", "this is no JSON", "mend it there") from None
    except RecursionError:
        raise too_deep(Place(1, 1)) from None
    tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
    if tokens[0][0] != "{":
        raise refusal(Place(1, 1), "not_an_object", "the file is no object", "give settings with their values")
    return once(_Reader(Lines(text), tokens[::-1]).members(""))


class _Reader:
    """Reads the parts of a text but colons and commas, each with its offset, the last one first."""

    def __init__(self, lines: Lines, tokens: list[tuple[str, int]]) -> None:
        self._lines, self._tokens = lines, tokens

    def members(self, outer: str) -> Iterator[Entry]:
        """The settings of the object that begins here."""
        tokens = self._tokens
        seen: set[str] = set()
        tokens.pop()
        while tokens[-1][0] != "}":
            word, offset = tokens.pop()
            key = json.loads(word)
            if key in seen:
                place = self._lines.place(offset)
                raise refusal(place, "duplicate_key", "the setting is given before already", "give it once")
            seen.add(key)
            name = joined(outer, key)
            if tokens[-1][0] == "{":
                yield from self.members(name)
            else:
                place = self._lines.place(tokens[-1][1])
                yield Entry(name, self._value(), place)
        tokens.pop()

    def _value(self) -> Any:
        tokens = self._tokens
        word, offset = tokens[-1]
        if word == "{":
            return tuple((entry.name, entry.value) for entry in self.members(""))
        tokens.pop()
        if word != "[":
            return self._scalar(word, offset)
        items = []
        while tokens[-1][0] != "]":
            items.append(self._value())
        tokens.pop()
        return tuple(items)

    def _scalar(self, word: str, offset: int) -> Any:
        value = json.loads(word)
        if isinstance(value, float) and not isfinite(value):
            raise refusal(self._lines.place(offset), "not_finite", "the number is infinite", "give a finite number")
        if isinstance(value, str) and not is_text(value):
            raise not_text(self._lines.place(offset))
        return value
