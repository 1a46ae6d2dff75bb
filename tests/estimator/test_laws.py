"""What holds for every legal question: sums, signs, and which way each choice moves an answer."""

from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from math import isfinite
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.estimator import Estimate, Layout, Question, Recipe, Recompute, estimate
from service.estimator.answer import Interval
from service.estimator.memory.memory import BETWEEN_STEPS, LIVE, OFFLOADED_ACTIVATIONS, StageBytes
from service.estimator.model.build import recurrences_of
from service.estimator.question import Model, StackName
from service.estimator.resolve import resolve
from service.estimator.run.run import rank_bytes_of, stages_of
from service.estimator.software.stacks import STACKS, requested_software, software_of
from tests.amounts import amount
from tests.ask import STATES, ask, bytes_of, question
from tests.estimator.legal_questions import questions, shard_groups, with_layout, with_recipe
from tests.estimator.small_models import FAMILIES, TIED

RESIDENT = (*STATES, "optimizer_scales")
RATES = ("memory_bytes_per_s", "link_bytes_per_s", "inter_node_bytes_per_s", "host_bytes_per_s")

any_question = settings(max_examples=amount(25, 500))


def intervals(noun: Any) -> list[Interval]:
    """Every interval of an answer."""
    if isinstance(noun, Interval):
        return [noun]
    if isinstance(noun, tuple):
        return [found for item in noun for found in intervals(item)]
    return [found for f in fields(noun) for found in intervals(getattr(noun, f.name))] if is_dataclass(noun) else []


def held_by(asked: Question) -> list[StageBytes]:
    """Bytes of one rank of every stage, first to last."""
    resolved = resolve(asked)
    return [rank_bytes_of(resolved, one) for one in stages_of(resolved)]


def kinds_of(held: StageBytes) -> dict[str, float]:
    """Bytes of a stage by kind, those of all phases."""
    return {field.name: float(getattr(held, field.name)) for field in fields(StageBytes)}


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
    fullest = max(memory.stages, key=lambda stage: stage.reserved_peak_bytes)
    assert memory.peak_stage == fullest.stage
    assert memory.allocated_peak_bytes.value == fullest.allocated_peak_bytes
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
def test_communication_sums_to_the_parts_of_the_step(asked: Question) -> None:
    answer = estimate(asked)
    sent = answer.communication
    assert len({row.kind for row in sent}) == len(sent)
    for part in answer.step.parts:
        if part.kind.startswith("exposed_"):
            exposed = sum(row.exposed_seconds for row in sent if f"exposed_{row.axis}" == part.kind)
            assert exposed == pytest.approx(part.seconds, rel=1e-9, abs=1e-12), part.kind
    for row in sent:
        assert row.seconds == row.calls * row.call_seconds > 0
        assert row.hidden_seconds >= 0
        assert row.hidden_seconds + row.exposed_seconds == pytest.approx(row.seconds, rel=1e-12)
        assert 0 < row.sent_bytes < 2 * row.tensor_bytes
        assert row.axis == "offload" or 1 <= row.local_ranks <= row.ranks > 1
        assert (row.link == "network") == (row.local_ranks < row.ranks)


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
@given(questions())
def test_no_kind_is_negative_and_no_part_exceeds_its_whole(asked: Question) -> None:
    for held in held_by(asked):
        kinds = kinds_of(held)
        assert all(each >= 0 and isfinite(each) for each in kinds.values()), kinds
        assert kinds["early_gradients"] <= sum(
            kinds[kind] for kind in ("gradients", "half_gradients", "reduced_gradients")
        )
        assert kinds["buffered_gradients"] <= kinds["gradients"]
        assert kinds["other_activations"] <= kinds["activations"]


@any_question
@given(questions())
def test_parts_sum_to_the_total_in_every_phase(asked: Question) -> None:
    asked = with_recipe(asked, stages=())
    for held, stage in zip(held_by(asked), estimate(asked).memory.stages, strict=True):
        kinds = kinds_of(held)
        totals = {phase: sum(kinds[kind] for kind in live) for phase, live in LIVE.items()}
        assert {phase: float(held.at(phase)) for phase in LIVE} == pytest.approx(totals, rel=1e-12)
        assert stage.allocated_peak_bytes == pytest.approx(max(totals.values()), rel=1e-12)
        assert stage.allocated_peak_bytes == pytest.approx(totals[stage.peak_phase], rel=1e-12)
        assert stage.idle_bytes == pytest.approx(sum(kinds[kind] for kind in BETWEEN_STEPS), rel=1e-12)
        assert stage.idle_bytes <= stage.allocated_peak_bytes


@any_question
@given(questions())
def test_more_sharding_never_raises_idle_bytes(asked: Question) -> None:
    """Buckets are what ZeRO itself needs: they stand apart from what it shards."""
    stack = STACKS[software_of(asked.recipe).name]
    stages = stack.zero_stages if asked.layout.pipeline == 1 else stack.pipeline_zero_stages
    offload = "none" if asked.layout.offload == "model" else asked.layout.offload
    run = replace(requested_software(asked.recipe), overlap_reduce=None, overlap_gather=None)
    run = replace(run, reduce_bucket_numbers=None, gather_bucket_numbers=None)
    plain = with_recipe(asked, fp8_weights=False, stack=run)
    plain = with_layout(plain, reshard_after_forward=None, offload=offload, rank_order=None)
    plain = with_recipe(plain, optimizer="adamw") if stack is STACKS["megatron-core"] else plain
    answers = [
        held_by(with_layout(plain, zero_stage=stage, shard_group=asked.layout.shard_group if stage else None))
        for stage in sorted({*stages} & {*stack.zero_stages})
    ]
    for less, more in pairwise(answers):
        for before, after in zip(less, more, strict=True):
            assert sum(kinds_of(after)[kind] for kind in RESIDENT) <= sum(kinds_of(before)[kind] for kind in RESIDENT)
            idle = [held.at("idle") - held.gradient_buckets for held in (before, after)]
            assert idle[1] <= idle[0]
            assert after.host <= before.host


@any_question
@given(questions())
def test_a_larger_shard_group_never_raises_what_it_shards(asked: Question) -> None:
    if not asked.layout.shard_group:
        return
    degrees = {axis: getattr(asked.layout, axis) or 1 for axis in ("data", "tensor", "context", "expert")}
    sizes = sorted(size for size in shard_groups(degrees) if size)
    answers = [held_by(with_layout(asked, shard_group=size)) for size in sizes]
    for less, more in pairwise(answers):
        for before, after in zip(less, more, strict=True):
            assert sum(kinds_of(after)[kind] for kind in RESIDENT) <= sum(kinds_of(before)[kind] for kind in RESIDENT)


def with_any_recompute(asked: Question) -> Question:
    """The question without what goes with some recompute rules alone."""
    alone = replace(requested_software(asked.recipe), expert_overlap=False)
    return with_recipe(asked, stack=alone, dropout_fraction=0.0)


@any_question
@given(questions())
def test_more_recompute_never_keeps_more_nor_computes_less(asked: Question) -> None:
    asked = with_any_recompute(asked)
    answers = [estimate(with_recipe(asked, recompute=choice)) for choice in ("none", "selective", "full")]
    kept = [held_by(with_recipe(asked, recompute=choice)) for choice in ("none", "selective", "full")]
    for less_held, more_held in pairwise(kept):
        assert all(after.activations <= before.activations for before, after in zip(less_held, more_held, strict=True))
        if asked.layout.offload not in OFFLOADED_ACTIVATIONS:
            assert all(after.peak <= before.peak for before, after in zip(kept[0], more_held, strict=True))
    for less, more in pairwise(answers):
        assert more.flop.hardware_per_step_flop >= less.flop.hardware_per_step_flop
        assert more.flop.per_step_flop == less.flop.per_step_flop
        crowded = any(part.kind == "allocator" and part.seconds for part in less.step.parts)
        if asked.layout.offload not in OFFLOADED_ACTIVATIONS and not crowded:  # what is not kept frees wires and room
            assert more.step.step_seconds.value >= less.step.step_seconds.value * (1 - 1e-12)
    if asked.recipe.method == "full":
        assert answers[2].flop.hardware_per_step_flop > answers[0].flop.hardware_per_step_flop


@any_question
@given(questions(), st.integers(1, 7))
def test_a_larger_recomputing_block_keeps_less(asked: Question, layers: int) -> None:
    asked = with_any_recompute(asked)
    chunk = asked.model.num_hidden_layers // (asked.layout.pipeline * asked.layout.virtual_pipeline)
    counts = (min(layers, chunk), min(layers + 1, chunk))
    blocks = [Recompute(granularity="full", method="block", layers=count) for count in counts]
    less, more = (estimate(with_recipe(asked, recompute=block)) for block in blocks)
    held = zip(*(held_by(with_recipe(asked, recompute=block)) for block in blocks), strict=True)
    assert all(after.activations <= before.activations for before, after in held)
    assert more.flop.hardware_per_step_flop >= less.flop.hardware_per_step_flop


@any_question
@given(questions())
def test_stages_hold_every_parameter_and_layer_once(asked: Question) -> None:
    answer = estimate(asked)
    model, counts = resolve(asked).workload.model, answer.parameters
    read_again = model.tie_word_embeddings or model.num_nextn_predict_layers
    copies = counts.input_embedding if read_again and asked.layout.pipeline > 1 else 0
    held = counts.total_with_multi_token_prediction + counts.adapters
    assert sum(stage.total for stage in counts.stages) == held + copies
    assert sum(stage.layers for stage in answer.memory.stages) == model.num_hidden_layers
    padding = asked.layout.tensor * STACKS[software_of(asked.recipe).name].vocabulary_multiple * model.hidden_size
    mirrors = reversed(counts.stages) if asked.layout.schedule == "dualpipe" else counts.stages
    held_twice = asked.layout.schedule == "dualpipe" and asked.layout.pipeline > 1
    for stage, mirror in zip(counts.stages, mirrors, strict=True):
        most = stage.total + padding + (mirror.total + padding if held_twice else 0)
        assert 0 <= stage.per_rank <= most
        assert (stage.per_rank == 0) == (stage.total == 0 and not (held_twice and mirror.total))


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


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_sharding_over_one_gpu_is_no_sharding(model: Model, stack: StackName) -> None:
    if not set(recurrences_of(model)) <= set(STACKS[stack].recurrences):
        return
    recipe = Recipe(sequence_length=4096, stack=stack, gradient_dtype="fp32")
    stages = [question(model, recipe, Layout(zero_stage=zero)) for zero in STACKS[stack].zero_stages]
    (plain, *others) = ({kind: kinds_of(held)[kind] for kind in RESIDENT} for (held,) in map(held_by, stages))
    assert all(sharded == plain for sharded in others)


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
