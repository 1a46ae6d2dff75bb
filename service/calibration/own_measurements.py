"""What do a caller's own measured steps say of the next one? A bias, and a spread that they have earned.

A few steps of one cluster say much of that cluster and little of how far the next configuration may lie from them, so
they are trusted by k / (k + 2): nothing at 0, a third at 1, half at 2, five sixths at 10.
"""

from collections.abc import Sequence
from math import ceil, exp, log, sqrt
from statistics import median

from service.calibration.residuals import INSIDE_FRACTION
from service.estimator.interval import Interval
from service.estimator.step_residuals import LEAST_RESIDUAL

PRIOR_MEASUREMENTS = 2
"""Measured steps that weigh as much as the published ones.
Source: scalars for each table of 311 published steps on A100 and H100: three rows' median halves the errors of a table
of one regime and adds to those of a table of several, so it is shrunk and not taken as it is."""


def calibrated_interval(step_seconds: float, spread: float, measured: Sequence[tuple[float, float]]) -> Interval:
    """The interval of a step, by the caller's own measured steps beside what was predicted of them.

    Formula:
        w = k / (k + 2);  b = w median(ln(measured / predicted));
        q = the ceil(0.8 (k + 1))-th smallest |ln(measured / predicted) - b|, the largest where k is too small;
        r = max(0.03, sqrt(w q^2 + (1 - w) r_class^2));  t exp(b) x exp(-r) to exp(r)

    Args:
        step_seconds: predicted seconds of one step, t [s]
        spread: spread of the step's class, r_class [1]
        measured: predicted and measured seconds of the caller's own steps, k pairs [s]

    Returns:
        the interval [s]; basis calibrated where there are measured steps, else analytic

    Source:
        PRIOR_MEASUREMENTS; quantile of split conformal prediction (Lei et al. 2018, arXiv:1604.04173)

    >>> calibrated_interval(10.0, 0.2, []).basis
    'analytic'
    >>> found = calibrated_interval(10.0, 0.2, [(1.0, 1.1), (2.0, 2.2)])
    >>> found.basis, round(found.value, 3), round(found.high / found.value, 3)
    ('calibrated', 10.488, 1.156)
    """
    residuals = [log(seconds / predicted) for predicted, seconds in measured]
    if not residuals:
        return Interval(step_seconds * exp(-spread), step_seconds, step_seconds * exp(spread), "analytic")
    trust = len(residuals) / (len(residuals) + PRIOR_MEASUREMENTS)
    bias = trust * median(residuals)
    own = _quantile([abs(residual - bias) for residual in residuals])
    width = max(LEAST_RESIDUAL, sqrt(trust * own**2 + (1 - trust) * spread**2))
    value = step_seconds * exp(bias)
    return Interval(value * exp(-width), value, value * exp(width), "calibrated")


def _quantile(sizes: Sequence[float]) -> float:
    """The size that the next one stays below in 80 % of all cases; the largest where there are too few to say."""
    place = min(len(sizes), ceil(INSIDE_FRACTION * (len(sizes) + 1)))
    return sorted(sizes)[place - 1]
