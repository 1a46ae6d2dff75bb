"""How far do the GPU-hours of whole runs lie from predicted ones? Further, and on one side, than steps do."""

from math import exp

from service.estimator.interval import Interval

RUN_RESIDUALS = (-0.24, 0.58)
"""80 % of published runs took between exp(low) and exp(high) of the GPU-hours predicted for them, each source counting
as much as any other: what a run is billed for holds older software, evaluation, waiting for data and steps done twice.
Source: service.calibration.run_spreads over the main runs of published/totals.csv."""


def run_interval(predicted: Interval, residuals: tuple[float, float] = RUN_RESIDUALS) -> Interval:
    """The 80 % interval of what a whole run takes: that of its steps, or that of published runs where it is wider.

    Formula:
        min(low, T exp(l)) to max(high, T exp(h)), l and h the residuals

    Args:
        predicted: what the run takes by its steps, with their interval, T
        residuals: lower and upper end of ln(published / predicted) of whole runs [1]

    Returns:
        the same prediction, as wide as published runs ask for

    Source:
        RUN_RESIDUALS

    >>> wide = run_interval(Interval(50.0, 100.0, 110.0, "analytic"))
    >>> wide.low, wide.value, round(wide.high)
    (50.0, 100.0, 179)
    """
    low, high = (predicted.value * exp(residual) for residual in residuals)
    return Interval(min(predicted.low, low), predicted.value, max(predicted.high, high), predicted.basis)
