"""One explained number, worded by the docstring of its formula: equation, inputs, unit and source."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
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
    """The sections of a function's docstring; empty without one."""
    return parse_docstring(getdoc(documented) or "")


def parse_docstring(text: str) -> Docstring:
    """A docstring, taken apart."""
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


Inputs = dict[str, float | int | bool | str | None]
"""What goes into a formula, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One number of the answer, explained."""

    path: str
    """Where it stands in the answer, e.g. `flop.per_step_flop`."""
    value: float
    """The number, computed again from the inputs."""
    exact: str
    """The same as an exact decimal string."""
    unit: str | None
    """Its unit; null for a count or a share."""
    summary: str
    """What it is, and for whom."""
    equation: str
    """How it is computed."""
    inputs: Inputs
    """What goes in, by name."""
    source: str
    """Who says so."""


def explained(path: str, value: float, formula: Callable[..., Any], inputs: Inputs) -> Explanation:
    """The explanation of one number, worded by the docstring of the formula that gave it."""
    docstring = read_docstring(formula)
    unit = docstring.unit
    return Explanation(
        path=path,
        value=value,
        exact=str(Decimal(value)),
        unit=None if unit == "1" else unit,
        summary=docstring.summary,
        equation=docstring.sections.get("Formula", ""),
        inputs=inputs,
        source=docstring.sections.get("Source", ""),
    )


def applied(path: str, formula: Callable[..., Any], **inputs: float | int | bool | str | None) -> Explanation:
    """The explanation of a number that a formula of plain inputs gives."""
    return explained(path, formula(**inputs), formula, inputs)
