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
"""Numbers of each value, one a line."""


def format_solution(solution: Solution, form: Literal["json", "report"]) -> str | bytes:
    """Format a solution for a terminal."""
    return to_bytes(solution) if form == "json" else solution_report(solution)


def solution_report(solution: Solution) -> str:
    """A solution as text."""
    lists = {
        "Changes in the question": [f"{name}: {_plain(value)}" for name, value in solution.changes.items()],
        "Assumptions": solution.assumptions,
        "Warnings": solution.warnings,
    }
    blocks = [
        "\n".join(_answer(solution)),
        "\n".join(_numbers(solution)),
        *("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in lists.items() if lines),
        f"{solution.evidence.tried:,} values tried, formulas {solution.versions.formulas}, catalogue "
        f"{solution.versions.catalogue}",
    ]
    return "\n\n".join(block for block in blocks if block)


def _answer(solution: Solution) -> Iterator[str]:
    yield f"{solution.unknown}: {'no value will do' if solution.value is None else _plain(solution.value)}"
    if isinstance(solution.value, OptimalSize):
        yield from (f"  {_plain(fit)}" for fit in solution.value.fits)
    if solution.next is not None:
        why = solution.next.why_not
        yield f"next: {_plain(solution.next.value)} will not do: {why.message}{f'; {why.fix}' if why.fix else ''}"


def _numbers(solution: Solution) -> list[str]:
    """Numbers of the value and of the next one, where known."""
    evidence = {"value": solution.evidence.value, "next": solution.evidence.next}
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
    """A value as text; an object by its scalar fields."""
    if is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in fields(value))
        return ", ".join(f"{name} {_plain(one)}" for name, one in parts if isinstance(one, int | float | str))
    if value is None or isinstance(value, bool):
        return {None: "left out", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return readable(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
