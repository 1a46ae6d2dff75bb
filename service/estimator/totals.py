"""What does the whole run take: steps, hours, days, money, energy?"""

from functools import partial

from service.estimator.answer import Flop, Step, Totals
from service.estimator.cost import at_peak_gpu_hours, cost_usd, energy_kwh, gpu_hours, run_days, steps_of
from service.estimator.documents import trained_tokens
from service.estimator.filled import filled
from service.estimator.goodput import goodput_fraction
from service.estimator.question import Recipe
from service.estimator.resolve import Resolved
from service.estimator.throughput import rising


def run_steps(recipe: Recipe) -> int | None:
    """Optimizer steps of a recipe's run; none without `training_tokens`.

    Formula:
        ceil(D / (B s))

    Args:
        recipe: the recipe, defaults filled

    Returns:
        steps [1]

    Source:
        definition

    >>> run_steps(Recipe(sequence_length=2048, global_batch=2048, training_tokens=1.4e12))
    333787
    """
    if recipe.training_tokens is None:
        return None
    return steps_of(recipe.training_tokens, filled(recipe.global_batch), trained_tokens(recipe))


def totals_of(resolved: Resolved, step: Step, flop: Flop) -> Totals | None:
    """The whole run, from its step; none without `training_tokens`.

    Formula:
        steps x seconds of a step x GPUs / goodput, and what that costs

    Args:
        resolved: the question, defaults filled
        step: seconds of one optimizer step
        flop: operations of one step and of the run

    Returns:
        steps, GPU-hours [h], days [d], money [USD] and energy [kWh]

    Source:
        the formulas of cost.py and goodput.py
    """
    full = resolved.question
    steps, gpus, price = run_steps(full.recipe), full.cluster.gpus, full.price
    if steps is None or flop.total_flop is None:
        return None
    goodput = goodput_fraction(gpus)
    hours = rising(step.step_seconds, lambda seconds: gpu_hours(steps, seconds, gpus, goodput))
    cost = None if price is None else rising(hours, partial(cost_usd, usd_per_gpu_hour=price.usd_per_gpu_hour))
    return Totals(
        steps=steps,
        gpu_hours=hours,
        days=rising(hours, partial(run_days, gpus=gpus)),
        goodput_fraction=goodput,
        at_peak_gpu_hours=at_peak_gpu_hours(flop.total_flop, step.peak_flop_per_s),
        cost_usd=cost,
        energy_kwh=rising(hours, partial(energy_kwh, board_watts=resolved.job.gpu.board_watts)),
        carbon_kg_co2e=None,
    )
