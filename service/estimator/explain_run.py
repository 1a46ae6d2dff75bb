"""Why are the numbers of a run what they are? Its steps and FLOP, and each stage where batch or length change."""

from dataclasses import replace

from service.estimator.answer import Estimate, Flop, RunStageTotals, Step, Totals
from service.estimator.cost import gpu_hours, steps_of
from service.estimator.documents import step_tokens, trained_tokens
from service.estimator.explanation import Explanation, Inputs, applied, explained
from service.estimator.filled import filled
from service.estimator.question import Recipe
from service.estimator.ramp import steps_in_turn
from service.estimator.resolve import Resolved
from service.estimator.run import stretch_seconds
from service.estimator.run_stage import RunStage
from service.estimator.work import run_flop, sequence_flop


def total_flop_explanations(flop: Flop, totals: Totals) -> list[Explanation]:
    """Explanations of the FLOP of a run.

    Args:
        flop: its operations
        totals: its steps and stages

    Returns:
        explanations, in the order of the answer
    """
    steps = totals.steps
    inputs: Inputs = {"steps": steps}
    if totals.stages:
        inputs |= {f"stage_{one.stage}_total_flop": one.total_flop for one in totals.stages}
        whole = explained("flop.total_flop", flop.total_flop or 0, run_flop, inputs)
    else:
        whole = applied("flop.total_flop", run_flop, one_step_flop=flop.per_step_flop, steps=steps)
    return [whole, explained("flop.total_pflop_days", flop.total_pflop_days or 0.0, run_flop, inputs)]


def steps_explanation(recipe: Recipe, totals: Totals) -> Explanation:
    """The explanation of the steps of a run.

    Args:
        recipe: the recipe, defaults filled
        totals: its steps and stages

    Returns:
        the explanation
    """
    if totals.stages:
        inputs: Inputs = {f"stage_{one.stage}_steps": one.steps for one in totals.stages}
        return explained("totals.steps", totals.steps, steps_in_turn, inputs)
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
        totals: its stages
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


def stage_explanations(resolved: Resolved, estimate: Estimate) -> list[Explanation]:
    """Explanations of each stage of a run.

    Args:
        resolved: the question
        estimate: its answer

    Returns:
        explanations, in the order of the answer; none where batch and length never change
    """
    totals, recipe = estimate.totals, resolved.question.recipe
    if totals is None or not totals.stages:
        return []
    stages = (*recipe.stages, _last(recipe))
    firsts = (*(first for first, *_ in resolved.run_stages), resolved)
    said, before = [], 0.0
    for told, stage, first in zip(totals.stages, stages, firsts, strict=True):
        said += _stage(told, stage, first, before, totals.goodput_fraction)
        before += told.tokens
    return said


def _last(recipe: Recipe) -> RunStage:
    """The recipe's own values, as the last stage of its run."""
    return RunStage(
        until_tokens=filled(recipe.training_tokens),
        global_batch=recipe.global_batch,
        sequence_length=recipe.sequence_length,
    )


def _stage(told: RunStageTotals, stage: RunStage, first: Resolved, before: float, goodput: float) -> list[Explanation]:
    path, gpus = f"totals.stages[{told.stage}]", first.question.cluster.gpus
    tokens = trained_tokens(replace(first.question.recipe, sequence_length=filled(stage.sequence_length)))
    batches: Inputs = {
        "trained": before,
        "until_tokens": stage.until_tokens,
        "global_batch": stage.global_batch,
        "final_global_batch": stage.final_global_batch,
        "batch_increment": stage.batch_increment,
        "tokens": tokens,
    }
    one = sequence_flop(first.job.ledger, first.job.recompute)
    counted: Inputs = {"flop_of_sequence": one.training, **batches}
    seconds = told.step_seconds.value
    return [
        explained(f"{path}.steps", told.steps, steps_in_turn, batches),
        explained(f"{path}.tokens", told.tokens, step_tokens, {**batches, "steps": told.steps}),
        explained(f"{path}.total_flop", told.total_flop, run_flop, counted),
        explained(f"{path}.step_seconds.value", seconds, stretch_seconds, {**batches, "steps": told.steps}),
        applied(
            f"{path}.gpu_hours.value",
            gpu_hours,
            steps=told.steps,
            step_seconds=seconds,
            gpus=gpus,
            goodput=goodput,
        ),
    ]
