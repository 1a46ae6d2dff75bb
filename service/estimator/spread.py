"""How wide is the interval of an analytic step time? Shares of the value within which measured steps lie."""

from service.estimator.question import Model

DENSE_SPREAD = (0.75, 1.40)
"""80 % interval of measured over predicted step time, dense models."""

SPARSE_SPREAD = (0.65, 2.00)
"""The same for mixtures of experts: imbalance, host-bound kernels and exchange are not yet modelled."""


def step_spread(model: Model) -> tuple[float, float]:
    """Shares of the predicted step time between which the measured one lies in 80 % of cases.

    Args:
        model: the model

    Returns:
        low and high share [1]
    """
    return SPARSE_SPREAD if model.num_experts else DENSE_SPREAD
