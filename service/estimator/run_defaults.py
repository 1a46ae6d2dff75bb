"""What of a question belongs to its run alone, whatever configuration it runs, and which defaults hold there?"""

from dataclasses import replace
from typing import Any

from service.estimator.price import OwnedPrice, Price
from service.estimator.question import Question
from service.estimator.run_constants import (
    BUSY_POWER_FRACTION,
    FAILURES_PER_GPU_HOUR,
    HOST_POWER_FRACTION,
    IDLE_POWER_FRACTION,
    POWER_USAGE_EFFECTIVENESS,
    PREEMPTIONS_PER_INSTANCE_HOUR,
    RESTART_SECONDS,
)

_RUNNING: dict[str, Any] = {
    "failures_per_gpu_hour": FAILURES_PER_GPU_HOUR,
    "restart_seconds": RESTART_SECONDS,
    "spare_fraction": 0.0,
    "grid_region": None,
    "grid_kg_co2e_per_kwh": None,
    "pue": POWER_USAGE_EFFECTIVENESS,
    "busy_power_fraction": BUSY_POWER_FRACTION,
    "idle_power_fraction": IDLE_POWER_FRACTION,
    "host_power_fraction": HOST_POWER_FRACTION,
}
"""Fields of a cluster that no step depends on, with what holds where they are not told.
Source: the constants of goodput.py and energy.py."""

_UNTOLD: dict[str, Any] = dict.fromkeys(_RUNNING)


def configuration_in(question: Question) -> Question:
    """The part of a question that memory, FLOP and step depend on; questions that differ in their run alone share it.

    Args:
        question: the question as asked

    Returns:
        it without price, tokens, checkpoints, failures and power; stages of a run change its memory and keep its tokens
    """
    recipe = question.recipe
    tokens = recipe.training_tokens if recipe.stages else None
    return replace(
        question,
        recipe=replace(recipe, training_tokens=tokens, checkpoint=None),
        cluster=replace(question.cluster, **_UNTOLD),
        price=None,
    )


def with_run(configuration: Question, asked: Question) -> Question:
    """A configuration with the run of a question, every default filled.

    Args:
        configuration: the question's configuration, its own defaults filled
        asked: the question

    Returns:
        the whole question
    """
    told = {name: getattr(asked.cluster, name) for name in _RUNNING}
    return replace(
        configuration,
        recipe=replace(
            configuration.recipe, training_tokens=asked.recipe.training_tokens, checkpoint=asked.recipe.checkpoint
        ),
        cluster=replace(
            configuration.cluster,
            **{name: _RUNNING[name] if value is None else value for name, value in told.items()},
        ),
        price=_priced(asked.price),
    )


def with_price(asked: Question, price: Price | OwnedPrice | None) -> Question:
    """A question at another price, its defaults filled.

    Args:
        asked: the question, every default filled
        price: the price as asked

    Returns:
        the same question at that price
    """
    return replace(asked, price=_priced(price))


def _priced(price: Price | OwnedPrice | None) -> Price | OwnedPrice | None:
    """A price with its preemptions filled in."""
    if not isinstance(price, Price) or price.preemptions_per_instance_hour is not None:
        return price
    usual = PREEMPTIONS_PER_INSTANCE_HOUR if price.price_model == "spot" else 0.0
    return replace(price, preemptions_per_instance_hour=usual)
