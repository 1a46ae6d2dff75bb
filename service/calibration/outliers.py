"""Which of several measurements of one thing does not belong to the others? Far off by the others' own spread."""

from collections.abc import Sequence
from math import log
from statistics import median

LEAST_OTHERS = 4
"""Measurements of one thing by which another one may be judged. Source: a choice; a median of fewer says little."""

MOST_DEVIATIONS = 5.0
"""Robust standard deviations from the others beyond which a measurement is an outlier. Source: a choice; one of 30,000
of a normal distribution lies beyond four."""

MAD_SCALE = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation. Source: definition."""

LEAST_DEVIATION = 0.02
"""Runs of one machine differ by this much without anything being wrong, as a logarithm. Source: a choice."""


def outlier_reason(value: float, others: Sequence[float]) -> str | None:
    """Why a measurement does not belong to others of the same device and shape.

    Formula:
        |ln v - m| > 5 max(1.4826 d, 0.02), m the median of the others' logarithms, d the median distance from it

    Args:
        value: what was measured, above zero
        others: what else was measured of the same, above zero

    Returns:
        the reason; None where it belongs to them, or they are too few to tell

    Source:
        median absolute deviation: Rousseeuw and Croux 1993, doi:10.1080/01621459.1993.10476408

    >>> outlier_reason(2.0, [1.0, 1.01, 0.99, 1.02])
    'outlier: 1.99 times the median of 4 others'
    >>> outlier_reason(1.05, [1.0, 1.01, 0.99, 1.02]), outlier_reason(2.0, [1.0])
    (None, None)
    """
    if len(others) < LEAST_OTHERS:
        return None
    logarithms = [log(other) for other in others]
    middle = median(logarithms)
    spread = MAD_SCALE * median(abs(one - middle) for one in logarithms)
    if abs(log(value) - middle) <= MOST_DEVIATIONS * max(spread, LEAST_DEVIATION):
        return None
    return f"outlier: {value / median(others):.3g} times the median of {len(others)} others"
