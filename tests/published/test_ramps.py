"""Runs whose batch and length change take the steps that counting them one by one gives."""

import pytest

from service.estimator import Layout, Model, Recipe
from service.estimator.question import RunStage
from service.estimator.schedule import batches_of
from tests.ask import ask
from tests.published.cases import Case, cases, model_fields

RAMPS = cases("batch", "ramps")


def recipe_of(case: Case) -> Recipe:
    return Recipe(
        sequence_length=case.inputs["seq"],
        global_batch=case.inputs["bs"],
        training_tokens=case.inputs["training_tokens"],
        stages=tuple(RunStage(**stage) for stage in case.inputs["stages"]),
    )


def counted(stages: list[tuple[float, tuple[int, ...], int]]) -> list[int]:
    """Steps of each stage, one by one: its end in tokens, its batches in turn, its length."""
    steps, tokens, before = [0] * len(stages), 0, 0
    for index, (until, batches, length) in enumerate(stages):
        share = (until - before) / len(batches)
        while tokens < until:
            tokens += length * batches[min(len(batches) - 1, int((tokens - before) / share))]
            steps[index] += 1
        before = tokens
    return steps


@pytest.mark.parametrize("case", RAMPS)
def test_steps_of_each_stage_are_counted_one_by_one(case: Case) -> None:
    replicas = case.inputs.get("dp", 1)
    model = Model(**model_fields(case.inputs["model"]))
    answer = ask(model, recipe_of(case), Layout(data=replicas), gpus=replicas)
    assert answer.totals is not None
    steps = [stage.steps for stage in answer.totals.stages]
    assert steps == case.expected
    recipe = answer.resolved.recipe
    stages = [(one.until_tokens, batches_of(one), one.sequence_length or 0) for one in recipe.stages]
    assert steps == counted([*stages, (case.inputs["training_tokens"], (case.inputs["bs"],), case.inputs["seq"])])
    assert answer.totals.steps == sum(steps)


def test_a_ramp_takes_more_steps_and_more_time_than_the_final_batch_throughout() -> None:
    (case,) = (param.values[0] for param in RAMPS if "as finely" in str(param.id))
    assert isinstance(case, Case)
    model, layout = Model(**model_fields("deepseek-v3")), Layout(data=128)
    ramped, plain = (
        ask(model, recipe, layout, gpus=128).totals
        for recipe in (recipe_of(case), Recipe(sequence_length=4096, global_batch=15360, training_tokens=14.8e12))
    )
    assert ramped is not None
    assert plain is not None
    assert plain.steps == 235_240
    assert ramped.steps == 242_940
    assert plain.gpu_hours.value < ramped.gpu_hours.value < 1.05 * plain.gpu_hours.value
