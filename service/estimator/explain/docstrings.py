"""Parser of the docstrings of formulas."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from textwrap import dedent
from typing import Any

_HEADING = re.compile(r"(Formula|Args|Returns|Raises|Source|Ignores):(?: (.+))?")
"""Heading of a section, which may hold its only line."""
_ENTRY = re.compile(r"\*{0,2}(\w+): (.*)")
_UNIT = re.compile(r"\[([^\[\]]+)\](?:, [^\[\]]*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """A parsed docstring."""

    summary: str
    """First line, which names the quantity."""
    sections: dict[str, str]
    """Text below each heading, without its indentation."""
    arguments: dict[str, str]
    has_example: bool
    """Whether it contains a worked example."""

    @property
    def unit(self) -> str | None:
        """Unit of what is returned."""
        return unit_of(self.sections.get("Returns", ""))


@cache
def read_docstring(documented: Callable[..., Any]) -> Docstring:
    """The sections of a function's docstring; empty without one."""
    return parse_docstring(getdoc(documented) or "")


def parse_docstring(text: str) -> Docstring:
    """Parse a docstring."""
    lines = text.splitlines()
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        heading = _HEADING.fullmatch(line)
        if heading:
            current = sections.setdefault(heading[1], [heading[2]] if heading[2] else [])
        elif line and not line.startswith(" "):
            current = []
        else:
            current.append(line)
    joined = {name: dedent("\n".join(body)).strip() for name, body in sections.items()}
    return Docstring(
        summary=lines[0] if lines else "",
        sections=joined,
        arguments=_arguments(joined.get("Args", "")),
        has_example=any(line.startswith(">>> ") for line in lines),
    )


def unit_of(text: str) -> str | None:
    """The unit that a description ends with.

    >>> unit_of("bytes of the whole tensor, S [byte]"), unit_of("rates of one GPU")
    ('byte', None)
    """
    result = _UNIT.search(text)
    return result[1] if result else None


def _arguments(text: str) -> dict[str, str]:
    arguments: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry:
            name = entry[1]
            arguments[name] = entry[2]
        elif name:
            arguments[name] += f" {line.strip()}"
    return arguments
