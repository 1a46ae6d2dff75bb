"""How wide is the interval of an analytic step time? Shares of the value within which measured steps lie."""

from service.estimator.interval import Interval
from service.estimator.model import Model

DENSE_FRACTIONS = (0.95, 1.70)
"""Measured over predicted step time of dense models, 80 % interval.
Source: 400 published steps on A100 and H100, to which no constant was tuned here: 1.01 at 10 %, 1.63 at 90 %;
kernels are slower inside a step than in a benchmark, so the middle lies above the value."""

SPARSE_FRACTIONS = (0.80, 2.10)
"""The same for mixtures of experts.
Source: 32 published steps on H100, B200 and GB200: 0.86 at 10 %, 1.75 at 90 %."""


def step_interval(model: Model, step_seconds: float) -> Interval:
    """The 80 % interval of one step around its predicted time.

    Args:
        model: the model
        step_seconds: predicted seconds of one step [s]

    Returns:
        the interval [s]
    """
    low, high = SPARSE_FRACTIONS if model.num_experts else DENSE_FRACTIONS
    return Interval(low * step_seconds, step_seconds, high * step_seconds, "analytic")
