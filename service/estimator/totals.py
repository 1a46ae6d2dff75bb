"""What does the whole run take: steps, hours, days, money, energy?"""

from functools import partial

from service.estimator.answer import Flop, Step, Totals
from service.estimator.cost import at_peak_gpu_hours, cost_usd, energy_kwh, gpu_hours, run_days
from service.estimator.goodput import goodput_fraction
from service.estimator.resolve import Resolved
from service.estimator.run import Run
from service.estimator.run_totals import mean_step, stage_totals
from service.estimator.throughput import rising


def totals_of(resolved: Resolved, step: Step, flop: Flop, run: Run | None) -> Totals | None:
    """The whole run, from its steps; none without `training_tokens`.

    Formula:
        steps x seconds of a step on average x GPUs / goodput, and what that costs

    Args:
        resolved: the question, defaults filled
        step: seconds of one optimizer step
        flop: operations of one step and of the run
        run: its stages and steps

    Returns:
        steps, GPU-hours [h], days [d], money [USD] and energy [kWh]

    Source:
        the formulas of cost.py and goodput.py
    """
    full = resolved.question
    gpus, price = full.cluster.gpus, full.price
    if run is None or flop.total_flop is None:
        return None
    goodput, seconds = goodput_fraction(gpus), mean_step(run, step)
    hours = rising(seconds, lambda each: gpu_hours(run.steps, each, gpus, goodput))
    cost = None if price is None else rising(hours, partial(cost_usd, usd_per_gpu_hour=price.usd_per_gpu_hour))
    return Totals(
        steps=run.steps,
        stages=stage_totals(run, step, flop, lambda steps, each: gpu_hours(steps, each, gpus, goodput)),
        gpu_hours=hours,
        days=rising(hours, partial(run_days, gpus=gpus)),
        goodput_fraction=goodput,
        at_peak_gpu_hours=at_peak_gpu_hours(flop.total_flop, step.peak_flop_per_s),
        cost_usd=cost,
        energy_kwh=rising(hours, partial(energy_kwh, board_watts=resolved.job.gpu.board_watts)),
        carbon_kg_co2e=None,
    )
