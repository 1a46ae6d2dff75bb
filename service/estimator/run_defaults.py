"""Which failures, power and terms hold for a run where its question does not say so?"""

from dataclasses import replace
from typing import Any

from service.errors import Problem, Refused
from service.estimator.cluster import Cluster
from service.estimator.energy import (
    BUSY_POWER_FRACTION,
    HOST_POWER_FRACTION,
    IDLE_POWER_FRACTION,
    POWER_USAGE_EFFECTIVENESS,
)
from service.estimator.goodput import FAILURES_PER_GPU_HOUR, PREEMPTIONS_PER_INSTANCE_HOUR, RESTART_SECONDS
from service.estimator.price import OwnedPrice, Price

_RUNNING: dict[str, float] = {
    "failures_per_gpu_hour": FAILURES_PER_GPU_HOUR,
    "restart_seconds": RESTART_SECONDS,
    "spare_fraction": 0.0,
    "pue": POWER_USAGE_EFFECTIVENESS,
    "busy_power_fraction": BUSY_POWER_FRACTION,
    "idle_power_fraction": IDLE_POWER_FRACTION,
    "host_power_fraction": HOST_POWER_FRACTION,
}
"""Fields of a cluster that have a default. Source: the constants of goodput.py and energy.py."""


def running_of(cluster: Cluster) -> dict[str, Any]:
    """How a cluster runs: its own rates and shares, else the usual ones.

    Args:
        cluster: the cluster as asked

    Returns:
        values of the fields that have a default
    """
    told = {name: getattr(cluster, name) for name in _RUNNING}
    return {name: _RUNNING[name] if value is None else value for name, value in told.items()}


def priced(price: Price | OwnedPrice | None) -> Price | OwnedPrice | None:
    """A price with its preemptions filled in.

    Args:
        price: the price as asked

    Returns:
        the price

    Raises:
        Refused: own hardware without a purchase price
    """
    if isinstance(price, OwnedPrice) and price.purchase_usd is None:
        raise Refused(NO_PURCHASE)
    if not isinstance(price, Price) or price.preemptions_per_instance_hour is not None:
        return price
    usual = PREEMPTIONS_PER_INSTANCE_HOUR if price.price_model == "spot" else 0.0
    return replace(price, preemptions_per_instance_hour=usual)


NO_PURCHASE = Problem(
    field="price.purchase_usd",
    code="purchase_price_is_known",
    message="own hardware is written off from its purchase price, and the price of this GPU is not known",
    fix="give purchase_usd, what one GPU costs with its share of server and network",
)
