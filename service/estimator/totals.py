"""What does the whole run take: steps, hours, days, money, energy?"""

from collections.abc import Callable
from dataclasses import dataclass

from service.estimator.answer import Flop, Step, Totals
from service.estimator.cluster import Cluster
from service.estimator.cost import (
    at_peak_gpu_hours,
    billed_gpu_hours,
    gpu_hours,
    ideal_days,
    run_days,
    spare_gpu_hours,
    spare_gpus,
    steps_of,
)
from service.estimator.documents import trained_tokens
from service.estimator.energy import carbon_kg_co2e, energy_kwh, gpu_watts
from service.estimator.filled import filled
from service.estimator.interval import Interval
from service.estimator.losses import Losses, goodput_parts, losses_of
from service.estimator.money import sum_of
from service.estimator.question import Recipe
from service.estimator.resolve import Resolved
from service.estimator.spending import Used, charges_of
from service.estimator.throughput import rising


@dataclass(frozen=True, slots=True)
class Power:
    """Power at the meter of one GPU, its share of hosts and building counted."""

    busy_watts: float
    """At work."""
    idle_watts: float
    """Waiting."""


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

    Args:
        resolved: the question, defaults filled
        step: seconds of one optimizer step
        flop: operations of one step and of the run

    Returns:
        steps, hours, days, money, energy and carbon
    """
    steps, gpus = run_steps(resolved.question.recipe), resolved.question.cluster.gpus
    if steps is None or flop.total_flop is None:
        return None
    losses, power = losses_of(resolved, step.step_seconds.value), power_of(resolved)
    goodput = losses.goodput_fraction
    hours = rising(step.step_seconds, lambda seconds: gpu_hours(steps, seconds, gpus, goodput))
    used = used_of(resolved, hours, losses, power)
    ideal = rising(used.days, lambda days: ideal_days(days, goodput))
    lines = tuple(charge.line() for charge in charges_of(resolved, used)) or None
    intensity = resolved.question.cluster.grid_kg_co2e_per_kwh
    return Totals(
        steps=steps,
        gpu_hours=hours,
        billed_gpu_hours=used.billed_gpu_hours,
        spare_gpus=spares_of(resolved.question.cluster),
        days=used.days,
        ideal_days=ideal,
        goodput_fraction=goodput,
        goodput=goodput_parts(losses, ideal.value),
        at_peak_gpu_hours=at_peak_gpu_hours(flop.total_flop, step.peak_flop_per_s),
        cost_usd=None if lines is None else sum_of(line.usd for line in lines),
        cost=lines,
        gpu_busy_watts=power.busy_watts,
        gpu_idle_watts=power.idle_watts,
        energy_kwh=used.energy_kwh,
        carbon_kg_co2e=(
            None if intensity is None else rising(used.energy_kwh, lambda kwh: carbon_kg_co2e(kwh, intensity))
        ),
    )


def used_of(resolved: Resolved, hours: Interval, losses: Losses, power: Power) -> Used:
    """What a run takes, as far as money and energy go by it.

    Args:
        resolved: the question, defaults filled
        hours: GPU-hours of the job, goodput counted
        losses: what interruptions and checkpoints take
        power: power of one GPU

    Returns:
        hours, days and energy
    """
    cluster = resolved.question.cluster
    spares = spares_of(cluster)
    days = rising(hours, lambda h: run_days(h, cluster.gpus))
    spare = rising(days, lambda d: spare_gpu_hours(d, spares))
    waits = losses.restarts_fraction * losses.goodput_fraction

    def drawn_kwh(job: float, idle: float) -> float:
        return energy_kwh(job * (1 - waits), power.busy_watts, job * waits + idle, power.idle_watts)

    return Used(
        gpu_hours=hours,
        spare_gpu_hours=spare,
        billed_gpu_hours=_together(hours, spare, billed_gpu_hours),
        days=days,
        energy_kwh=_together(hours, spare, drawn_kwh),
    )


def _together(one: Interval, other: Interval, formula: Callable[[float, float], float]) -> Interval:
    """What grows with two amounts that grow with the same time."""
    return Interval(
        formula(one.low, other.low), formula(one.value, other.value), formula(one.high, other.high), one.basis
    )


def spares_of(cluster: Cluster) -> int:
    """Spare GPUs of a cluster.

    Formula:
        whole nodes of the spare share

    Args:
        cluster: the cluster, defaults filled

    Returns:
        spare GPUs [1]

    Source:
        definition

    >>> spares_of(Cluster(gpu="any", gpus=64, spare_fraction=0.05))
    8
    """
    return spare_gpus(cluster.gpus, cluster.gpus_per_node, filled(cluster.spare_fraction))


def power_of(resolved: Resolved) -> Power:
    """Power at the meter of one GPU.

    Args:
        resolved: the question, defaults filled

    Returns:
        its power at work, and while it waits
    """
    cluster, board = resolved.question.cluster, resolved.job.gpu.board_watts
    host, pue = filled(cluster.host_power_fraction), filled(cluster.pue)
    busy, idle = filled(cluster.busy_power_fraction), filled(cluster.idle_power_fraction)
    return Power(gpu_watts(board, host, busy, pue), gpu_watts(board, host, idle, pue))
