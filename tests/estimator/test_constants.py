"""A calibration changes the answers it should; without one nothing changes."""

from dataclasses import replace
from math import exp, log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Refused
from service.estimator import Estimate, Layout, Recipe, estimate
from service.estimator.constants import (
    AttentionCalibration,
    DeviceCalibration,
    LinkCalibration,
    MatrixCalibration,
    MeasuredBytes,
    StepCalibration,
    calibrated,
    calibration_of,
    own_scale,
    own_spread_fraction,
)
from service.estimator.question import Gpu, MeasuredStep, Question, RunStage
from service.estimator.samples import H100, sample_resolved
from service.estimator.time.step import LEAST_RESIDUAL
from service.validation.reading import to_bytes
from tests.ask import question
from tests.estimator.small_models import FAMILIES

MODEL = next(iter(FAMILIES.values()))
ASKED = question(MODEL, Recipe(sequence_length=4096, global_batch=64), Layout(tensor=2), gpus=8)
STEP = MeasuredStep(predicted_seconds=1.0, measured_seconds=2.0)


def on(gpu: Gpu) -> Question:
    return replace(ASKED, gpu=gpu)


def knowing(**known: Any) -> Question:
    return on(calibrated(H100, DeviceCalibration(id="cal_1", **known)))


def test_the_sample_runs_on_the_gpu_that_is_calibrated_here() -> None:
    assert ASKED.gpu == H100


def test_a_calibration_that_knows_nothing_changes_no_byte_but_what_is_assumed() -> None:
    plain, empty = estimate(ASKED), estimate(knowing())
    assert to_bytes(replace(empty, assumptions=plain.assumptions)) == to_bytes(plain)
    assert to_bytes(estimate(on(calibrated(H100, None)))) == to_bytes(plain)


def test_a_gpu_is_never_spelled_with_its_calibration() -> None:
    told = to_bytes(knowing(memory_bytes_per_s=2e12).gpu)
    assert told == to_bytes(H100)


@pytest.mark.parametrize(
    ("known", "part"),
    [
        ({"matrix": (MatrixCalibration(format="bf16", flop_per_s=4e14),)}, "gemm"),
        ({"matrix": (MatrixCalibration(format="bf16", flop_per_s=9e14, launch_seconds=1e-3),)}, "gemm"),
        ({"matrix": (MatrixCalibration(format="bf16", flop_per_s=9e14, bytes_per_s=1e10),)}, "gemm"),
        ({"attention": (AttentionCalibration(kernel="cudnn", forward_fraction=0.2),)}, "attention"),
        ({"attention": (AttentionCalibration(kernel="cudnn", backward_fraction=0.2),)}, "attention"),
        ({"links": (LinkCalibration(collective="all_gather", link_fraction=0.3),)}, "exposed_tensor"),
        ({"links": (LinkCalibration(collective="reduce_scatter", fixed_fraction=9.0),)}, "exposed_tensor"),
        ({"memory_bytes_per_s": 1e12}, "elementwise"),
        ({"memory_bytes_per_s": 1e12}, "optimizer"),
        ({"steps": (StepCalibration(stack="megatron-core", implementation="transformer-engine", step=STEP),)}, "gemm"),
    ],
)
def test_what_was_measured_slows_its_part_down(known: dict[str, Any], part: str) -> None:
    plain, slower = estimate(ASKED), estimate(knowing(**known))
    before, after = ({one.kind: one.seconds for one in found.step.parts}[part] for found in (plain, slower))
    assert after > before
    assert (plain.step.step_seconds.basis, slower.step.step_seconds.basis) == ("analytic", "calibrated")
    assert plain.memory == slower.memory


def test_steps_of_another_stack_say_nothing_of_this_one() -> None:
    other = knowing(steps=(StepCalibration(stack="transformers", implementation="eager", step=STEP),))
    assert estimate(other).step.parts == estimate(ASKED).step.parts


def test_measured_bytes_stand_beside_the_allocator() -> None:
    context = MeasuredBytes(low=9e8, value=1e9, high=1.1e9)
    communicators = MeasuredBytes(low=2e9, value=2e9, high=2e9)
    found = estimate(knowing(context_bytes=context, communicator_bytes=communicators)).memory
    assert found.device_peak_bytes.value == found.reserved_peak_bytes.value + 3e9
    assert found.device_peak_bytes.basis == "calibrated"
    assert estimate(ASKED).memory.device_peak_bytes.basis == "analytic"


def test_an_answer_says_which_calibration_it_rests_on() -> None:
    assert any("cal_1" in said for said in estimate(knowing(memory_bytes_per_s=1e12)).assumptions)


@given(st.floats(1e11, 1e16))
def test_no_measured_rate_is_taken_above_the_peak(flop_per_s: float) -> None:
    quick = knowing(matrix=(MatrixCalibration(format="bf16", flop_per_s=flop_per_s),))
    found = estimate(quick).step
    assert found.mfu_fraction.value < 1
    assert calibration_of(quick.gpu) is not None


residuals = st.floats(-0.5, 0.5)


def steps(*residuals: float) -> tuple[MeasuredStep, ...]:
    return tuple(MeasuredStep(predicted_seconds=2.0, measured_seconds=2.0 * exp(residual)) for residual in residuals)


def asked(*residuals: float, stages: tuple[RunStage, ...] = ()) -> Estimate:
    question: Question = sample_resolved().question
    return estimate(
        replace(
            question,
            recipe=replace(question.recipe, training_tokens=1e12, stages=stages),
            cluster=replace(question.cluster, measured_steps=steps(*residuals)),
        )
    )


@given(st.lists(residuals, min_size=1, max_size=30))
def test_a_bias_is_never_larger_than_the_largest_error(own: list[float]) -> None:
    assert abs(log(own_scale(steps(*own)))) <= max(map(abs, own)) + 1e-12


@given(residuals, st.integers(1, 40))
def test_steps_that_agree_are_trusted_with_their_number(bias: float, count: int) -> None:
    few, more = (log(own_scale(steps(*[bias] * each))) for each in (count, count + 1))
    assert abs(more - bias) <= abs(few - bias) + 1e-12


@given(residuals, st.integers(1, 40), st.floats(0.1, 1.0))
def test_no_narrower_than_agreeing_steps_warrant(bias: float, count: int, spread: float) -> None:
    few, more = (own_spread_fraction(steps(*[bias] * each), spread) for each in (count, count + 1))
    left = 1 - count / (count + 2)
    assert few >= spread * left**0.5 * (1 - 1e-12)
    assert more <= max(few, abs(bias))


def test_scattered_steps_widen_it() -> None:
    assert own_spread_fraction(steps(*[0.5, -0.5] * 100), 0.05) > 0.4


def test_without_measured_steps_nothing_changes() -> None:
    assert own_scale(()) == 1.0
    assert own_spread_fraction((), 0.2) == 0.2
    assert asked().step.step_seconds.basis == "analytic"


def test_an_answer_follows_measured_steps() -> None:
    plain, found = asked(), asked(*[0.1] * 6)
    scale = own_scale(steps(*[0.1] * 6))
    assert found.step.step_seconds.basis == "calibrated"
    assert found.step.step_seconds.value == pytest.approx(scale * plain.step.step_seconds.value)
    assert sum(part.seconds for part in found.step.parts) == pytest.approx(found.step.step_seconds.value)
    assert found.step.mfu_fraction.value == pytest.approx(plain.step.mfu_fraction.value / scale)
    assert found.totals is not None
    assert plain.totals is not None
    assert found.totals.ideal_days.value == pytest.approx(scale * plain.totals.ideal_days.value)
    assert any("by 6 measured step(s)" in said for said in found.assumptions)
    assert found.memory == plain.memory


def test_stages_of_a_run_follow_them_too() -> None:
    ramp = (RunStage(until_tokens=1e11, sequence_length=4096),)
    plain, found = asked(stages=ramp).totals, asked(*[0.1] * 6, stages=ramp).totals
    assert plain is not None
    assert found is not None
    for one, other in zip(plain.stages, found.stages, strict=True):
        assert other.step_seconds.value == pytest.approx(own_scale(steps(*[0.1] * 6)) * one.step_seconds.value)


def test_many_agreeing_steps_narrow_it_to_the_floor() -> None:
    plain, found = asked().step.step_seconds, asked(*[0.1] * 1000).step.step_seconds
    assert log(found.high / found.value) == pytest.approx(LEAST_RESIDUAL)
    assert found.high / found.value <= plain.high / plain.value


def test_a_step_is_written_as_the_flat_form_takes_it() -> None:
    assert str(MeasuredStep(predicted_seconds=9.8, measured_seconds=10.0)) == "9.8:10.0"


def test_steps_in_another_unit_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        asked(0.0, 3.0)
    assert [problem.code for problem in refused.value.problems] == ["measured_steps_plausible"]
    assert "measured step 1 took" in refused.value.problems[0].message
