"""What does a prediction say beside its value?"""

from dataclasses import dataclass
from typing import Literal

Basis = Literal["exact", "analytic", "calibrated", "measured"]


INSIDE_FRACTION = 0.8
"""Share of all cases that an interval is meant to hold. Source: definition."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted quantity: the value, the ends of its 80 % interval, and what it rests on."""

    low: float
    """Lower end of the 80 % interval."""
    value: float
    """The prediction."""
    high: float
    """Upper end of the 80 % interval."""
    basis: Basis
    """exact, analytic (formulas and published constants), calibrated, or measured."""
