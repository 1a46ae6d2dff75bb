"""A run in stages is the sum of its stages: steps, tokens, FLOP, time; its memory is that of the fullest one."""

from dataclasses import astuple, replace
from typing import Any

import pytest

from service.estimator import Estimate, Layout, Recipe, estimate, estimate_memory
from service.estimator.complete import CompleteStage
from service.estimator.question import RunStage
from service.estimator.samples import LLAMA_3_8B
from service.estimator.schedule import batches_of, schedule_of
from tests.ask import ask, question

PLAIN = Recipe(sequence_length=8192, global_batch=1024, training_tokens=1e12)
LAYOUT = Layout(tensor=2)
GPUS = 64


SUMMED = ("gpu_hours", "billed_gpu_hours", "days", "ideal_days", "energy_kwh")
"""Totals that stages are summed for, to the last bit but for the order of the sum."""


def asked(*stages: RunStage, recipe: Recipe = PLAIN, layout: Layout = LAYOUT) -> Estimate:
    return ask(LLAMA_3_8B, replace(recipe, stages=stages), layout, gpus=GPUS)


def alone(layout: Layout = LAYOUT, **changes: Any) -> Estimate:
    """The answer to one configuration of a run by itself."""
    return ask(LLAMA_3_8B, replace(PLAIN, **changes), layout, gpus=GPUS)


def test_without_stages_totals_have_none() -> None:
    totals = asked().totals
    assert totals is not None
    assert totals.stages == ()


def test_a_stage_of_the_recipes_own_values_changes_no_total() -> None:
    plain, split = asked(), asked(RunStage(until_tokens=4e11))
    assert plain.totals is not None
    assert split.totals is not None
    assert len(split.totals.stages) == 2
    for name in SUMMED:
        found, expected = (astuple(getattr(one.totals, name))[:3] for one in (split, plain))
        assert found == pytest.approx(expected, rel=1e-12), name
    alike: dict[str, Any] = {name: getattr(plain.totals, name) for name in SUMMED}
    assert replace(split.totals, stages=(), goodput=plain.totals.goodput, **alike) == plain.totals
    assert split.flop == plain.flop
    assert split.memory == plain.memory


STAGES = (
    RunStage(until_tokens=1e11, global_batch=128, final_global_batch=1024, batch_increment=64),
    RunStage(until_tokens=3e11, global_batch=256, sequence_length=32768),
    RunStage(until_tokens=5e11, sequence_length=4096),
)


def test_stages_sum_to_the_run() -> None:
    answer = asked(*STAGES)
    totals = answer.totals
    assert totals is not None
    assert sum(one.steps for one in totals.stages) == totals.steps
    assert sum(one.total_flop for one in totals.stages) == answer.flop.total_flop
    assert sum(one.tokens for one in totals.stages) >= 1e12
    for end in ("low", "value", "high"):
        whole = getattr(totals.gpu_hours, end)
        assert sum(getattr(one.gpu_hours, end) for one in totals.stages) == pytest.approx(whole, rel=1e-12)


def test_each_stage_is_what_its_configuration_takes_by_itself() -> None:
    answer = asked(*STAGES)
    totals = answer.totals
    assert totals is not None
    long, short, last = totals.stages[1:]
    for stage, one in (
        (long, alone(sequence_length=32768, global_batch=256)),
        (short, alone(sequence_length=4096)),
        (last, alone()),
    ):
        assert stage.step_seconds.value == pytest.approx(one.step.step_seconds.value, rel=1e-12)
        assert stage.total_flop == stage.steps * one.flop.per_step_flop
        assert stage.tokens == stage.steps * one.flop.per_step_tokens
    assert answer.step == alone().step


def test_a_rising_batch_takes_the_time_of_each_of_its_batches() -> None:
    answer = asked(STAGES[0])
    schedule = schedule_of(answer.resolved.recipe)
    assert schedule is not None
    (phase,) = schedule.phases
    assert phase.batches == tuple(range(128, 1024, 64))
    steps = zip(phase.batches, phase.steps, strict=True)
    seconds = sum(count * alone(global_batch=batch).step.step_seconds.value for batch, count in steps)
    assert answer.totals is not None
    stage = answer.totals.stages[0]
    assert stage.steps * stage.step_seconds.value == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("lengths", [(4096, 32768), (32768, 4096)])
def test_memory_and_verdict_are_those_of_the_longest_stage(lengths: tuple[int, int]) -> None:
    stages = [RunStage(until_tokens=(i + 1) * 1e11, sequence_length=length) for i, length in enumerate(lengths)]
    answer, fullest = asked(*stages), alone(sequence_length=32768)
    assert answer.memory == fullest.memory
    assert answer.verdict == fullest.verdict
    assert any(f"in stage {lengths.index(32768)}" in said for said in answer.assumptions)


def test_memory_is_that_of_the_largest_batch_where_lengths_are_equal() -> None:
    layout = Layout(pipeline=4)
    recipe = replace(PLAIN, global_batch=16)
    ramped = asked(RunStage(until_tokens=1e11, final_global_batch=64), recipe=recipe, layout=layout)
    assert ramped.resolved.recipe.stages[0].batch_increment == 16
    peak, small = ramped.memory, ask(LLAMA_3_8B, recipe, layout, gpus=GPUS).memory
    assert peak == ask(LLAMA_3_8B, replace(recipe, global_batch=48), layout, gpus=GPUS).memory
    assert peak.allocated_peak_bytes.value > small.allocated_peak_bytes.value


def test_memory_alone_says_the_same() -> None:
    body = question(LLAMA_3_8B, replace(PLAIN, stages=STAGES), LAYOUT, gpus=GPUS)
    assert estimate_memory(body).memory == estimate(body).memory
    assert estimate_memory(body).assumptions == estimate(body).assumptions


def test_stages_are_filled() -> None:
    (stage,) = asked(RunStage(until_tokens=1e11, final_global_batch=2048)).resolved.recipe.stages
    assert stage == CompleteStage(
        until_tokens=1e11, global_batch=1024, sequence_length=8192, final_global_batch=2048, batch_increment=32
    )


@pytest.mark.parametrize(
    ("layout", "increment"),
    [
        (Layout(pipeline=4), 16),
        (Layout(pipeline=4, virtual_pipeline=2), 64),
        (Layout(pipeline=4, schedule="dualpipe"), 32),
    ],
)
def test_a_rise_is_what_replicas_and_schedule_share(layout: Layout, increment: int) -> None:
    (stage,) = asked(
        RunStage(until_tokens=1e11, global_batch=256, final_global_batch=1024), layout=layout
    ).resolved.recipe.stages
    assert stage.batch_increment == increment


def test_a_long_rise_goes_through_few_batches() -> None:
    recipe = replace(PLAIN, global_batch=1 << 20, training_tokens=1e15)
    (stage,) = asked(
        RunStage(until_tokens=1e13, global_batch=32, final_global_batch=1 << 20), recipe=recipe
    ).resolved.recipe.stages
    assert (stage.batch_increment or 0) % 32 == 0
    assert 512 < len(batches_of(stage)) <= 1024


def test_a_stage_longer_than_the_model_was_built_for_is_warned_of() -> None:
    answer = asked(RunStage(until_tokens=1e11, sequence_length=262144))
    assert any("262144" in warning for warning in answer.warnings)
