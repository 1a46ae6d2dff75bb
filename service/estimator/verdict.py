"""How likely is it that the device runs out of memory, and what is that in one word?"""

from math import erf, exp, log, sqrt

from service.estimator.interval import Interval
from service.estimator.memory_parts import Verdict

_NORMAL_80 = 1.2816
"""Standard deviations from the middle to either end of a central 80 % interval of a normal distribution.
Source: definition."""

_NORMAL_95_ONE_SIDED = 1.644853627
"""Standard deviations from the middle that 5 % of a normal distribution exceed. Source: definition."""


def oom_probability_fraction(device: Interval, usable_bytes: float) -> float:
    """Probability that the device peak exceeds what a job can use, from a log-normal spread.

    Formula:
        1 - Phi(ln(usable / value) / sigma),  sigma = ln(high / value) / 1.2816

    Args:
        device: the device peak
        usable_bytes: memory a job can use [byte]

    Returns:
        probability [1]

    Source:
        definition; the interval is the central 80 %

    >>> oom_probability_fraction(Interval(9.0, 10.0, 11.0, "analytic"), 10.0)
    0.5
    """
    deviations = _NORMAL_80 * log(usable_bytes / device.value) / log(device.high / device.value)
    return (1 - erf(deviations / sqrt(2))) / 2


def largest_fitting_bytes(device: Interval, usable_bytes: float) -> float:
    """Largest device peak that still has the verdict `fits`, with a spread as wide as that of another one.

    Formula:
        usable exp(-1.6449 sigma),  sigma = ln(high / value) / 1.2816

    Args:
        device: the device peak whose spread is taken
        usable_bytes: memory a job can use [byte]

    Returns:
        bytes [byte]

    Source:
        definition; the same log-normal spread as that of the probability, exceeded in 5 % of all cases

    >>> round(largest_fitting_bytes(Interval(9.0, 10.0, 11.0, "analytic"), 10.0), 3)
    8.849
    """
    deviations = log(device.high / device.value) / _NORMAL_80
    return usable_bytes * exp(-_NORMAL_95_ONE_SIDED * deviations)


def verdict_of(probability_fraction: float) -> Verdict:
    """The word for a probability of running out of memory.

    Args:
        probability_fraction: probability that the device peak exceeds the usable memory [1]

    Returns:
        below 5 % fits, up to 50 % at_risk, above out_of_memory

    >>> verdict_of(0.2)
    'at_risk'
    """
    if probability_fraction < 0.05:
        return "fits"
    return "at_risk" if probability_fraction <= 0.5 else "out_of_memory"
