"""Texts of callers: Unicode normalization, and a check for invisible characters."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from service.errors import Problem, Refused

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
