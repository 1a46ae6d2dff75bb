"""What do a caller's own measured steps say of the next one? A bias, and a spread that they have earned.

A few steps of one cluster say much of that cluster and little of how far the next configuration may lie from them, so
they are trusted by k / (k + 2): nothing at 0, a third at 1, half at 2, five sixths at 10.
"""

from collections.abc import Sequence
from math import ceil, exp, log, sqrt
from statistics import median

from service.estimator.device_calibration import calibration_of
from service.estimator.gpu import Gpu
from service.estimator.interval import INSIDE_FRACTION
from service.estimator.measured_step import MeasuredStep
from service.estimator.names import ImplementationName, StackName

PRIOR_MEASUREMENTS = 2
"""Measured steps that weigh as much as the published ones.
Source: scalars for each table of 311 published steps on A100 and H100: three rows' median halves the errors of a table
of one regime and adds to those of a table of several, so it is shrunk and not taken as it is."""


def own_scale(steps: Sequence[MeasuredStep]) -> float:
    """How many times as long as predicted a caller's steps take.

    Formula:
        exp(b),  b = w median(ln(measured / predicted)),  w = k / (k + 2)

    Args:
        steps: k measured steps

    Returns:
        the scale [1], 1 without any

    Source:
        PRIOR_MEASUREMENTS

    >>> round(own_scale((MeasuredStep(predicted_seconds=1.0, measured_seconds=1.1),) * 2), 3)
    1.049
    """
    return exp(_bias(_residuals(steps))) if steps else 1.0


def own_spread_fraction(steps: Sequence[MeasuredStep], spread: float) -> float:
    """Spread of the next step, by a caller's own and by that of its class.

    Formula:
        sqrt(w q^2 + (1 - w) r^2),  q the ceil(0.8 (k + 1))-th smallest |ln(measured / predicted) - b|, the largest
        where k is too small

    Args:
        steps: k measured steps
        spread: spread of the step's class, r [1]

    Returns:
        the spread, as a logarithm [1]

    Source:
        PRIOR_MEASUREMENTS; quantile of split conformal prediction (Lei et al. 2018, arXiv:1604.04173)

    >>> round(own_spread_fraction((MeasuredStep(predicted_seconds=1.0, measured_seconds=1.1),) * 2, 0.2), 3)
    0.145
    """
    if not steps:
        return spread
    residuals, trust = _residuals(steps), _trust(len(steps))
    bias = _bias(residuals)
    distances = sorted(abs(residual - bias) for residual in residuals)
    own = distances[min(len(distances), ceil(INSIDE_FRACTION * (len(distances) + 1))) - 1]
    return sqrt(trust * own**2 + (1 - trust) * spread**2)


def measured_scale(own: Sequence[MeasuredStep], calibrated: Sequence[MeasuredStep]) -> float:
    """How many times as long as predicted steps take, by a caller's own and by those that the GPU was calibrated on.

    Formula:
        x y, x the scale of the caller's steps, y that of the calibration's, which a caller's predictions had in them

    Args:
        own: the caller's measured steps
        calibrated: those that the GPU was calibrated on

    Returns:
        the scale [1], 1 without any of either

    Source:
        own_scale

    >>> measured_scale((), ())
    1.0
    """
    return own_scale(own) * own_scale(calibrated)


def calibrated_steps(gpu: Gpu, stack: StackName, implementation: ImplementationName | None) -> tuple[MeasuredStep, ...]:
    """The steps that a GPU was calibrated on, of one stack.

    Args:
        gpu: the GPU
        stack: training software
        implementation: whose operations run

    Returns:
        the steps; none where no step of the stack was measured
    """
    known = calibration_of(gpu)
    told = () if known is None else known.steps
    return tuple(one.step for one in told if (one.stack, one.implementation) == (stack, implementation))


def _residuals(steps: Sequence[MeasuredStep]) -> list[float]:
    return [log(step.measured_seconds / step.predicted_seconds) for step in steps]


def _trust(count: int) -> float:
    return count / (count + PRIOR_MEASUREMENTS)


def _bias(residuals: Sequence[float]) -> float:
    return _trust(len(residuals)) * median(residuals)
