"""Where does a number of the answer come from: its equation, the inputs with their values, the source?"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from service.estimator.docstring import read_docstring

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
    """The explanation of one number, worded by the docstring of the formula that gave it.

    Args:
        path: where it stands in the answer
        value: what the formula gave [1]
        formula: the formula
        inputs: what went in, by name

    Returns:
        the explanation
    """
    said = read_docstring(formula)
    unit = said.unit
    return Explanation(
        path=path,
        value=value,
        exact=str(Decimal(value)),
        unit=None if unit == "1" else unit,
        summary=said.summary,
        equation=said.sections.get("Formula", ""),
        inputs=inputs,
        source=said.sections.get("Source", ""),
    )


def applied(path: str, formula: Callable[..., Any], **inputs: float | int | bool | str | None) -> Explanation:
    """The explanation of a number that a formula of plain inputs gives.

    Args:
        path: where it stands in the answer
        formula: the formula
        **inputs: its arguments [1]

    Returns:
        the explanation, its value computed here
    """
    return explained(path, formula(**inputs), formula, inputs)
