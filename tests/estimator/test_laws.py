"""What holds for every legal question: sums, signs, and which way each choice moves an answer."""

from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from math import isfinite
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.estimator import Estimate, Layout, Question, Recipe, Recompute, estimate
from service.estimator.interval import Interval
from service.estimator.model import Model
from service.estimator.stacks import STACKS
from tests.ask import STATES, ask, bytes_of
from tests.estimator.legal_questions import questions, with_layout, with_recipe
from tests.estimator.small_models import FAMILIES, TIED

RESIDENT = (*STATES, "optimizer_scales")
RATES = ("memory_bytes_per_s", "link_bytes_per_s", "inter_node_bytes_per_s", "host_bytes_per_s")

PADDING = STACKS["megatron-core"].vocabulary_multiple
"""Rows by which a rank's vocabulary may be longer than its share."""

any_question = settings(deadline=None, max_examples=100)


def intervals(noun: Any) -> list[Interval]:
    """Every interval of an answer."""
    if isinstance(noun, Interval):
        return [noun]
    if isinstance(noun, tuple):
        return [found for item in noun for found in intervals(item)]
    return [found for f in fields(noun) for found in intervals(getattr(noun, f.name))] if is_dataclass(noun) else []


def resident_bytes(answer: Estimate, stage: int) -> float:
    """Bytes of one rank of a stage that live through the whole step."""
    return bytes_of(answer, *RESIDENT, stage=stage)


@any_question
@given(questions())
def test_bytes_are_positive_and_sum_to_the_peak(asked: Question) -> None:
    memory = estimate(asked).memory
    for stage in memory.stages:
        assert all(line.bytes > 0 and isfinite(line.bytes) for line in stage.lines)
        assert sum(line.bytes for line in stage.lines) == stage.allocated_peak_bytes
        assert stage.micro_batches_in_flight > 0
    assert memory.allocated_peak_bytes.value == max(stage.allocated_peak_bytes for stage in memory.stages)
    assert memory.allocated_peak_bytes.value < memory.reserved_peak_bytes.value < memory.device_peak_bytes.value
    assert memory.headroom_bytes == memory.usable_bytes - memory.device_peak_bytes.value
    assert memory.host_bytes >= 0


@any_question
@given(questions())
def test_seconds_are_positive_and_sum_to_the_step(asked: Question) -> None:
    step = estimate(asked).step
    assert all(part.seconds >= 0 for part in step.parts)
    assert sum(part.seconds for part in step.parts) == pytest.approx(step.step_seconds.value, rel=1e-12)
    assert 0 < step.mfu_fraction.value <= step.hfu_fraction.value < 1


@any_question
@given(questions())
def test_every_interval_is_in_order(asked: Question) -> None:
    found = intervals(estimate(asked))
    assert len(found) >= 7
    assert all(0 <= interval.low <= interval.value <= interval.high < float("inf") for interval in found)


@any_question
@given(questions())
def test_same_question_gives_the_same_answer(asked: Question) -> None:
    assert estimate(asked) == estimate(replace(asked))


@any_question
@given(questions())
def test_resolved_question_gives_the_same_answer(asked: Question) -> None:
    answer = estimate(asked)
    assert estimate(answer.resolved) == answer


@any_question
@given(questions(), st.sampled_from((0, 1, 2)))
def test_more_sharding_never_raises_resident_bytes(asked: Question, zero_stage: int) -> None:
    less, more = (estimate(with_layout(asked, zero_stage=stage)) for stage in (zero_stage, zero_stage + 1))
    for stage in range(asked.layout.pipeline):
        assert resident_bytes(more, stage) <= resident_bytes(less, stage)
    assert more.memory.host_bytes <= less.memory.host_bytes


@any_question
@given(questions())
def test_more_recompute_never_keeps_more_nor_computes_less(asked: Question) -> None:
    answers = [estimate(with_recipe(asked, recompute=choice)) for choice in ("none", "selective", "full")]
    for less, more in pairwise(answers):
        for stage in range(asked.layout.pipeline):
            assert bytes_of(more, "activations", stage=stage) <= bytes_of(less, "activations", stage=stage)
        assert more.flop.hardware_per_step_flop >= less.flop.hardware_per_step_flop
        assert more.flop.per_step_flop == less.flop.per_step_flop
        assert more.memory.allocated_peak_bytes.value <= answers[0].memory.allocated_peak_bytes.value
        assert more.step.step_seconds.value >= less.step.step_seconds.value * (1 - 1e-12)
    if asked.recipe.method == "full":
        assert answers[2].flop.hardware_per_step_flop > answers[0].flop.hardware_per_step_flop


@any_question
@given(questions(), st.integers(1, 7))
def test_a_larger_recomputing_block_keeps_less(asked: Question, layers: int) -> None:
    chunk = asked.model.num_hidden_layers // (asked.layout.pipeline * asked.layout.virtual_pipeline)
    counts = (min(layers, chunk), min(layers + 1, chunk))
    blocks = [Recompute(granularity="full", method="block", layers=count) for count in counts]
    less, more = (estimate(with_recipe(asked, recompute=block)) for block in blocks)
    for stage in range(asked.layout.pipeline):
        assert bytes_of(more, "activations", stage=stage) <= bytes_of(less, "activations", stage=stage)
    assert more.flop.hardware_per_step_flop >= less.flop.hardware_per_step_flop


@any_question
@given(questions())
def test_stages_hold_every_parameter_and_layer_once(asked: Question) -> None:
    answer = estimate(asked)
    model, counts = asked.model, answer.parameters
    read_again = model.tie_word_embeddings or model.num_nextn_predict_layers
    copies = counts.input_embedding if read_again and asked.layout.pipeline > 1 else 0
    held = counts.total_with_multi_token_prediction + counts.adapters
    assert sum(stage.total for stage in counts.stages) == held + copies
    assert sum(stage.layers for stage in answer.memory.stages) == model.num_hidden_layers
    padding = asked.layout.tensor * PADDING * model.hidden_size
    mirrors = reversed(counts.stages) if asked.layout.schedule == "dualpipe" else counts.stages
    held_twice = asked.layout.schedule == "dualpipe" and asked.layout.pipeline > 1
    for stage, mirror in zip(counts.stages, mirrors, strict=True):
        most = stage.total + padding + (mirror.total + padding if held_twice else 0)
        assert 0 < stage.per_rank <= most


@any_question
@given(st.lists(st.integers(0, 12), min_size=2, max_size=6))
def test_uneven_stages_hold_every_parameter_and_layer_once(stage_layers: list[int]) -> None:
    model = replace(TIED, num_hidden_layers=max(1, sum(stage_layers)))
    stage_layers[0] += model.num_hidden_layers - sum(stage_layers)
    layout = Layout(pipeline=len(stage_layers), stage_layers=tuple(stage_layers))
    answer = ask(model, Recipe(sequence_length=1024), layout, gpus=len(stage_layers))
    counts = answer.parameters
    assert [stage.layers for stage in answer.memory.stages] == stage_layers
    assert sum(stage.total for stage in counts.stages) == counts.total + counts.input_embedding


@any_question
@given(questions(), st.sampled_from(RATES))
def test_a_faster_wire_never_slows_the_step(asked: Question, rate: str) -> None:
    faster = replace(asked, gpu=replace(asked.gpu, **{rate: 2 * getattr(asked.gpu, rate)}))
    assert estimate(faster).step.step_seconds.value <= estimate(asked).step.step_seconds.value * (1 + 1e-12)


@any_question
@given(questions())
def test_faster_arithmetic_never_slows_the_step(asked: Question) -> None:
    peaks = {f.name: getattr(asked.gpu, f.name) for f in fields(asked.gpu) if f.name.endswith("flop_per_s")}
    doubled = {name: 2 * peak for name, peak in peaks.items() if peak is not None}
    faster = replace(asked, gpu=replace(asked.gpu, **doubled))
    assert estimate(faster).step.step_seconds.value <= estimate(asked).step.step_seconds.value * (1 + 1e-12)


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_degrees_of_one_are_the_single_form(model: Model) -> None:
    recipe = Recipe(sequence_length=4096, micro_batch=2, global_batch=8)
    ones = {f.name: 1 for f in fields(Layout) if f.name in ("data", "tensor", "context", "pipeline", "expert")}
    spelled = Layout(**ones, virtual_pipeline=1, expert_tensor=1, shard_group=1, schedule="1f1b")  # type: ignore[arg-type]  # degrees by name
    assert ask(model, recipe, spelled) == ask(model, recipe)


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_replicas_that_shard_nothing_hold_what_one_gpu_holds(model: Model) -> None:
    alone, among = (
        ask(model, Recipe(sequence_length=4096), Layout(zero_stage=0), gpus=gpus).memory.stages for gpus in (1, 8)
    )
    assert alone == among


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_sharding_over_eight_holds_an_eighth_of_everything(model: Model) -> None:
    one, eight = (ask(model, Recipe(sequence_length=4096), Layout(zero_stage=3), gpus=gpus) for gpus in (1, 8))
    assert resident_bytes(one, 0) == pytest.approx(8 * resident_bytes(eight, 0), rel=1e-12)
