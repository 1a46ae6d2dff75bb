"""Terminal report of a solved field: its value, the next value that fails and why, and the numbers of both."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from service.answers.solutions import KeyNumbers, OptimalSize, Solution
from service.cli.console import table
from service.estimator.answer import Interval
from service.units import dimension_of, in_units, readable
from service.validation.serialization import to_bytes

NUMBERS = tuple(field.name for field in fields(KeyNumbers))
"""What stands beside each value, one line a number."""


def solution_shown(found: Solution, form: Literal["json", "report"]) -> str | bytes:
    """A solution in one of the forms that a terminal shows."""
    return to_bytes(found) if form == "json" else solution_report(found)


def solution_report(found: Solution) -> str:
    """A solution as a person reads it in a terminal."""
    lists = {
        "Changes in the question": [f"{name}: {_plain(value)}" for name, value in found.changes.items()],
        "Assumptions": found.assumptions,
        "Warnings": found.warnings,
    }
    blocks = [
        "\n".join(_answer(found)),
        "\n".join(_numbers(found)),
        *("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in lists.items() if lines),
        f"{found.evidence.tried:,} values tried, formulas {found.versions.formulas}, catalogue "
        f"{found.versions.catalogue}",
    ]
    return "\n\n".join(block for block in blocks if block)


def _answer(found: Solution) -> Iterator[str]:
    yield f"{found.unknown}: {'no value will do' if found.value is None else _plain(found.value)}"
    if isinstance(found.value, OptimalSize):
        yield from (f"  {_plain(fit)}" for fit in found.value.fits)
    if found.next is not None:
        why = found.next.why_not
        yield f"next: {_plain(found.next.value)} will not do: {why.message}{f'; {why.fix}' if why.fix else ''}"


def _numbers(found: Solution) -> list[str]:
    """What an estimate says of the value and of the next one, for what it says of either."""
    evidence = {"value": found.evidence.value, "next": found.evidence.next}
    shown = {head: numbers for head, numbers in evidence.items() if numbers is not None}
    rows = [(name, *(_cell(name, getattr(numbers, name)) for numbers in shown.values())) for name in NUMBERS]
    return table([("", *shown), *(row for row in rows if any(row[1:]))]) if shown else []


def _cell(name: str, value: Any) -> str:
    if isinstance(value, Interval):
        value = value.value
    if value is None or isinstance(value, str):
        return value or ""
    return in_units(value, dimension_of([name]))


def _plain(value: Any) -> str:
    """A value in words: a whole object by those of its parts that are one number or name."""
    if is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in fields(value))
        return ", ".join(f"{name} {_plain(one)}" for name, one in parts if isinstance(one, int | float | str))
    if value is None or isinstance(value, bool):
        return {None: "left out", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return readable(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
