"""The settings of a YAML file: plain mappings and lists, no anchor, no alias, no tag.

The parser hands out one event after another and reads only some characters ahead, so what is refused ends its work.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from service.exports.back.entries import Entry, joined, once
from service.text_bounds import DEEPEST, MOST_WORDS, Place, bound_yaml, refusal, too_deep, too_many_words

_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,18}\.?[0-9]{0,18}|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "null": None, "~": None}

Events = Iterator[Any]


def read_yaml(text: str) -> tuple[Entry, ...]:
    r"""The settings of a YAML file.

    Args:
        text: the file

    Returns:
        each value that is no mapping, in order

    Raises:
        Refused: it is no YAML, holds an anchor, an alias, a tag or a key twice, is no mapping, or is too long or deep

    >>> [(entry.name, entry.value) for entry in read_yaml("a:\n  b: 1\n  c: [x, 2.5]\n")]
    [('a.b', 1), ('a.c', ('x', 2.5))]
    """
    bound_yaml(text)
    try:
        events = _checked(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        first = next(events)
        if not isinstance(first, yaml.MappingStartEvent):
            raise refusal(_place(first), "not_an_object", "the file is no mapping", "give settings with their values")
        found = once(_mapping(events, "", 1))
        for extra in events:
            raise refusal(_place(extra), "many_documents", "the file holds more than one document", "send one")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        raise refusal(place, "not_yaml", "this is no YAML", "mend it there, or before") from None
    except (yaml.YAMLError, StopIteration, ValueError, RecursionError):
        raise refusal(Place(1, 1), "not_yaml", "this is no YAML", "send settings with their values") from None
    return found


def _checked(events: Events) -> Events:
    """Events that mean something, in documents without anchors, aliases and tags."""
    for count, event in enumerate(events):
        if count > MOST_WORDS:
            raise too_many_words(_place(event))
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise refusal(_place(event), "anchor", "anchors and aliases are not taken", "write the value out")
        if getattr(event, "tag", None):
            raise refusal(_place(event), "tag", "tags are not taken", "leave the tag out")
        if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            yield event


def _mapping(events: Events, outer: str, depth: int) -> Iterator[Entry]:
    seen: set[str] = set()
    for key in events:
        if isinstance(key, yaml.MappingEndEvent):
            return
        if depth > DEEPEST:
            raise too_deep(_place(key))
        if not isinstance(key, yaml.ScalarEvent):
            raise refusal(_place(key), "too_deep", "a key is a list or a mapping", "name settings by text")
        if key.value in seen:
            raise refusal(_place(key), "duplicate_key", "the setting is given before already", "give it once")
        seen.add(key.value)
        name = joined(outer, key.value)
        value = next(events)
        if isinstance(value, yaml.MappingStartEvent):
            yield from _mapping(events, name, depth + 1)
        else:
            yield Entry(name, _value(events, value, depth + 1), _place(value))


def _value(events: Events, event: Any, depth: int) -> Any:
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if depth > DEEPEST:
        raise too_deep(_place(event))
    if isinstance(event, yaml.MappingStartEvent):
        return tuple((entry.name, entry.value) for entry in _mapping(events, "", depth + 1))
    items = []
    for item in events:
        if isinstance(item, yaml.SequenceEndEvent):
            break
        items.append(_value(events, item, depth + 1))
    return tuple(items)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = event.value
    if not event.implicit[0]:
        return text
    if text == "" or text.lower() in _WORDS:
        return _WORDS.get(text.lower())
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)
