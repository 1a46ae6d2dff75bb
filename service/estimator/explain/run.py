"""Explanations of a run: steps, stages, hours, lost time, energy, carbon and cost."""

from dataclasses import replace

from service.estimator.answer import Estimate, Flop, RunStageTotals, Step, Totals
from service.estimator.complete import CompleteStage
from service.estimator.explain.explanation import Explanation, Inputs, applied, explained
from service.estimator.model.documents import step_tokens, trained_tokens
from service.estimator.model.flop import run_flop, sequence_flop
from service.estimator.question import Recipe
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run.cost import carbon_kg_co2e, charges_of, energy_kwh, gpu_watts, sum_usd
from service.estimator.run.goodput import goodput_fraction, interruption_seconds, lost_days
from service.estimator.run.run import phase_seconds
from service.estimator.run.totals import (
    INTERVALS,
    LostShares,
    checkpointing_of,
    interruption_inputs,
    lost_shares_of,
    power_of,
    stall_seconds,
    usage_of,
    written_bytes,
)
from service.estimator.schedule import (
    at_peak_gpu_hours,
    billed_gpu_hours,
    gpu_hours,
    ideal_days,
    run_days,
    spare_gpu_hours,
    spare_gpus,
    steps_of,
    steps_of_phases,
)
from service.estimator.time.kernels import limited_watts


def total_flop_explanations(flop: Flop, totals: Totals) -> list[Explanation]:
    """Explanations of the FLOP of a run."""
    steps = totals.steps
    inputs: Inputs = {"steps": steps}
    if totals.stages:
        inputs |= {f"stage_{one.stage}_total_flop": one.total_flop for one in totals.stages}
        whole = explained("flop.total_flop", flop.total_flop or 0, run_flop, inputs)
    else:
        whole = applied("flop.total_flop", run_flop, one_step_flop=flop.per_step_flop, steps=steps)
    return [whole, explained("flop.total_pflop_days", flop.total_pflop_days or 0.0, run_flop, inputs)]


def steps_explanation(recipe: Recipe, totals: Totals) -> Explanation:
    """The explanation of the steps of a run."""
    if totals.stages:
        inputs: Inputs = {f"stage_{one.stage}_steps": one.steps for one in totals.stages}
        return explained("totals.steps", totals.steps, steps_of_phases, inputs)
    return applied(
        "totals.steps",
        steps_of,
        training_tokens=recipe.training_tokens,
        global_batch=recipe.global_batch,
        tokens=trained_tokens(recipe),
    )


def mean_step_seconds(totals: Totals, step: Step) -> float:
    """Seconds of one step on average over a run, as its stages say.

    Formula:
        sum over the stages of steps x seconds of a step / steps of the run

    Args:
        step: one step of its last stage

    Returns:
        seconds of one step [s]

    Source:
        definition

    >>> from service.estimator.estimate import estimate
    >>> from service.estimator.samples import sample_resolved
    >>> asked = sample_resolved().question
    >>> found = estimate(replace(asked, recipe=replace(asked.recipe, training_tokens=1e9)))
    >>> mean_step_seconds(found.totals, found.step) == found.step.step_seconds.value
    True
    """
    if not totals.stages:
        return step.step_seconds.value
    return sum(one.steps * one.step_seconds.value for one in totals.stages) / totals.steps


def stage_explanations(resolved: ResolvedQuestion, estimate: Estimate) -> list[Explanation]:
    """Explanations of each stage of a run. None where batch and length never change."""
    totals, recipe = estimate.totals, resolved.question.recipe
    if totals is None or recipe.training_tokens is None or not totals.stages:
        return []
    last = CompleteStage(
        until_tokens=recipe.training_tokens, global_batch=recipe.global_batch, sequence_length=recipe.sequence_length
    )
    stages = (*recipe.stages, last)
    firsts = (*(first for first, *_ in resolved.run_stages), resolved)
    explanations, before = [], 0.0
    for stage_totals, stage, first in zip(totals.stages, stages, firsts, strict=True):
        explanations += _stage(stage_totals, stage, first, before, totals.goodput_fraction)
        before += stage_totals.tokens
    return explanations


def _stage(
    stage_totals: RunStageTotals, stage: CompleteStage, first: ResolvedQuestion, before: float, goodput: float
) -> list[Explanation]:
    path, gpus = f"totals.stages[{stage_totals.stage}]", first.question.cluster.gpus
    tokens = trained_tokens(replace(first.question.recipe, sequence_length=stage.sequence_length))
    batches: Inputs = {
        "trained": before,
        "until_tokens": stage.until_tokens,
        "global_batch": stage.global_batch,
        "final_global_batch": stage.final_global_batch,
        "batch_increment": stage.batch_increment,
        "tokens": tokens,
    }
    one = sequence_flop(first.workload.ledger, first.workload.recompute)
    counted: Inputs = {"flop_of_sequence": one.training, **batches}
    seconds = stage_totals.step_seconds.value
    return [
        explained(f"{path}.steps", stage_totals.steps, steps_of_phases, batches),
        explained(f"{path}.tokens", stage_totals.tokens, step_tokens, {**batches, "steps": stage_totals.steps}),
        explained(f"{path}.total_flop", stage_totals.total_flop, run_flop, counted),
        explained(f"{path}.step_seconds.value", seconds, phase_seconds, {**batches, "steps": stage_totals.steps}),
        applied(
            f"{path}.gpu_hours.value",
            gpu_hours,
            steps=stage_totals.steps,
            step_seconds=seconds,
            gpus=gpus,
            goodput=goodput,
        ),
    ]


def totals_explanations(resolved: ResolvedQuestion, estimate: Estimate) -> list[Explanation]:
    """Every explained number of the totals. None without totals."""
    if estimate.totals is None:
        return []
    losses = lost_shares_of(resolved, mean_step_seconds(estimate.totals, estimate.step))
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


def _goodput(resolved: ResolvedQuestion, estimate: Estimate, losses: LostShares) -> list[Explanation]:
    totals, stage_totals = estimate.totals, checkpointing_of(resolved.workload)
    if totals is None:
        return []
    path, one, result = "totals.goodput", resolved.workload, totals.goodput
    stalls: Inputs = {
        "stall_seconds": stage_totals.stall_seconds,
        "write_bytes_per_s": stage_totals.write_bytes_per_s,
        "checkpoint_bytes": written_bytes(one),
        "host_bytes_per_s": one.gpu.host_bytes_per_s,
        "gpus": one.cluster.gpus,
    }
    checkpoint_inputs: Inputs = {
        "checkpoint_seconds": losses.checkpoint_seconds,
        "failure_seconds": losses.interruption_seconds,
        "interval_seconds": stage_totals.interval_seconds,
        "step_seconds": mean_step_seconds(totals, estimate.step),
        "write_bytes_per_s": stage_totals.write_bytes_per_s,
    }
    shares = (losses.checkpoints_fraction, losses.lost_work_fraction, losses.restarts_fraction)
    named = dict(zip(("checkpoints_fraction", "lost_work_fraction", "restarts_fraction"), shares, strict=True))
    return [
        applied("totals.goodput_fraction", goodput_fraction, **named),
        applied(f"{path}.interruption_seconds", interruption_seconds, **interruption_inputs(resolved.question)),
        explained(f"{path}.checkpoint_seconds", result.checkpoint_seconds, stall_seconds, stalls),
        explained(
            f"{path}.checkpoint_interval_seconds",
            result.checkpoint_interval_seconds,
            INTERVALS[stage_totals.rule or "young"],
            checkpoint_inputs,
        ),
        *(
            applied(f"{path}.lost[{place}].days", lost_days, ideal_days=totals.ideal_days.value, waste_fraction=share)
            for place, share in enumerate(shares)
        ),
    ]


def _cost(resolved: ResolvedQuestion, totals: Totals, losses: LostShares) -> list[Explanation]:
    if totals.cost is None or totals.cost_usd is None:
        return []
    charges = charges_of(resolved, usage_of(resolved, totals.gpu_hours, losses, power_of(resolved)))
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


def _energy(resolved: ResolvedQuestion, totals: Totals, losses: LostShares) -> list[Explanation]:
    cluster = resolved.question.cluster
    waiting_fraction = losses.restarts_fraction * losses.goodput_fraction
    hours, spare = totals.gpu_hours.value, spare_gpu_hours(totals.days.value, totals.spare_gpus)
    power: Inputs = {
        "board_watts": resolved.workload.gpu.board_watts,
        "limit_watts": limited_watts(resolved.workload),
        "host_power_fraction": cluster.host_power_fraction,
        "pue": cluster.pue,
    }
    explanations = [
        applied("totals.gpu_busy_watts", gpu_watts, **power, power_fraction=cluster.busy_power_fraction),
        applied("totals.gpu_idle_watts", gpu_watts, **power, power_fraction=cluster.idle_power_fraction),
        applied(
            "totals.energy_kwh.value",
            energy_kwh,
            busy_gpu_hours=hours * (1 - waiting_fraction),
            busy_watts=totals.gpu_busy_watts,
            idle_gpu_hours=hours * waiting_fraction + spare,
            idle_watts=totals.gpu_idle_watts,
        ),
    ]
    if totals.carbon_kg_co2e is not None:
        explanations.append(
            applied(
                "totals.carbon_kg_co2e.value",
                carbon_kg_co2e,
                used_kwh=totals.energy_kwh.value,
                grid_kg_co2e_per_kwh=cluster.grid_kg_co2e_per_kwh,
            )
        )
    return explanations
