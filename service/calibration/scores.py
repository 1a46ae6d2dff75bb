"""How good are some predictions? Signed relative errors, their mean, median and percentiles, and coverage.

The error of one prediction is predicted / measured - 1: positive where too much was predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prediction beside what was measured, in the unit of their quantity: bytes of memory, or seconds of a step."""

    measured: float
    """What was measured."""
    low: float
    """Lower end of the predicted 80 % interval."""
    value: float
    """The prediction."""
    high: float
    """Upper end of the predicted 80 % interval."""

    @property
    def error_fraction(self) -> float:
        """Signed relative error [1]."""
        return self.value / self.measured - 1

    @property
    def residual_fraction(self) -> float:
        """ln(measured / predicted) [1]."""
        return log(self.measured / self.value)

    @property
    def distance(self) -> float:
        """Signed error, in the unit of the quantity."""
        return self.value - self.measured

    @property
    def is_covered(self) -> bool:
        """Whether the measured value lies inside the predicted interval."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """What the relative errors of some comparisons amount to; every figure is null where there is none."""

    scored: int
    """Comparisons."""
    mape_fraction: float | None
    """Mean of the absolute relative errors."""
    median_fraction: float | None
    """Median of the absolute relative errors."""
    bias_fraction: float | None
    """Mean of the signed relative errors: positive where too much is predicted."""
    p90_fraction: float | None
    """90th percentile of the absolute relative errors."""
    p95_fraction: float | None
    """95th percentile of the absolute relative errors."""
    coverage80_fraction: float | None
    """Share of measured values inside the predicted 80 % interval; 0.8 would be honest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Errors):
    """What some comparisons of bytes amount to."""

    median_bytes: float | None
    """Median of the absolute errors."""
    p95_bytes: float | None
    """95th percentile of the absolute errors."""


def errors_of(comparisons: Sequence[Comparison]) -> Errors:
    """What the relative errors of some comparisons amount to.

    Args:
        comparisons: predictions beside what was measured

    Returns:
        their relative errors and coverage

    >>> said = errors_of([Comparison(100, 90, 110, 120), Comparison(200, 190, 195, 199)])
    >>> round(said.mape_fraction, 4), round(said.bias_fraction, 4), said.coverage80_fraction
    (0.0625, 0.0375, 0.5)
    >>> errors_of([]).mape_fraction is None
    True
    """
    relative = [one.error_fraction for one in comparisons]
    absolute = [abs(error) for error in relative]
    return Errors(
        scored=len(comparisons),
        mape_fraction=_mean(absolute),
        median_fraction=_percentile(absolute, 0.5),
        bias_fraction=_mean(relative),
        p90_fraction=_percentile(absolute, 0.9),
        p95_fraction=_percentile(absolute, 0.95),
        coverage80_fraction=_mean([float(one.is_covered) for one in comparisons]),
    )


def score(comparisons: Sequence[Comparison]) -> Score:
    """What some comparisons of bytes amount to.

    Args:
        comparisons: predictions beside what was measured [byte]

    Returns:
        their errors and coverage

    >>> said = score([Comparison(100, 90, 110, 120), Comparison(200, 190, 195, 199)])
    >>> round(said.mape_fraction, 4), said.median_bytes
    (0.0625, 7.5)
    """
    errors = errors_of(comparisons)
    distances = [abs(one.distance) for one in comparisons]
    return Score(
        **{name: getattr(errors, name) for name in Errors.__slots__},
        median_bytes=_percentile(distances, 0.5),
        p95_bytes=_percentile(distances, 0.95),
    )


def _percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which a share of some values lies, read off a line between the two nearest.

    >>> _percentile([4, 1, 3, 2], 0.5), _percentile([10], 0.95), _percentile([], 0.5)
    (2.5, 10.0, None)
    """
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
