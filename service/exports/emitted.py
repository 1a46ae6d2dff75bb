"""How do settings become text: YAML, TOML, JSON, a command line?

Only what our own settings need: mappings, lists, texts, numbers, truths. Texts are quoted wherever a reader could take
them for something else.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from service.exports.said import Settings

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
"""Texts that need no quotes in YAML."""

_TAKEN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Texts that YAML takes for truths or for nothing."""

WIDEST_LINE = 88
"""Characters of a line of a command before it is broken."""


def nested(settings: Settings) -> dict[str, Any]:
    """Settings whose names hold dots as mappings inside each other.

    Args:
        settings: names with values

    Returns:
        the outermost mapping

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

    Args:
        value: the mapping

    Returns:
        the text, in block style

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

    Args:
        value: the number

    Returns:
        its text

    >>> number_text(1e-08), number_text(0.5)
    ('1.0e-08', '0.5')
    """
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def toml_text(sections: Mapping[str, Any]) -> str:
    """Mappings as TOML tables.

    Args:
        sections: what each table holds

    Returns:
        the text

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
    """A mapping as JSON for people.

    Args:
        value: the mapping

    Returns:
        the text
    """
    return json.dumps(value, indent=2) + "\n"


def words_of(settings: Settings) -> list[str]:
    """Settings as words of a command line: a name alone where it is true, with its value or values otherwise.

    Args:
        settings: options with values

    Returns:
        the words

    >>> words_of((("--bf16", True), ("--recompute-modules", ("mlp", "moe")), ("--lr", 1)))
    ['--bf16', '--recompute-modules', 'mlp', 'moe', '--lr', '1']
    """
    words: list[str] = []
    for name, value in settings:
        listed = value if isinstance(value, list | tuple) else () if value is True else (value,)
        words += [name, *(number_text(item) if isinstance(item, float) else str(item) for item in listed)]
    return words


def command_text(words: Sequence[str], raw: Sequence[str] = ()) -> str:
    """Words as a shell reads them, in lines that are easy to read.

    Args:
        words: the words
        raw: words that the shell is to work out itself, such as "$RANK", and that stand in the words

    Returns:
        the command, its lines joined by backslashes

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
