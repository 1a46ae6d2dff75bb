"""Texts of callers, checked for characters that would not show."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from service.errors import Problem, Refused

UNSEEN = frozenset({"Cc", "Zl", "Zp"})
"""Categories of Unicode that a list, a terminal or a sheet does not show, or obeys."""

LINES = frozenset({"note", "reason", "source", "pue_source"})
"""Fields that may hold several lines."""

BREAKS = frozenset("\t\n\r")


def composed(value: Any) -> Any:
    r"""A JSON value whose texts are in the form in which equal texts are equal letter by letter.

    >>> composed(["cafe\u0301", 1]) == ["caf\u00e9", 1]
    True
    """
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    return [composed(item) for item in value] if isinstance(value, list) else value


def text_problems(given: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the texts of a flat body, and with those in its lists."""
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and not _is_seen(text, name) for text in texts):
            yield _unseen(name)


def plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """A flat body whose texts show as what they are."""
    problems = tuple(text_problems(given))
    if problems:
        raise Refused(*problems)
    return {name: composed(value) for name, value in given.items()}


def _is_seen(text: str, name: str) -> bool:
    if text.isprintable():
        return True
    allowed = BREAKS if name in LINES else frozenset()
    return not any(unicodedata.category(letter) in UNSEEN and letter not in allowed for letter in text)


def _unseen(name: str) -> Problem:
    allowed = " but line breaks and tabs" if name in LINES else ""
    message = f"{name} holds a control character, which a list or a sheet would not show"
    return Problem(field=name, code="not_text", message=message, fix=f"leave out every control character{allowed}")


LONGEST_LINE = 255
"""Characters that every spreadsheet shows in one cell and every scheduler keeps of a comment."""


def one_line(text: str) -> str:
    r"""A text as one line of printable characters, cut where it is too long.

    >>> one_line("out of\n memory\0")
    'out of memory'
    """
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."
