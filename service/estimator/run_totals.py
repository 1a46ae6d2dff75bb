"""What does each stage of a run take, and how long is its step on average?"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from service.estimator.answer import Flop, RunStageTotals, Step
from service.estimator.interval import Interval
from service.estimator.run import Run
from service.estimator.run_residuals import run_interval
from service.estimator.throughput import rising
from service.estimator.work import PFLOP_DAY_FLOP, run_flop


def with_total(flop: Flop, run: Run | None) -> Flop:
    """The FLOP part of the answer, with what the whole run takes.

    Args:
        flop: operations of one step of its last stage
        run: the run; None without training_tokens

    Returns:
        the same, with the run's
    """
    if run is None:
        return flop
    total = run.earlier_flop + run_flop(flop.per_step_flop, run.last_steps)
    return replace(flop, total_flop=total, total_pflop_days=total / PFLOP_DAY_FLOP)


def mean_step(run: Run, step: Step) -> Interval:
    """Wall time of one step on average over a run, as wide in proportion as that of its last stage.

    Args:
        run: the run
        step: one step of its last stage

    Returns:
        seconds of one step, with their interval; those of the last stage where there is no other
    """
    own = step.step_seconds
    return own if not run.stages else scaled(own, run.mean_step_seconds(own.value) / own.value)


def stage_totals(
    run: Run, step: Step, flop: Flop, hours_of: Callable[[int, float], float]
) -> tuple[RunStageTotals, ...]:
    """What each stage of a run takes.

    Args:
        run: the run
        step: one step of its last stage
        flop: operations of one step of its last stage
        hours_of: GPU-hours of so many steps of so many seconds

    Returns:
        its stages, the last one included; empty where batch and length never change
    """
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
    """An interval of another size and the same width in proportion.

    Args:
        interval: the interval
        factor: by which it grows [1]

    Returns:
        the interval, all of it that many times as large

    >>> scaled(Interval(1.0, 2.0, 3.0, "analytic"), 2.0).high
    6.0
    """
    return rising(interval, lambda value: value * factor)
