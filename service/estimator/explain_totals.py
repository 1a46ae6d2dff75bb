"""Where do the totals of a run come from: hours, lost time, energy, carbon and the lines of the cost?"""

from service.estimator.answer import Estimate, Totals
from service.estimator.clock import limited_watts
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
from service.estimator.explain_run import mean_step_seconds, steps_explanation
from service.estimator.explanation import Explanation, Inputs, applied, explained
from service.estimator.filled import filled
from service.estimator.goodput import goodput_fraction, interruption_seconds, lost_days
from service.estimator.losses import (
    INTERVALS,
    Losses,
    checkpointing_of,
    interruption_inputs,
    losses_of,
    stall_seconds,
    written_bytes,
)
from service.estimator.money import sum_usd
from service.estimator.resolve import Resolved
from service.estimator.spending import charges_of
from service.estimator.totals import power_of, used_of


def totals_explanations(resolved: Resolved, estimate: Estimate) -> list[Explanation]:
    """Every explained number of the totals.

    Args:
        resolved: the question, defaults filled
        estimate: its answer

    Returns:
        explanations, in the order of the answer; none without totals
    """
    if estimate.totals is None:
        return []
    losses = losses_of(resolved, mean_step_seconds(estimate.totals, estimate.step))
    return [
        *_time(estimate, estimate.totals),
        applied(
            "totals.at_peak_gpu_hours",
            at_peak_gpu_hours,
            flop=estimate.flop.total_flop,
            peak_flop_per_s=estimate.step.peak_flop_per_s,
        ),
        *_goodput(resolved, estimate, losses),
        *_cost(resolved, estimate.totals, losses),
        *_energy(resolved, estimate.totals, losses),
    ]


def _time(estimate: Estimate, totals: Totals) -> list[Explanation]:
    full = estimate.resolved
    gpus, hours, days = full.cluster.gpus, totals.gpu_hours.value, totals.days.value
    return [
        steps_explanation(full.recipe, totals),
        applied(
            "totals.gpu_hours.value",
            gpu_hours,
            steps=totals.steps,
            step_seconds=mean_step_seconds(totals, estimate.step),
            gpus=gpus,
            goodput=totals.goodput_fraction,
        ),
        applied(
            "totals.spare_gpus",
            spare_gpus,
            gpus=gpus,
            gpus_per_node=full.cluster.gpus_per_node,
            spare_fraction=full.cluster.spare_fraction,
        ),
        applied(
            "totals.billed_gpu_hours.value",
            billed_gpu_hours,
            gpu_hours_used=hours,
            spare_gpu_hours=spare_gpu_hours(days, totals.spare_gpus),
        ),
        applied("totals.days.value", run_days, gpu_hours_used=hours, gpus=gpus),
        applied("totals.ideal_days.value", ideal_days, days=days, goodput=totals.goodput_fraction),
    ]


def _goodput(resolved: Resolved, estimate: Estimate, losses: Losses) -> list[Explanation]:
    totals, told = estimate.totals, checkpointing_of(resolved.job)
    if totals is None:
        return []
    path, one, found = "totals.goodput", resolved.job, totals.goodput
    stalls: Inputs = {
        "stall_seconds": told.stall_seconds,
        "write_bytes_per_s": told.write_bytes_per_s,
        "checkpoint_bytes": written_bytes(one),
        "host_bytes_per_s": one.gpu.host_bytes_per_s,
        "gpus": one.cluster.gpus,
    }
    kept: Inputs = {
        "checkpoint_seconds": losses.checkpoint_seconds,
        "failure_seconds": losses.interruption_seconds,
        "interval_seconds": told.interval_seconds,
        "step_seconds": mean_step_seconds(totals, estimate.step),
        "write_bytes_per_s": told.write_bytes_per_s,
    }
    shares = (losses.checkpoints_fraction, losses.lost_work_fraction, losses.restarts_fraction)
    named = dict(zip(("checkpoints_fraction", "lost_work_fraction", "restarts_fraction"), shares, strict=True))
    return [
        applied("totals.goodput_fraction", goodput_fraction, **named),
        applied(f"{path}.interruption_seconds", interruption_seconds, **interruption_inputs(resolved.question)),
        explained(f"{path}.checkpoint_seconds", found.checkpoint_seconds, stall_seconds, stalls),
        explained(
            f"{path}.checkpoint_interval_seconds",
            found.checkpoint_interval_seconds,
            INTERVALS[told.rule or "young"],
            kept,
        ),
        *(
            applied(f"{path}.lost[{place}].days", lost_days, ideal_days=totals.ideal_days.value, waste_fraction=share)
            for place, share in enumerate(shares)
        ),
    ]


def _cost(resolved: Resolved, totals: Totals, losses: Losses) -> list[Explanation]:
    if totals.cost is None or totals.cost_usd is None:
        return []
    charges = charges_of(resolved, used_of(resolved, totals.gpu_hours, losses, power_of(resolved)))
    lines: Inputs = {line.kind: line.usd.value for line in totals.cost}
    return [
        explained("totals.cost_usd.value", totals.cost_usd.value, sum_usd, lines),
        *(
            explained(
                f"totals.cost[{place}].usd.value",
                line.usd.value,
                charge.formula,
                {"quantity": charge.quantity.value, **charge.rates},
            )
            for place, (line, charge) in enumerate(zip(totals.cost, charges, strict=True))
        ),
    ]


def _energy(resolved: Resolved, totals: Totals, losses: Losses) -> list[Explanation]:
    cluster = resolved.question.cluster
    waits = losses.restarts_fraction * losses.goodput_fraction
    hours, spare = totals.gpu_hours.value, spare_gpu_hours(totals.days.value, totals.spare_gpus)
    power: Inputs = {
        "board_watts": resolved.job.gpu.board_watts,
        "limit_watts": limited_watts(resolved.job),
        "host_power_fraction": filled(cluster.host_power_fraction),
        "pue": filled(cluster.pue),
    }
    said = [
        applied("totals.gpu_busy_watts", gpu_watts, **power, power_fraction=cluster.busy_power_fraction),
        applied("totals.gpu_idle_watts", gpu_watts, **power, power_fraction=cluster.idle_power_fraction),
        applied(
            "totals.energy_kwh.value",
            energy_kwh,
            busy_gpu_hours=hours * (1 - waits),
            busy_watts=totals.gpu_busy_watts,
            idle_gpu_hours=hours * waits + spare,
            idle_watts=totals.gpu_idle_watts,
        ),
    ]
    if totals.carbon_kg_co2e is not None:
        said.append(
            applied(
                "totals.carbon_kg_co2e.value",
                carbon_kg_co2e,
                used_kwh=totals.energy_kwh.value,
                grid_kg_co2e_per_kwh=cluster.grid_kg_co2e_per_kwh,
            )
        )
    return said
