"""Totals of a run: steps, hours, days, goodput, energy and cost."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import exp, sqrt
from typing import Any

from service.estimator.answer import Estimate, Flop, Goodput, Interval, LostTime, RunStageTotals, Step, Totals
from service.estimator.complete import CompleteCluster, CompletePrice, CompleteQuestion
from service.estimator.constants import CHECKPOINT_SECONDS
from service.estimator.memory.device import verdict_of
from service.estimator.memory.states import checkpoint_bytes
from service.estimator.model.counts import pflop_days, run_flop
from service.estimator.numeric import ceil_div
from service.estimator.question import Checkpointing, OwnedPrice, Price, Question
from service.estimator.resolve import (
    MOST_CACHED_CONFIGURATIONS,
    ResolvedQuestion,
    RunOptions,
    run_options_of,
    with_price,
    with_run,
)
from service.estimator.run.cost import Usage, carbon_kg_co2e, charges_of, energy_kwh, gpu_watts, sum_of
from service.estimator.run.run import Configuration, Run, compute_configuration, rising, run_of
from service.estimator.schedule import (
    at_peak_gpu_hours,
    billed_gpu_hours,
    gpu_hours,
    ideal_days,
    run_days,
    spare_gpu_hours,
    spare_gpus,
)
from service.estimator.time.kernels import limited_watts
from service.estimator.workload import Workload


def interruption_seconds(
    gpus: int, failures_per_gpu_hour: float, instances: int, preemptions_per_instance_hour: float
) -> float:
    """Mean time between interruptions of one job: failures of its GPUs, and machines that are taken back.

    Formula: M = 3600 / (GPUs x failures + machines x preemptions)
    Args:
        gpus: GPUs of the job [1]
        failures_per_gpu_hour: interruptions for each GPU-hour [1/GPU-h]
        instances: machines of the job [1]
        preemptions_per_instance_hour: how often one machine is taken back [1/instance-h]
    Returns: mean time between interruptions, M [s]
    Source: independent failures: rates add

    >>> interruption_seconds(1000, 1e-5, 125, 8e-5)
    180000.0
    """
    per_hour = gpus * failures_per_gpu_hour + instances * preemptions_per_instance_hour
    return 3600 / per_hour


def young_interval_seconds(checkpoint_seconds: float, failure_seconds: float) -> float:
    """Time between checkpoints that wastes least for one job, to first order.

    Formula: sqrt(2 delta M)
    Args:
        checkpoint_seconds: stall of one checkpoint, delta [s]
        failure_seconds: mean time between the job's interruptions, M [s]
    Returns: the interval [s]
    Source: Young 1974, doi:10.1145/361147.361115

    >>> young_interval_seconds(30.0, 15_000.0)
    948.6832980505138
    """
    return sqrt(2 * checkpoint_seconds * failure_seconds)


def daly_interval_seconds(checkpoint_seconds: float, failure_seconds: float) -> float:
    """Time between checkpoints that wastes least for one job, where stalls are not much shorter than failures are rare.

    Formula: sqrt(2 delta M) (1 + sqrt(delta / 2 M) / 3 + delta / 18 M) - delta where delta < 2 M, else M
    Args:
        checkpoint_seconds: stall of one checkpoint, delta [s]
        failure_seconds: mean time between the job's interruptions, M [s]
    Returns: the interval [s]
    Source: Daly 2006, doi:10.1016/j.future.2004.11.016, equation 37

    >>> round(daly_interval_seconds(200.0, 10_000.0), 1)
    1868.9
    """
    if checkpoint_seconds >= 2 * failure_seconds:
        return failure_seconds
    half = checkpoint_seconds / (2 * failure_seconds)
    return young_interval_seconds(checkpoint_seconds, failure_seconds) * (1 + sqrt(half) / 3 + half / 9) - (
        checkpoint_seconds
    )


def snapshot_seconds(written_bytes: float, gpus: int, host_bytes_per_s: float) -> float:
    """Stall of an asynchronous checkpoint: every GPU copies its share of the state to host memory.

    Formula: checkpoint bytes / (GPUs x host link)
    Args:
        written_bytes: a checkpoint of the whole job [byte]
        gpus: GPUs of the job [1]
        host_bytes_per_s: rate from one GPU to its host [byte/s]
    Returns: the stall [s]
    Source: definition; every tensor is copied once, by one of the ranks that hold it (torch.distributed.checkpoint)

    >>> snapshot_seconds(112e9, 8, 56e9)
    0.25
    """
    return written_bytes / (gpus * host_bytes_per_s)


def write_seconds(written_bytes: float, write_bytes_per_s: float) -> float:
    """Time to write one checkpoint to storage.

    Formula: checkpoint bytes / rate of the storage
    Args:
        written_bytes: a checkpoint of the whole job [byte]
        write_bytes_per_s: rate at which the whole job writes [byte/s]
    Returns: the time [s]
    Source: definition

    >>> write_seconds(112e9, 2e9)
    56.0
    """
    return written_bytes / write_bytes_per_s


def checkpoint_waste_fraction(checkpoint_seconds: float, interval_seconds: float) -> float:
    """Time that checkpoints take over the time of the steps between them.

    Formula: delta / tau
    Args:
        checkpoint_seconds: stall of one checkpoint, delta [s]
        interval_seconds: time between checkpoints, tau [s]
    Returns: share of the useful time [1]
    Source: Daly 2006, doi:10.1016/j.future.2004.11.016

    >>> checkpoint_waste_fraction(30.0, 600.0)
    0.05
    """
    return checkpoint_seconds / interval_seconds


def lost_work_fraction(interval_seconds: float, failure_seconds: float) -> float:
    """Work done again after interruptions, half an interval each, over the useful time.

    Formula: (tau / 2) / M
    Args:
        interval_seconds: time between checkpoints, tau [s]
        failure_seconds: mean time between the job's interruptions, M [s]
    Returns: share of the useful time [1]
    Source: Daly 2006, doi:10.1016/j.future.2004.11.016, first order

    >>> lost_work_fraction(600.0, 15_000.0)
    0.02
    """
    return interval_seconds / 2 / failure_seconds


def restart_fraction(restart_seconds: float, failure_seconds: float) -> float:
    """Time without steps after interruptions over the useful time.

    Formula: R / M
    Args:
        restart_seconds: time from an interruption to the first new step, R [s]
        failure_seconds: mean time between the job's interruptions, M [s]
    Returns: share of the useful time [1]
    Source: Daly 2006, doi:10.1016/j.future.2004.11.016

    >>> restart_fraction(600.0, 15_000.0)
    0.04
    """
    return restart_seconds / failure_seconds


def goodput_fraction(checkpoints_fraction: float, lost_work_fraction: float, restarts_fraction: float) -> float:
    """Useful share of the wall time of one job.

    Formula: 1 / (1 + delta / tau + (tau / 2 + R) / M)
    Args:
        checkpoints_fraction: time of checkpoints over useful time, delta / tau [1]
        lost_work_fraction: time of work done again over useful time, tau / 2 M [1]
        restarts_fraction: time of restarts over useful time, R / M [1]
    Returns: share of the wall time [1]
    Source: Daly 2006, doi:10.1016/j.future.2004.11.016, first order

    >>> goodput_fraction(0.05, 0.15, 0.05)
    0.8
    """
    return 1 / (1 + checkpoints_fraction + lost_work_fraction + restarts_fraction)


def lost_days(ideal_days: float, waste_fraction: float) -> float:
    """Wall time of a run that one kind of waste takes.

    Formula: ideal days x waste
    Args:
        ideal_days: wall time if nothing were lost [d]
        waste_fraction: time of the waste over useful time [1]
    Returns: days [d]
    Source: definition

    >>> lost_days(40.0, 0.05)
    2.0
    """
    return ideal_days * waste_fraction


INTERVALS = {"young": young_interval_seconds, "daly": daly_interval_seconds}
"""Formula of each rule."""

DEFAULT_CHECKPOINTING = Checkpointing()
"""Asynchronous checkpoints at the interval that loses the least time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostShares:
    """Lost time by cause, each as a share of the useful time."""

    interruption_seconds: float
    """Mean time between interruptions of the job."""
    checkpoint_seconds: float
    interval_seconds: float
    """Useful time between checkpoints."""
    checkpoints_fraction: float
    """Stalls over useful time."""
    lost_work_fraction: float
    """Work done again over useful time."""
    restarts_fraction: float

    @property
    def goodput_fraction(self) -> float:
        """Useful share of the wall time."""
        return goodput_fraction(self.checkpoints_fraction, self.lost_work_fraction, self.restarts_fraction)


def lost_shares_of(resolved: ResolvedQuestion, step_seconds: float) -> LostShares:
    """Shares of time that interruptions and checkpoints take."""
    full, checkpointing = resolved.question, checkpointing_of(resolved.workload)
    between, written = interruption_seconds(**interruption_inputs(full)), written_bytes(resolved.workload)
    stall = stall_seconds(checkpointing, written, full.cluster.gpus, full.gpu.host_bytes_per_s)
    interval = max(
        checkpointing.interval_seconds or INTERVALS[checkpointing.rule or "young"](stall, between), step_seconds
    )
    if checkpointing.asynchronous and checkpointing.write_bytes_per_s is not None:
        interval = max(interval, write_seconds(written, checkpointing.write_bytes_per_s))
    return LostShares(
        interruption_seconds=between,
        checkpoint_seconds=stall,
        interval_seconds=interval,
        checkpoints_fraction=checkpoint_waste_fraction(stall, interval),
        lost_work_fraction=lost_work_fraction(interval, between),
        restarts_fraction=restart_fraction(full.cluster.restart_seconds, between),
    )


def written_bytes(workload: Workload) -> float:
    """Bytes of a checkpoint where its time follows from them.

    Formula: checkpoint bytes of the job where write_bytes_per_s is given, else 0
    Returns: bytes of the whole job [byte]
    Source: states.checkpoint_bytes

    >>> from service.estimator.samples import sample_workload
    >>> written_bytes(sample_workload())
    0.0
    """
    return 0.0 if checkpointing_of(workload).write_bytes_per_s is None else checkpoint_bytes(workload)


def stall_seconds(checkpoint: Checkpointing, written_bytes: float, gpus: int, host_bytes_per_s: float) -> float:
    """Time that training stands still for one checkpoint.

    Formula:
        stall_seconds where it is told, 30 s where nothing is; else checkpoint bytes / write rate, or asynchronously
        checkpoint bytes / (GPUs x host link)
    Args:
        checkpoint: how checkpoints are taken
        written_bytes: a checkpoint of the whole job [byte]
        gpus: GPUs of the job [1]
        host_bytes_per_s: rate from one GPU to its host [byte/s]
    Returns: the stall [s]
    Source: CHECKPOINT_SECONDS, snapshot_seconds and write_seconds

    >>> stall_seconds(Checkpointing(write_bytes_per_s=2e9), 112e9, 8, 56e9)
    0.25
    """
    if checkpoint.stall_seconds is not None or checkpoint.write_bytes_per_s is None:
        return checkpoint.stall_seconds or CHECKPOINT_SECONDS
    if checkpoint.asynchronous:
        return snapshot_seconds(written_bytes, gpus, host_bytes_per_s)
    return write_seconds(written_bytes, checkpoint.write_bytes_per_s)


def checkpointing_of(workload: Workload) -> Checkpointing:
    """Checkpoints of a job; the default ones where it sets none."""
    return workload.recipe.checkpoint or DEFAULT_CHECKPOINTING


def interruption_inputs(question: CompleteQuestion) -> dict[str, Any]:
    """Inputs of the mean time between interruptions."""
    cluster, price = question.cluster, question.price
    return {
        "gpus": cluster.gpus,
        "failures_per_gpu_hour": cluster.failures_per_gpu_hour,
        "instances": int(ceil_div(cluster.gpus, cluster.gpus_per_node)),
        "preemptions_per_instance_hour": (
            price.preemptions_per_instance_hour if isinstance(price, CompletePrice) else 0.0
        ),
    }


RUN_RESIDUALS = (-0.26, 0.65)
"""80 % of published runs took between exp(low) and exp(high) of the GPU-hours predicted for them, each source counting
as much as any other: billed hours include older software, evaluation, waiting for data and repeated steps.
Source: service.calibration.scores over the main runs of published/totals.csv."""


PLAN_RESIDUALS = (0.01, 0.67)
"""80 % of published runs took between exp(low) and exp(high) of the GPU-hours of their best plan, each source counting
as much as any other: beside what RUN_RESIDUALS says, no lab tried every layout, and the best of many predictions is one
that is too good.
Source: service.evaluation.planned over the main runs of published/totals.csv."""


def run_interval(predicted: Interval, residuals: tuple[float, float] = RUN_RESIDUALS) -> Interval:
    """The 80 % interval of what a whole run takes: that of its steps, or that of published runs where it is wider.

    Formula: min(low, T exp(l)) to max(high, T exp(h)), l and h the residuals
    Args:
        predicted: what the run takes by its steps, with their interval, T
        residuals: lower and upper end of ln(published / predicted) of whole runs, PLAN_RESIDUALS of planned ones [1]
    Returns: the same prediction, as wide as published runs ask for
    Source: RUN_RESIDUALS

    >>> wide = run_interval(Interval(50.0, 100.0, 110.0, "analytic"))
    >>> wide.low, wide.value, round(wide.high)
    (50.0, 100.0, 192)
    """
    low, high = (predicted.value * exp(residual) for residual in residuals)
    return Interval(min(predicted.low, low), predicted.value, max(predicted.high, high), predicted.basis)


def stage_totals(
    run: Run, step: Step, flop: Flop, hours_of: Callable[[int, float], float]
) -> tuple[RunStageTotals, ...]:
    """Totals of each stage of a run. Empty where batch and length never change."""
    if not run.stages:
        return ()
    own, last = step.step_seconds, run.last_steps
    parts = [
        (one.steps, one.tokens, one.flop, scaled(own, one.seconds / one.steps / own.value)) for one in run.stages
    ] + [(last, last * flop.per_step_tokens, last * flop.per_step_flop, own)]
    return tuple(
        RunStageTotals(
            stage=index,
            steps=steps,
            tokens=tokens,
            total_flop=stage_flop,
            step_seconds=seconds,
            gpu_hours=run_interval(rising(seconds, partial(hours_of, steps))),
        )
        for index, (steps, tokens, stage_flop, seconds) in enumerate(parts)
    )


def scaled(interval: Interval, factor: float) -> Interval:
    """An interval, multiplied by a factor.

    >>> scaled(Interval(1.0, 2.0, 3.0, "analytic"), 2.0).high
    6.0
    """
    return rising(interval, lambda value: value * factor)


def totals_of(resolved: ResolvedQuestion, step: Step, flop: Flop, run: Run | None) -> Totals | None:
    """The whole run, from its steps; none without `training_tokens`.

    Formula: steps x seconds of a step on average x GPUs / goodput, as wide as run_interval, and what that costs
    Args:
        step: seconds of one optimizer step
        flop: operations of one step and of the run
        run: its stages and steps
    Returns: steps, hours, days, money, energy and carbon
    """
    gpus = resolved.question.cluster.gpus
    if run is None or flop.total_flop is None:
        return None
    own = step.step_seconds
    seconds = own if not run.stages else scaled(own, run.mean_step_seconds(own.value) / own.value)
    losses = lost_shares_of(resolved, seconds.value)
    goodput = losses.goodput_fraction
    hours = run_interval(rising(seconds, lambda each: gpu_hours(run.steps, each, gpus, goodput)))
    used, (busy_watts, idle_watts) = usage_of(resolved, hours, losses), _power_watts(resolved)
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
        goodput=Goodput(
            interruption_seconds=losses.interruption_seconds,
            checkpoint_seconds=losses.checkpoint_seconds,
            checkpoint_interval_seconds=losses.interval_seconds,
            lost=tuple(
                LostTime(kind=kind, days=lost_days(ideal.value, getattr(losses, f"{kind}_fraction")))
                for kind in ("checkpoints", "lost_work", "restarts")
            ),
        ),
        at_peak_gpu_hours=at_peak_gpu_hours(flop.total_flop, step.peak_flop_per_s),
        cost_usd=None if lines is None else sum_of(line.usd for line in lines),
        cost=lines,
        gpu_busy_watts=busy_watts,
        gpu_idle_watts=idle_watts,
        energy_kwh=used.energy_kwh,
        carbon_kg_co2e=(
            None if intensity is None else rising(used.energy_kwh, lambda kwh: carbon_kg_co2e(kwh, intensity))
        ),
    )


def usage_of(resolved: ResolvedQuestion, hours: Interval, losses: LostShares) -> Usage:
    """Hours, days and energy of a run."""
    cluster = resolved.question.cluster
    spares = spares_of(cluster)
    days = rising(hours, lambda h: run_days(h, cluster.gpus))
    spare = rising(days, lambda d: spare_gpu_hours(d, spares))
    waiting_fraction = losses.restarts_fraction * losses.goodput_fraction
    busy_watts, idle_watts = _power_watts(resolved)

    def drawn_kwh(used: float, idle: float) -> float:
        return energy_kwh(used * (1 - waiting_fraction), busy_watts, used * waiting_fraction + idle, idle_watts)

    return Usage(
        gpu_hours=hours,
        spare_gpu_hours=spare,
        billed_gpu_hours=_combined_interval(hours, spare, billed_gpu_hours),
        days=days,
        energy_kwh=_combined_interval(hours, spare, drawn_kwh),
    )


def _combined_interval(one: Interval, other: Interval, formula: Callable[[float, float], float]) -> Interval:
    """The interval of a formula of two amounts that rise together."""
    return Interval(
        formula(one.low, other.low), formula(one.value, other.value), formula(one.high, other.high), one.basis
    )


def spares_of(cluster: CompleteCluster) -> int:
    """Spare GPUs of a cluster.

    Formula: whole nodes of the spare share
    Returns: spare GPUs [1]
    Source: definition

    >>> from dataclasses import replace
    >>> from service.estimator.samples import sample_resolved
    >>> spares_of(replace(sample_resolved().question.cluster, gpus=64, gpus_per_node=8, spare_fraction=0.05))
    8
    """
    return spare_gpus(cluster.gpus, cluster.gpus_per_node, cluster.spare_fraction)


def _power_watts(resolved: ResolvedQuestion) -> tuple[float, float]:
    """Power at the meter of one GPU with its share of hosts and building, busy and idle."""
    cluster, workload = resolved.question.cluster, resolved.workload
    board, most = workload.gpu.board_watts, limited_watts(workload)
    loads = (cluster.busy_power_fraction, cluster.idle_power_fraction)
    busy, idle = (gpu_watts(board, most, cluster.host_power_fraction, load, cluster.pue) for load in loads)
    return busy, idle


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedRun:
    """A run of a configuration, before its cost."""

    resolved: ResolvedQuestion
    """The question, every default filled."""
    known: Configuration
    """Memory, FLOP and step of its configuration."""
    run: Run | None
    """Its stages and steps; None without training_tokens."""
    flop: Flop
    """Operations of a step and of the run."""


def compute_run(question: Question, configuration: ResolvedQuestion) -> ComputedRun:
    """Compute the run of a question, once for all questions that differ in their price alone."""
    return at_price(_unpriced(configuration, run_options_of(question)), question.price)


@lru_cache(maxsize=MOST_CACHED_CONFIGURATIONS)
def _unpriced(configuration: ResolvedQuestion, options: RunOptions) -> ComputedRun:
    known = compute_configuration(configuration)
    resolved = with_run(configuration, options)
    run, flop = run_of(resolved, known.loads, known.peak.filled_fraction), known.flop
    if run is not None:
        total = run.earlier_flop + run_flop(flop.per_step_flop, run.last_steps)
        flop = replace(flop, total_flop=total, total_pflop_days=pflop_days(total))
    return ComputedRun(resolved=resolved, known=known, run=run, flop=flop)


def at_price(running: ComputedRun, price: Price | OwnedPrice | None) -> ComputedRun:
    """The same run at another price."""
    return replace(running, resolved=with_price(running.resolved, price))


def numbers_of(
    running: ComputedRun,
    totals: Totals | None,
    *,
    assumptions: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Estimate:
    """The answer to a question, with its totals."""
    known = running.known
    return Estimate(
        resolved=running.resolved.question,
        verdict=verdict_of(known.peak.memory.oom_probability_fraction),
        parameters=known.parameters,
        memory=known.peak.memory,
        flop=running.flop,
        step=known.step,
        communication=known.communication,
        totals=totals,
        assumptions=assumptions,
        warnings=warnings,
    )


def totals_at(running: ComputedRun) -> Totals | None:
    """Time, power and cost of a run; None without training_tokens."""
    return totals_of(running.resolved, running.known.step, running.flop, running.run)
