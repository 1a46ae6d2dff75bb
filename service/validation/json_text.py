"""Strict JSON: bodies of requests and files of commands, merge patches (RFC 7396), and the characters of texts."""

import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from service.errors import MOST_PROBLEMS, NotJson, Problem, Refused, TraincostError
from service.text_bounds import is_text

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names of fields that the pointer of a problem repeats; others, which may hold anything, it leaves out."""

MAXIMUM_DEPTH = 32
"""Nesting depth of lists and objects."""
MAXIMUM_VALUES = 100_000
"""Values in one body; a batch of 1,000 questions has some 40,000."""
MAXIMUM_ITEMS = 4_096
"""Items of one list, fields of one object; a config.json has some 200."""
MAXIMUM_DIGITS = 64
"""Characters of one number; any double takes at most 24."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Placeholder in a parsed body for a value that JSON's grammar allows and this service does not."""

    code: str
    message: str
    fix: str


INFINITE_BY_DESIGN = frozenset({"time_step_limit"})
"""Keys that published config.json files set to Infinity, which is not JSON; no code reads them, so they become null."""

NOT_FINITE = Fault("not_finite", "the number is infinite or not a number", "give a finite number")
TOO_MANY_DIGITS = Fault("too_many_digits", "the number has more digits than any field can hold", "round the number")
DUPLICATE_KEY = Fault("duplicate_key", "an object names one field twice, so its meaning is unclear", "give it once")
NOT_TEXT = Fault(
    "not_text", "the text holds a NUL or half of a surrogate pair, which cannot be stored", "remove that character"
)
TOO_DEEP = Fault("too_deep", f"lists and objects nest deeper than {MAXIMUM_DEPTH}", "flatten the body")
TOO_LONG = Fault("too_long", f"a list or object holds more than {MAXIMUM_ITEMS} values", "send fewer values")


EMPTY = "send a JSON text; the body is empty"


class _Values:
    """Makes the values of one JSON text, and lists the faults among them."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def at_fault(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    def number(self, digits: str) -> float | Fault:
        if len(digits) > MAXIMUM_DIGITS:
            return self.at_fault(TOO_MANY_DIGITS)
        number = float(digits)
        return number if isfinite(number) else self.at_fault(NOT_FINITE)

    def integer(self, digits: str) -> int | Fault:
        return int(digits) if len(digits) <= MAXIMUM_DIGITS else self.at_fault(TOO_MANY_DIGITS)

    def object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            return {"": self.at_fault(DUPLICATE_KEY)}
        for name in INFINITE_BY_DESIGN & value.keys():
            value[name] = None
        return value


def parse(body: bytes) -> Any:
    values = _Values()
    value = _decode(body, values)
    if values.faults or not _is_plain(body):
        refuse_faults(value)
    return value


def parse_unchecked(body: bytes) -> Any:
    """Parse a JSON text, with Fault in place of invalid values."""
    return _decode(body, _Values())


def _is_plain(body: bytes) -> bool:
    """Whether a body is too short and too flat for the faults that its values do not show one by one."""
    nesting = body.count(b"{") + body.count(b"[")
    return nesting < MAXIMUM_DEPTH and body.count(b",") < MAXIMUM_ITEMS and b"\\u" not in body


def _decode(body: bytes, values: _Values) -> Any:
    if body.count(b",") > MAXIMUM_VALUES:
        raise Refused(Problem(field="", code="too_long", message="the body holds too many values", fix="send fewer"))
    try:
        return json.loads(
            body.decode("utf-8"),
            parse_constant=lambda _: values.at_fault(NOT_FINITE),
            parse_float=values.number,
            parse_int=values.integer,
            object_pairs_hook=values.object,
        )
    except RecursionError:
        raise Refused(Problem(field="", code="too_deep", message=TOO_DEEP.message, fix=TOO_DEEP.fix)) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise NotJson(f"send a JSON text; this one is none at {place}" if body else EMPTY) from None
    except ValueError:
        raise NotJson("send a JSON text in UTF-8, without byte order mark") from None


def parse_object(body: bytes) -> Mapping[str, Any]:
    return as_object(parse(body))


def parse_unchecked_object(body: bytes) -> Mapping[str, Any]:
    """Parse a JSON text, with Fault in place of invalid values."""
    return as_object(parse_unchecked(body))


def as_object(value: object) -> Mapping[str, Any]:
    """A parsed body that must be an object."""
    if not isinstance(value, dict):
        raise NotJson("send a JSON object")
    return value


def refuse_faults(value: object) -> None:
    problems = [
        Problem(field=path, code=fault.code, message=fault.message, fix=fault.fix)
        for path, fault in islice(_faults(value), MOST_PROBLEMS)
    ]
    if problems:
        raise Refused(*problems)


def _faults(root: object) -> Iterator[tuple[str, Fault]]:
    level: list[tuple[str, object]] = [("", root)]
    for depth in range(MAXIMUM_DEPTH + 1):
        deeper: list[tuple[str, object]] = []
        for path, value in level:
            fault = _fault_of(value, depth)
            if fault is not None:
                yield path, fault
            deeper += _inside(path, value)
        if not deeper:
            return
        level = deeper


def _fault_of(value: object, depth: int) -> Fault | None:
    if isinstance(value, Fault):
        return value
    if isinstance(value, str):
        return None if is_text(value) else NOT_TEXT
    if isinstance(value, (list, dict)) and depth == MAXIMUM_DEPTH:
        return TOO_DEEP
    return TOO_LONG if isinstance(value, (list, dict)) and len(value) > MAXIMUM_ITEMS else None


def _inside(path: str, value: object) -> list[tuple[str, object]]:
    """Items of a list or object that may have faults: numbers, booleans, null and most texts have none."""
    if not isinstance(value, (list, dict)) or len(value) > MAXIMUM_ITEMS:
        return []
    if isinstance(value, list):
        return [(path, item) for item in value if _may_be_at_fault(item)]
    names: list[tuple[str, object]] = [(path, name) for name in value if not is_text(name)]
    return names + [
        (f"{path}.{name}".lstrip(".") if PLAIN_NAME.fullmatch(name) else path, item)
        for name, item in value.items()
        if _may_be_at_fault(item)
    ]


def _may_be_at_fault(item: object) -> bool:
    kind = type(item)
    return kind not in _FAULTLESS and (kind is not str or not is_text(str(item)))


_FAULTLESS = frozenset({int, float, bool, type(None)})


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """A document after a merge patch.

    >>> apply_merge_patch({"a": "b", "c": {"d": "e", "f": "g"}}, {"a": "z", "c": {"f": None}})
    {'a': 'z', 'c': {'d': 'e'}}
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


STANDARD_INPUT = "-"


class UnreadableBody(TraincostError):
    """An unreadable file, or one without a JSON object."""


def body_in(name: str) -> Mapping[str, Any]:
    """The object in a file of JSON; in one of another name, or in standard input, YAML is read, too."""
    content = bytes_in(name)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        if name.endswith(".json"):
            raise UnreadableBody(f"{_label(name)} is not JSON; give what POST takes, in UTF-8") from None
        body = _yaml_in(name, content)
    if not isinstance(body, dict):
        raise UnreadableBody(f"{_label(name)} is no JSON object; give what POST takes")
    return body


def _yaml_in(name: str, content: bytes) -> Any:
    import yaml

    try:
        value = yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
        return json.loads(json.dumps(value, default=str, allow_nan=False))  # a date as its text
    except (yaml.YAMLError, TypeError, ValueError, RecursionError):
        raise UnreadableBody(f"{_label(name)} is not JSON, nor YAML; give what POST takes, in UTF-8") from None


def text_in(name: str) -> str:
    """The text in a file, such as the log of a job."""
    return bytes_in(name).decode("utf-8", "replace")


def _label(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else name


def bytes_in(name: str, most_bytes: int = -1) -> bytes:
    """The bytes in a file; one more than `most_bytes` of a longer one."""
    limit = most_bytes + 1 if most_bytes >= 0 else -1
    try:
        if name == STANDARD_INPUT:
            return sys.stdin.buffer.read(limit)
        with Path(name).open("rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or "its name is none of a file"
        raise UnreadableBody(f"{_label(name)} cannot be read: {cause}") from None


INVISIBLE = frozenset({"Cc", "Zl", "Zp"})
"""Unicode categories that a list, a terminal or a sheet does not display, or interprets."""

MULTILINE_FIELDS = frozenset({"note", "reason", "source", "pue_source"})
"""Fields that may hold several lines."""

BREAKS = frozenset("\t\n\r")


def normalized(value: Any) -> Any:
    r"""A JSON value with its texts in Unicode normal form C, in which equal texts have equal code points.

    >>> normalized(["cafe\u0301", 1]) == ["caf\u00e9", 1]
    True
    """
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    return [normalized(item) for item in value] if isinstance(value, list) else value


def text_problems(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of the texts in a flat body and in its lists."""
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and not _is_visible(text, name) for text in texts):
            allowed = " but line breaks and tabs" if name in MULTILINE_FIELDS else ""
            message = f"{name} holds a control character, which a list or a sheet would not show"
            fix = f"leave out every control character{allowed}"
            yield Problem(field=name, code="not_text", message=message, fix=fix)


def checked_texts(given: Mapping[str, Any]) -> dict[str, Any]:
    """A flat body with normalized texts; Refused where one has invisible characters."""
    problems = tuple(text_problems(given))
    if problems:
        raise Refused(*problems)
    return {name: normalized(value) for name, value in given.items()}


def _is_visible(text: str, name: str) -> bool:
    if text.isprintable():
        return True
    allowed = BREAKS if name in MULTILINE_FIELDS else frozenset()
    return not any(unicodedata.category(letter) in INVISIBLE and letter not in allowed for letter in text)


LONGEST_LINE = 255
"""Characters that every spreadsheet displays in one cell and every scheduler stores of a comment."""


def single_line(text: str) -> str:
    r"""A text as one line of printable characters, shortened to LONGEST_LINE.

    >>> single_line("out of\n memory\0")
    'out of memory'
    """
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."
