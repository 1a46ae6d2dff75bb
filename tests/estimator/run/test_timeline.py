"""The bytes of a stage over the first step and over a later one."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from service.estimator import Layout, Question, Recipe, estimate
from service.estimator.question import Software
from service.estimator.resolve import resolve
from service.estimator.run.run import StageTimeline, peak_stage_in, timeline
from service.estimator.samples import H100, LLAMA_3_8B
from tests.ask import question
from tests.estimator.legal_questions import questions
from tests.estimator.small_models import FAMILIES


def stages(asked: Question) -> tuple[StageTimeline, ...]:
    return timeline(peak_stage_in(resolve(asked)).resolved)


@settings(max_examples=60)
@given(questions())
def test_parts_sum_at_every_moment_and_the_ends_and_the_peak_are_those_of_the_memory_answer(asked: Question) -> None:
    told = estimate(asked).memory.stages
    for stage, line in zip(stages(asked), told, strict=True):
        for point in stage.points:
            assert len(point.series_bytes) == len(stage.kinds)
            assert all(amount >= 0 for amount in point.series_bytes)
            assert sum(point.series_bytes) == pytest.approx(point.allocated_bytes, rel=1e-12)
        assert stage.later_step_peak_bytes == pytest.approx(line.allocated_peak_bytes, rel=1e-12)
        assert stage.first_step_peak_bytes == pytest.approx(line.first_step_peak_bytes, rel=1e-12)
        assert stage.peak.allocated_bytes == max(point.allocated_bytes for point in stage.points)
        assert sum(held.bytes for held in stage.peak.lines) == pytest.approx(stage.peak.allocated_bytes, rel=1e-12)
        first, later = ([point for point in stage.points if point.step == step] for step in ("first", "later"))
        assert (first[0].moment, first[-1].moment) == (later[0].moment, later[-1].moment) == ("start", "end")
        assert first[-1].allocated_bytes == later[-1].allocated_bytes == pytest.approx(line.idle_bytes, rel=1e-12)
        assert all(a.allocated_bytes <= b.allocated_bytes + 1 for a, b in zip(first, later, strict=True))


@settings(max_examples=60)
@given(questions())
def test_reserved_bytes_hold_the_live_ones_and_fall_only_where_the_cache_is_freed(asked: Question) -> None:
    for stage, line in zip(stages(asked), estimate(asked).memory.stages, strict=True):
        assert all(point.reserved_bytes >= point.allocated_bytes for point in stage.points)
        falls = [a.frees_cache for a, b in pairwise(stage.points) if b.reserved_bytes < a.reserved_bytes * (1 - 1e-12)]
        assert all(falls)
        assert sum(point.frees_cache for point in stage.points) <= 1
        assert stage.reserved_peak_bytes == pytest.approx(line.reserved_peak_bytes, rel=1e-12)
        assert stage.first_step_reserved_bytes == pytest.approx(line.first_step_reserved_bytes, rel=1e-12)
        assert stage.first_step_reserved_bytes <= stage.reserved_peak_bytes * (1 + 1e-12)


def sharded(length: int) -> Question:
    recipe = Recipe(sequence_length=length, global_batch=8, stack="torchtitan", recompute="full")
    return replace(question(LLAMA_3_8B, recipe, Layout(zero_stage=3), gpus=8), gpu=H100)


def test_pools_open_in_the_first_step_and_the_optimizer_raises_what_is_reserved() -> None:
    (stage,), (line,) = stages(sharded(8192)), estimate(sharded(8192)).memory.stages
    beside = [
        point.reserved_bytes - 1.01 * line.first_step_peak_bytes for point in stage.points if point.step == "first"
    ]
    assert beside[-1] == pytest.approx(line.cached_bytes, rel=1e-6)
    assert beside[0] < beside[1] < beside[-1]
    assert stage.first_step_reserved_bytes < stage.reserved_peak_bytes


def test_a_full_device_frees_the_cache_once_and_settles_below() -> None:
    lengths = [
        length for length in range(8192, 262144, 8192) if any(p.frees_cache for p in stages(sharded(length))[0].points)
    ]
    (stage,), (line,) = stages(sharded(lengths[0])), estimate(sharded(lengths[0])).memory.stages
    assert stage.points[-1].reserved_bytes == pytest.approx(line.settled_reserved_bytes, rel=1e-12)
    assert line.settled_reserved_bytes < stage.reserved_peak_bytes


@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_first_step_lacks_what_the_optimizer_has_not_made(accumulation: int) -> None:
    recipe = Recipe(
        sequence_length=8192, global_batch=2 * accumulation, stack=Software(name="megatron-core", gradient_fusion=False)
    )
    (stage,) = stages(question(LLAMA_3_8B, recipe, Layout(zero_stage=1), gpus=2))
    gap = stage.later_step_peak_bytes - stage.first_step_peak_bytes
    assert gap == pytest.approx(8 * 8_030_261_248 / 2, rel=1e-3)


def test_forward_passes_fill_a_stage_one_micro_batch_after_another() -> None:
    recipe = Recipe(sequence_length=4096, global_batch=16)
    first, *_, last = stages(question(LLAMA_3_8B, recipe, Layout(pipeline=4), gpus=4))
    ramp = [point for point in first.points if point.step == "later" and point.moment == "forward"]
    assert [point.micro_batches for point in ramp] == [1, 2, 3, 4]
    rises = [b.allocated_bytes - a.allocated_bytes for a, b in pairwise(ramp)]
    assert rises == pytest.approx([rises[0]] * 3)
    assert "logits" in last.kinds
    assert "logits" not in first.kinds


def test_a_timeline_stays_short_however_many_micro_batches_are_in_flight() -> None:
    recipe = Recipe(sequence_length=1024, global_batch=512)
    for stage in stages(question(LLAMA_3_8B, recipe, Layout(pipeline=2, schedule="gpipe"), gpus=2)):
        assert len(stage.points) < 80


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_every_family_has_a_timeline(model) -> None:  # type: ignore[no-untyped-def]  # a row of the table
    asked = replace(question(model, Recipe(sequence_length=1024)), gpu=H100)
    assert stages(asked)[0].peak.allocated_bytes > 0
