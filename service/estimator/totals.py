"""What does the whole run take: steps, hours, days, money, energy?"""

from collections.abc import Callable
from dataclasses import dataclass

from service.estimator.answer import Flop, Step, Totals
from service.estimator.clock import limited_watts
from service.estimator.cluster import Cluster
from service.estimator.cost import (
    at_peak_gpu_hours,
    billed_gpu_hours,
    gpu_hours,
    ideal_days,
    run_days,
    spare_gpu_hours,
    spare_gpus,
)
from service.estimator.energy import carbon_kg_co2e, energy_kwh, gpu_watts
from service.estimator.filled import filled
from service.estimator.interval import Interval
from service.estimator.losses import Losses, goodput_parts, losses_of
from service.estimator.money import sum_of
from service.estimator.resolve import Resolved
from service.estimator.run import Run
from service.estimator.run_residuals import run_interval
from service.estimator.run_totals import mean_step, stage_totals
from service.estimator.spending import Used, charges_of
from service.estimator.throughput import rising


@dataclass(frozen=True, slots=True)
class Power:
    """Power at the meter of one GPU, its share of hosts and building counted."""

    busy_watts: float
    """At work."""
    idle_watts: float
    """Waiting."""


def totals_of(resolved: Resolved, step: Step, flop: Flop, run: Run | None) -> Totals | None:
    """The whole run, from its steps; none without `training_tokens`.

    Formula:
        steps x seconds of a step on average x GPUs / goodput, as wide as run_interval, and what that costs

    Args:
        resolved: the question, defaults filled
        step: seconds of one optimizer step
        flop: operations of one step and of the run
        run: its stages and steps

    Returns:
        steps, hours, days, money, energy and carbon
    """
    gpus = resolved.question.cluster.gpus
    if run is None or flop.total_flop is None:
        return None
    seconds = mean_step(run, step)
    losses, power = losses_of(resolved, seconds.value), power_of(resolved)
    goodput = losses.goodput_fraction
    hours = run_interval(rising(seconds, lambda each: gpu_hours(run.steps, each, gpus, goodput)))
    used = used_of(resolved, hours, losses, power)
    ideal = rising(used.days, lambda days: ideal_days(days, goodput))
    lines = tuple(charge.line() for charge in charges_of(resolved, used)) or None
    intensity = resolved.question.cluster.grid_kg_co2e_per_kwh
    return Totals(
        steps=run.steps,
        stages=stage_totals(run, step, flop, lambda steps, each: gpu_hours(steps, each, gpus, goodput)),
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
    cluster, board, most = resolved.question.cluster, resolved.job.gpu.board_watts, limited_watts(resolved.job)
    host, pue = filled(cluster.host_power_fraction), filled(cluster.pue)
    busy, idle = filled(cluster.busy_power_fraction), filled(cluster.idle_power_fraction)
    return Power(gpu_watts(board, most, host, busy, pue), gpu_watts(board, most, host, idle, pue))
