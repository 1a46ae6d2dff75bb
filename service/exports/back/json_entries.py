"""What does a JSON file say, setting by setting?"""

import json
import re
from math import isfinite
from typing import Any

from service.exports.back.entries import MOST_WORDS, Entry, Place, once, place_of, refusal

_TOKEN = re.compile(r'[\s:,]*("(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]:,"]+)')

LONGEST_NUMBER = 64
"""Characters of one number; 24 spell any double."""


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
    try:
        json.loads(text, parse_int=lambda _: 0, parse_float=lambda _: 0)
    except json.JSONDecodeError as error:
        raise refusal(Place(error.lineno, error.colno), "not_json", "this is no JSON", "mend it there") from None
    except RecursionError:
        raise refusal(Place(1, 1), "too_deep", "objects stand too deep inside each other", "flatten the file") from None
    tokens = [(match[1], match.start(1)) for match in _TOKEN.finditer(text)]
    if tokens[0][0] != "{":
        raise refusal(Place(1, 1), "not_an_object", "the file is no object", "give settings with their values")
    if len(tokens) > MOST_WORDS:
        raise refusal(place_of(text, tokens[MOST_WORDS][1]), "too_long", "the file has too many values", "send less")
    try:
        return once(_object(text, tokens[::-1], ""))
    except RecursionError:
        raise refusal(Place(1, 1), "too_deep", "objects stand too deep inside each other", "flatten the file") from None


Tokens = list[tuple[str, int]]
"""What a text is made of but colons and commas, each with its offset, the last one first."""


def _object(text: str, tokens: Tokens, outer: str) -> list[Entry]:
    found: list[Entry] = []
    seen: set[str] = set()
    tokens.pop()
    while tokens[-1][0] != "}":
        word, offset = tokens.pop()
        key = json.loads(word)
        if key in seen:
            raise refusal(
                place_of(text, offset), "duplicate_key", "the setting is given before already", "give it once"
            )
        seen.add(key)
        name = f"{outer}.{key}" if outer else key
        if tokens[-1][0] == "{":
            found += _object(text, tokens, name)
        else:
            place = place_of(text, tokens[-1][1])
            found.append(Entry(name, _value(text, tokens), place))
    tokens.pop()
    return found


def _value(text: str, tokens: Tokens) -> Any:
    word, offset = tokens[-1]
    if word == "{":
        return tuple((entry.name, entry.value) for entry in _object(text, tokens, ""))
    tokens.pop()
    if word != "[":
        return _scalar(text, word, offset)
    items = []
    while tokens[-1][0] != "]":
        items.append(_value(text, tokens))
    tokens.pop()
    return tuple(items)


def _scalar(text: str, word: str, offset: int) -> Any:
    value = json.loads(word) if len(word) <= LONGEST_NUMBER or word.startswith('"') else float("nan")
    if isinstance(value, float) and not isfinite(value):
        place = place_of(text, offset)
        raise refusal(place, "not_finite", "the number is infinite or too long", "give a finite number")
    return value
