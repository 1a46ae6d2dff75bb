"""Scores of predictions: signed relative errors, their percentiles, coverage, and spreads of residuals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor, log
from statistics import fmean

from service.calibration.records import quantile
from service.calibration.tables import shipped_toml
from service.estimator.answer import INSIDE_FRACTION
from service.estimator.question import Documented


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prediction beside its measurement, in the unit of their quantity: bytes of memory, or seconds of a step."""

    measured: float
    low: float
    """Lower end of the predicted 80 % interval."""
    value: float
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
class RelativeErrors(Documented):
    """Errors of the predictions of some rows. An error is predicted / measured - 1; null where nothing was scored."""

    scored: int
    """Rows whose prediction was compared."""
    mape_fraction: float | None
    """Mean of the absolute errors."""
    median_fraction: float | None
    """Median of the absolute errors."""
    bias_fraction: float | None
    """Mean of the signed errors: positive where too much is predicted."""
    p90_fraction: float | None
    """90th percentile of the absolute errors."""
    p95_fraction: float | None
    """95th percentile of the absolute errors."""
    coverage80_fraction: float | None
    """Share of measured values inside the predicted 80 % interval; null where there is no interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(RelativeErrors):
    """Errors of comparisons of bytes."""

    median_bytes: float | None
    """Median of the absolute errors."""
    p95_bytes: float | None
    """95th percentile of the absolute errors."""


def errors_of(comparisons: Sequence[Comparison]) -> RelativeErrors:
    """The relative errors of comparisons.

    >>> result = errors_of([Comparison(100, 90, 110, 120), Comparison(200, 190, 195, 199)])
    >>> round(result.mape_fraction, 4), round(result.bias_fraction, 4), result.coverage80_fraction
    (0.0625, 0.0375, 0.5)
    >>> errors_of([]).mape_fraction is None
    True
    """
    relative = [one.error_fraction for one in comparisons]
    absolute = [abs(error) for error in relative]
    return RelativeErrors(
        scored=len(comparisons),
        mape_fraction=_mean(absolute),
        median_fraction=_percentile(absolute, 0.5),
        bias_fraction=_mean(relative),
        p90_fraction=_percentile(absolute, 0.9),
        p95_fraction=_percentile(absolute, 0.95),
        coverage80_fraction=_mean([float(one.is_covered) for one in comparisons]),
    )


def score(comparisons: Sequence[Comparison]) -> Score:
    """The errors of comparisons of bytes.

    >>> result = score([Comparison(100, 90, 110, 120), Comparison(200, 190, 195, 199)])
    >>> round(result.mape_fraction, 4), result.median_bytes
    (0.0625, 7.5)
    """
    errors = errors_of(comparisons)
    distances = [abs(one.distance) for one in comparisons]
    return Score(
        **{name: getattr(errors, name) for name in RelativeErrors.__slots__},
        median_bytes=_percentile(distances, 0.5),
        p95_bytes=_percentile(distances, 0.95),
    )


def _percentile(values: Sequence[float], share: float) -> float | None:
    """The quantile of values in any order.

    >>> _percentile([4, 1, 3, 2], 0.5), _percentile([10], 0.95), _percentile([], 0.5)
    (2.5, 10.0, None)
    """
    return quantile(sorted(values), share) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


Residuals = Mapping[str, Sequence[float]]


def spread_fraction(residuals: Residuals, *, by_root: bool = False) -> float | None:
    """The smallest spread that contains 80 % of the residuals.

    Each source weighs the same, or as the root of its number of residuals.

    >>> spread_fraction({"one": [0.1, -0.2, 0.3, 0.4], "two": [-0.5]})
    0.5
    >>> spread_fraction({"one": [0.1, -0.2, 0.3, 0.4, 0.9]}), spread_fraction({})
    (0.4, None)
    >>> spread_fraction({"one": [0.1] * 16, "two": [0.5]}, by_root=True)
    0.1
    """
    power = 0.5 if by_root else 1.0
    weighted = sorted((abs(result), len(own) ** -power) for own in residuals.values() for result in own)
    inside = INSIDE_FRACTION * sum(weight for _, weight in weighted)
    reached = 0.0
    for size, weight in weighted:
        reached += weight
        if reached >= inside * (1 - 1e-9):
            return size
    return None


def left_out_fraction(residuals: Residuals, source: str) -> float | None:
    """Share of a source's residuals inside the spread that all other sources give.

    >>> left_out_fraction({"one": [0.1, 0.2], "two": [0.15, -0.3]}, "two"), left_out_fraction({"one": [0.1]}, "one")
    (0.5, None)
    """
    spread = spread_fraction({name: result for name, result in residuals.items() if name != source})
    own = residuals.get(source, ())
    if spread is None or not own:
        return None
    return sum(abs(result) <= spread for result in own) / len(own)


_READ_OFF = shipped_toml("read_off")

READ_OFF_ALL: tuple[str, ...] = tuple(_READ_OFF["all"])
"""Constants to which every shipped source contributed."""

READ_OFF = {source: tuple(names) for source, names in _READ_OFF["by_source"].items()}
"""Constants, or formulas, of the estimator as topic.NAME, by the source that they were read off."""

STEPS_READ_OFF: tuple[str, ...] = tuple(_READ_OFF["steps"])
"""Constants to which the published steps of every source of FITTED_SOURCES contributed."""

STEPS_READ_OFF_ONE = {source: tuple(names) for source, names in _READ_OFF["steps_by_source"].items()}
"""Constants of step time from pairs of one source's rows."""

FITTED_SOURCES: tuple[str, ...] = tuple(_READ_OFF["fitted_sources"])
"""Sources of published steps with which the constants of step time are fitted."""

ONLY_SCORED = ("old GPU",)
"""Classes of steps with which no constant is fitted, whatever their source."""


def constants_read_off(source_key: str, quantity: str = "peak", figure_class: str = "") -> tuple[str, ...]:
    """The constants to which rows of a source contributed.

    >>> constants_read_off("qwen_readme"), constants_read_off("mbridge", "step", "old GPU")
    ((), ())
    """
    if quantity != "step":
        return READ_OFF.get(source_key, ())
    contributes = source_key in FITTED_SOURCES and figure_class not in ONLY_SCORED
    return (*STEPS_READ_OFF, *STEPS_READ_OFF_ONE.get(source_key, ())) if contributes else ()


TAIL_FRACTION = (1 - INSIDE_FRACTION) / 2
"""Share of the residuals that may lie beyond either end."""
DECIMALS = 1e2
"""A shipped end is rounded outwards to hundredths."""

Ends = tuple[float, float]


def run_spread(residuals: Residuals) -> Ends | None:
    """The ends beyond each of which lie at most 10 % of the residuals, with equal weight for each source.

    >>> run_spread({"one": [0.0, 0.5], "two": [0.2], "three": [-0.1, 0.3]})
    (-0.1, 0.5)
    """
    weighted = sorted((result, 1 / len(own) / len(residuals)) for own in residuals.values() for result in own)
    if not weighted:
        return None
    return _end(weighted), _end(weighted[::-1])


def shipped_ends(ends: Ends) -> Ends:
    """Ends as the estimator states them.

    >>> shipped_ends((-0.161, 0.592))
    (-0.17, 0.6)
    """
    low, high = ends
    return floor(low * DECIMALS) / DECIMALS, ceil(high * DECIMALS) / DECIMALS


def _end(weighted: Sequence[tuple[float, float]]) -> float:
    """The first residual from one side beyond which lies no more than the tail."""
    reached = accumulate(weight for _, weight in weighted)
    return next(result for (result, _), beyond in zip(weighted, reached, strict=True) if beyond > TAIL_FRACTION)
