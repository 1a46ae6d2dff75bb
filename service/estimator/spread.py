"""How wide is the interval of an analytic step time? Shares of the value within which measured steps lie."""

from service.estimator.question import Model

DENSE_FRACTIONS = (0.95, 1.70)
"""Measured over predicted step time of dense models, 80 % interval.
Source: 405 published steps on A100 and H100, to which no constant was tuned here: 1.06 at 10 %, 1.66 at 90 %;
kernels are slower inside a step than in a benchmark, so the middle lies above the value."""

SPARSE_FRACTIONS = (0.80, 2.10)
"""The same for mixtures of experts.
Source: 32 published steps on H100, B200 and GB200: 0.83 at 10 %, 2.0 at 90 %."""


def step_interval_fractions(model: Model) -> tuple[float, float]:
    """Shares of the predicted step time between which the measured one lies in 80 % of cases.

    Args:
        model: the model

    Returns:
        low and high share [1]
    """
    return SPARSE_FRACTIONS if model.num_experts else DENSE_FRACTIONS
