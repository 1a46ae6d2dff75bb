"""What does a formula say about itself? The sections of its docstring: Formula, Args, Returns, Source, Ignores."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from textwrap import dedent
from typing import Any

_HEADING = re.compile(r"(Formula|Args|Returns|Raises|Source|Ignores):")
_ENTRY = re.compile(r"\*{0,2}(\w+): (.*)")
_UNIT = re.compile(r"\[([^\[\]]+)\](?:, [^\[\]]*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """A docstring, taken apart."""

    summary: str
    """First line: the quantity, and for whom."""
    sections: dict[str, str]
    """Text below each heading, without its indentation."""
    arguments: dict[str, str]
    """What each argument is, by name."""
    has_example: bool
    """A worked example stands in it."""

    @property
    def unit(self) -> str | None:
        """Unit of what is returned."""
        return unit_of(self.sections.get("Returns", ""))


@cache
def read_docstring(documented: Callable[..., Any]) -> Docstring:
    """The docstring of a function, taken apart.

    Args:
        documented: the function

    Returns:
        its sections; empty ones where it says nothing
    """
    return parse_docstring(getdoc(documented) or "")


def parse_docstring(text: str) -> Docstring:
    """A docstring, taken apart.

    Args:
        text: the docstring without its indentation

    Returns:
        its sections
    """
    lines = text.splitlines()
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        heading = _HEADING.fullmatch(line)
        if heading:
            current = sections.setdefault(heading[1], [])
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

    Args:
        text: description of an argument or of what is returned

    Returns:
        what stands in its last brackets, None without any

    >>> unit_of("bytes of the whole tensor, S [byte]"), unit_of("rates of one GPU")
    ('byte', None)
    """
    found = _UNIT.search(text)
    return found[1] if found else None


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
