"""Settings to text and back: YAML, TOML, JSON and command lines."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from shlex import quote
from typing import Any

import yaml

from service import text_bounds
from service.text_bounds import Lines, Place, is_text, refusal

Settings = tuple[tuple[str, Any], ...]
"""Names of a tool's settings with their values, in file order."""

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
"""Texts that need no quotes in YAML."""

_TAKEN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Texts that YAML reads as truth values or null."""

WIDEST_LINE = 88


def nested(settings: Settings) -> dict[str, Any]:
    """Settings with dotted names as nested mappings.

    >>> nested((("a.b", 1), ("a.c", 2)))
    {'a': {'b': 1, 'c': 2}}
    """
    found: dict[str, Any] = {}
    for name, value in settings:
        *outer, last = name.split(".")
        place = found
        for step in outer:
            place = place.setdefault(step, {})
        place[last] = value
    return found


def yaml_text(value: Mapping[str, Any]) -> str:
    """A mapping as YAML.

    >>> print(yaml_text({"a": {"b": [1, "no"], "c": None}}), end="")
    a:
      b:
        - 1
        - "no"
      c: null
    """
    return "".join(f"{line}\n" for line in _yaml_lines(value))


def _yaml_lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _yaml_entry(f"{_yaml_scalar(key)}:", item, "  ")
    else:
        for item in value:
            yield from _yaml_item(item)


def _yaml_entry(head: str, item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, str) and "\n" in item:
        yield f"{head} |{'' if item.endswith(chr(10)) else '-'}"
        yield from (f"{indent}{line}" if line else "" for line in item.removesuffix("\n").split("\n"))
    elif isinstance(item, Mapping | list | tuple) and item:
        yield head
        yield from (f"{indent}{line}" for line in _yaml_lines(item))
    else:
        yield f"{head} {_yaml_scalar(item)}"


def _yaml_item(item: Any) -> Iterator[str]:
    if isinstance(item, Mapping | list | tuple) and item:
        first, *others = _yaml_lines(item)
        yield f"- {first}"
        yield from (f"  {line}" for line in others)
    else:
        yield from _yaml_entry("-", item, "  ")


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _TAKEN:
        return value
    return number_text(value) if isinstance(value, float) else json.dumps(value)


def number_text(value: float) -> str:
    """A number that every reader of YAML, TOML and JSON takes for one: 1e-08 has no point, and is text to some.

    >>> number_text(1e-08), number_text(0.5)
    ('1.0e-08', '0.5')
    """
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def toml_text(sections: Mapping[str, Any]) -> str:
    """Mappings as TOML tables.

    >>> print(toml_text({"a": {"b": 1, "c": {"d": ["x"]}}}), end="")
    [a]
    b = 1
    <BLANKLINE>
    [a.c]
    d = ["x"]
    """
    return "\n".join(_toml_tables(sections, ""))


def _toml_tables(table: Mapping[str, Any], path: str) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if plain:
        head = f"[{path}]\n" if path else ""
        yield head + "".join(f"{key} = {_toml_value(value)}\n" for key, value in plain.items())
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _toml_tables(value, f"{path}.{key}" if path else key)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    return number_text(value) if isinstance(value, float) else json.dumps(value)


def json_text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def words_of(settings: Settings) -> list[str]:
    """Settings as command-line words: a name alone if true, else with its value or values.

    >>> words_of((("bf16", True), ("recompute-modules", ("mlp", "moe")), ("lr", 1)))
    ['--bf16', '--recompute-modules', 'mlp', 'moe', '--lr', '1']
    """
    words: list[str] = []
    for name, value in settings:
        listed = value if isinstance(value, list | tuple) else () if value is True else (value,)
        words += [f"--{name}", *(number_text(item) if isinstance(item, float) else str(item) for item in listed)]
    return words


def command_text(words: Sequence[str], raw: Sequence[str] = ()) -> str:
    """Words as a shell command, broken into lines.

    >>> command_text(["echo", "a b", "$RANK"], ["$RANK"])
    "echo 'a b' $RANK"
    """
    lines, line = [], ""
    for word in words:
        spelled = word if word in raw else quote(word)
        starts = word.startswith("--") and len(line) + len(spelled) > WIDEST_LINE - 16
        if line and (starts or len(line) + len(spelled) > WIDEST_LINE):
            lines.append(line)
            line = spelled
        else:
            line = f"{line} {spelled}" if line else spelled
    return " \\\n  ".join([*lines, line])


LONGEST_FILE_BYTES = 256 * 1024

MOST_FILES = 8
"""Most files beside the first. Source: a choice."""

NAMELESS = "$"
"""Begin of the name of a setting that stands for words which are not known."""

LONGEST_SHOWN = 80
"""Characters of a path that are repeated."""


def shortened(path: str) -> str:
    """A path, or the end of a long one.

    >>> shortened("a/b.yaml"), len(shortened("a" * 100))
    ('a/b.yaml', 83)
    """
    return path if len(path) <= LONGEST_SHOWN else f"...{path[-LONGEST_SHOWN:]}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that depends on what only the job has."""

    name: str
    """The variable or the command, as a script spells it."""
    why: str
    """Why it is not known."""
    place: Place
    """Where the script uses it."""
    many: bool = False
    """Whether it may be several words."""

    @property
    def explained(self) -> str:
        """Its name with its line and why it is not known."""
        return f"{self.name} of line {self.place.line}, {self.why}"


def unknown_in(value: Any) -> Unknown | None:
    """The first unknown part of a setting's value.

    >>> unknown_in(("8", Unknown("$TP", "which the script does not set", Place(3, 1)))).name
    '$TP'
    """
    if isinstance(value, tuple):
        return next((found for one in value if (found := unknown_in(one)) is not None), None)
    return value if isinstance(value, Unknown) else None


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    """Its name, with outer names and dots before it."""
    value: Any
    """Text, number, truth value, None, Unknown, or a list of such; for an option all its words."""
    place: Place
    """Place of its value, or of its name without one."""

    @property
    def word(self) -> Any:
        """Its value; of an option with one word, that."""
        return single(self.value)


def single(value: Any) -> Any:
    """A value; of a list of one, that."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def checked_once(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The settings of a file; a repeated one is refused."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if len(entry.name) > text_bounds.LONGEST_NAME:
            raise refusal(entry.place, *text_bounds.TOO_LONG_A_NAME)
        if not is_text(entry.name):
            raise refusal(entry.place, *text_bounds.NOT_TEXT)
        if entry.name in found:
            raise refusal(entry.place, "duplicate_key", "the setting is given before already", "give it once")
        found[entry.name] = entry
        if len(found) > text_bounds.MOST_SETTINGS:
            raise refusal(entry.place, *text_bounds.TOO_MANY_SETTINGS)
    return tuple(found.values())


def full_name(outer: str, key: str) -> str:
    """The whole name of a setting; cut beyond the longest allowed, so that it is refused and never grows."""
    return f"{outer}.{key}"[: text_bounds.LONGEST_NAME + 1] if outer else key[: text_bounds.LONGEST_NAME + 1]


_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]|[^\s{}\[\]:,"]++')


def read_json(text: str) -> tuple[Entry, ...]:
    """The settings of a JSON file.

    >>> [(entry.name, entry.value, entry.place.column) for entry in read_json('{"a": {"b": [1, 2]}}')]
    [('a.b', (1, 2), 13)]
    """
    text_bounds.bound_json(text)
    try:
        json.loads(text, parse_int=lambda _: 0, parse_float=lambda _: 0)
    except json.JSONDecodeError as error:
        raise refusal(Place(error.lineno, error.colno), "not_json", "this is no JSON", "mend it there") from None
    except RecursionError:
        raise refusal(Place(1, 1), *text_bounds.TOO_DEEP) from None
    tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
    if tokens[0][0] != "{":
        raise refusal(Place(1, 1), "not_an_object", "the file is no object", "give settings with their values")
    return checked_once(_Reader(Lines(text), tokens[::-1]).members(""))


class _Reader:
    """Parser of tokens without colons and commas, each with its offset, the last one first."""

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
            name = full_name(outer, key)
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
            raise refusal(self._lines.place(offset), *text_bounds.NOT_TEXT)
        return value


_ERROR_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")
_TABLE = re.compile(r"^[ \t]*\[([A-Za-z0-9_. \t\"'-]++)\][ \t]*(?:#.*)?$")
_KEY = re.compile(r"^[ \t]*([A-Za-z0-9_.\"'-]++)[ \t]*=[ \t]*")


def read_toml(text: str) -> tuple[Entry, ...]:
    r"""The settings of a TOML file.

    >>> [(entry.name, entry.value, entry.place.line) for entry in read_toml("[a]\nb = 1\n")]
    [('a.b', 1, 2)]
    """
    text_bounds.bound_toml(text)
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise refusal(Place(1, 1), *text_bounds.TOO_DEEP) from None
    except ValueError as error:
        stated = _ERROR_PLACE.search(str(error))
        place = Place(int(stated[1]), int(stated[2])) if stated else Lines(text).place(len(text))
        fix = "mend it there, or before; a key is given once"
        raise refusal(place, "not_toml", "this is no TOML", fix) from None
    places = dict(_places(text))
    return checked_once(Entry(name, value, _nearest(places, name)) for name, value in _flat(tables, ""))


def _flat(table: Mapping[str, Any], outer: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = full_name(outer, key)
        if isinstance(value, Mapping):
            yield from _flat(value, name)
        else:
            yield name, tuple(value) if isinstance(value, list) else value


def _places(text: str) -> Iterator[tuple[str, Place]]:
    """Places of values by a scan of lines; a line that only resembles a setting adds a place that is never used."""
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")  # noqa: PLW2901 - the same line, without what ends it
        if head := _TABLE.match(line):
            table = head[1].strip()[: text_bounds.LONGEST_NAME + 1]
            yield table, Place(number, 1)
        elif key := _KEY.match(line):
            yield full_name(table, key[1].replace('"', "").replace("'", "")), Place(number, key.end() + 1)


def _nearest(places: Mapping[str, Place], name: str) -> Place:
    while name not in places and name:
        name = name.rpartition(".")[0]
    return places.get(name, Place(1, 1))


_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,18}\.?[0-9]{0,18}|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "null": None, "~": None}

Events = Iterator[Any]


def read_yaml(text: str) -> tuple[Entry, ...]:
    r"""The settings of a YAML file: mappings and lists, with what their aliases stand for.

    The parser reads only some characters ahead, so a refusal ends its work.

    >>> [(entry.name, entry.value) for entry in read_yaml("a: &x\n  b: 1\n  c: [y, 2.5]\nd: {<<: *x, b: 2}\n")]
    [('a.b', 1), ('a.c', ('y', 2.5)), ('d.b', 2), ('d.c', ('y', 2.5))]
    """
    text_bounds.bound_yaml(text)
    try:
        events = _expanded(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        first = next(events)
        if not isinstance(first, yaml.MappingStartEvent):
            raise refusal(_place(first), "not_an_object", "the file is no mapping", "give settings with their values")
        found = checked_once(_mapping(events, "", 1))
        for extra in events:
            raise refusal(_place(extra), "many_documents", "the file holds more than one document", "send one")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        raise refusal(place, "not_yaml", "this is no YAML", "mend it there, or before") from None
    except (yaml.YAMLError, StopIteration, ValueError, RecursionError):
        raise refusal(Place(1, 1), "not_yaml", "this is no YAML", "send settings with their values") from None
    return found


@dataclass(slots=True)
class _Recording:
    """The events of an anchored node."""

    name: str
    events: list[Any] = field(default_factory=list)
    depth: int = 0

    def add(self, event: Any) -> None:
        self.events.append(event)
        if isinstance(event, yaml.CollectionStartEvent | yaml.CollectionEndEvent):
            self.depth += 1 if isinstance(event, yaml.CollectionStartEvent) else -1


def _expanded(events: Events) -> Events:
    """Node events of documents without tags but for sets, with those of an anchored node in place of each alias."""
    anchored: dict[str, list[Any]] = {}
    recordings: list[_Recording] = []
    count = characters = 0
    for event in events:
        if not isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            continue
        for one in _nodes_of(event, anchored, recordings):
            count, characters = count + 1, characters + len(getattr(one, "value", ""))
            if count > text_bounds.MOST_WORDS or characters > LONGEST_FILE_BYTES:
                raise refusal(_place(event), *text_bounds.TOO_MUCH_YAML)
            for recording in recordings:
                recording.add(one)
            yield one
        while recordings and recordings[-1].depth == 0:
            ended = recordings.pop()
            anchored[ended.name] = ended.events


def _nodes_of(event: Any, anchored: Mapping[str, list[Any]], recordings: list[_Recording]) -> list[Any]:
    """An event, or those that an alias stands for; an anchor begins a recording."""
    if getattr(event, "tag", None) not in (None, _SET):
        raise refusal(_place(event), "tag", "tags are not taken", _WITHOUT_TAG)
    anchor = str(getattr(event, "anchor", None) or "")
    if not isinstance(event, yaml.AliasEvent):
        recordings += [_Recording(anchor)] if anchor else []
        return [event]
    if anchor not in anchored:
        raise refusal(_place(event), "anchor", "no node that ends before the alias has its name", _ANCHORED)
    return anchored[anchor]


_SET = "tag:yaml.org,2002:set"
"""Tag of a mapping whose keys alone count."""

_WITHOUT_TAG = "leave the tag out, and write the value as a text, a number, a list or a mapping"
_ANCHORED = "put & and the name before a value above, or write the value out"


_MERGE = "<<"
"""Key of mappings whose settings count where the mapping has none of their names."""


def _mapping(events: Events, outer: str, depth: int) -> Iterator[Entry]:
    """The settings of the mapping that begins here."""
    return (entry for _, entry in _members(events, outer, depth))


def _members(events: Events, outer: str, depth: int) -> Iterator[tuple[str, Entry]]:
    """The settings of a mapping with its keys, those that it merges last.

    A setting may be given again with the same value, or where it was null before, as every reader takes it alike.
    """
    found: dict[str, list[Entry]] = {}
    merged: dict[str, list[Entry]] = {}
    for key in events:
        if isinstance(key, yaml.MappingEndEvent):
            break
        if depth > text_bounds.DEEPEST:
            raise refusal(_place(key), *text_bounds.TOO_DEEP)
        if not isinstance(key, yaml.ScalarEvent):
            raise refusal(_place(key), "too_deep", "a key is a list or a mapping", "name settings by text")
        name = full_name(outer, key.value)
        value = next(events)
        is_merge = key.value == _MERGE and key.implicit[0]
        if merged if is_merge else not _may_be_given(name, found.get(key.value), value):
            raise refusal(_place(key), "duplicate_key", "the setting is given before already", "give it once")
        if is_merge:
            merged = _merged(events, value, outer, depth + 1)
        elif isinstance(value, yaml.MappingStartEvent) and value.tag != _SET:
            found[key.value] = [*_mapping(events, name, depth + 1)]
        else:
            found[key.value] = [Entry(name, _value(events, value, depth + 1), _place(value))]
    for one, entries in (found | {one: merged[one] for one in merged if one not in found}).items():
        yield from ((one, entry) for entry in entries)


def _may_be_given(name: str, before: Sequence[Entry] | None, event: Any) -> bool:
    """Whether a value may follow the settings that the same key gave before."""
    if before is None:
        return True
    if [one.name for one in before] != [name]:
        return False
    value = before[0].value
    return value is None or (isinstance(event, yaml.ScalarEvent) and repr(value) == repr(_scalar(event)))


def _merged(events: Events, value: Any, outer: str, depth: int) -> dict[str, list[Entry]]:
    """The settings of a mapping, or of several of which the first counts, by their keys."""
    found: dict[str, list[Entry]] = {}
    for start in events if isinstance(value, yaml.SequenceStartEvent) else [value]:
        if isinstance(start, yaml.SequenceEndEvent):
            break
        if not isinstance(start, yaml.MappingStartEvent):
            raise refusal(_place(start), "not_an_object", "what is merged is no mapping", "merge mappings alone")
        one: dict[str, list[Entry]] = {}
        for key, entry in _members(events, outer, depth):
            one.setdefault(key, []).append(entry)
        found = one | found
    return found


def _value(events: Events, event: Any, depth: int) -> Any:
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if depth > text_bounds.DEEPEST:
        raise refusal(_place(event), *text_bounds.TOO_DEEP)
    if isinstance(event, yaml.MappingStartEvent) and event.tag == _SET:
        return tuple(entry.name for entry in _mapping(events, "", depth + 1))
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


def options_in(words: Sequence[tuple[str, Place]]) -> tuple[Entry, ...]:
    """The options among words with their places; of a repeated one the last counts, as for argparse.

    >>> here = Place(1, 1)
    >>> [(one.name, one.value) for one in options_in([("--a", here), ("1", here), ("2", here), ("--b=3", here)])]
    [('a', ('1', '2')), ('b', ('3',))]
    """
    found: dict[str, tuple[list[str], Place]] = {}
    values: list[str] | None = None
    for word, place in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if " " in name:
                message = "the option's name holds a blank, for one pair of quotes is around several words"
                raise refusal(place, "not_an_option", message, "leave those quotes out")
            values = [value] if equals else []
            found.pop(name, None)
            found[name] = values, place
        elif values is not None:
            values.append(word)
        else:
            raise refusal(
                place, "not_an_option", "the arguments begin with no option", "begin with one, such as --bf16"
            )
    return checked_once(Entry(name, tuple(given), place) for name, (given, place) in found.items())
