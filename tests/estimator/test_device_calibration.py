"""What does a calibration change of an answer, and does having none change nothing at all?"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.estimator import Layout, Recipe, estimate
from service.estimator.device_calibration import (
    AttentionCalibration,
    DeviceCalibration,
    LinkCalibration,
    MatrixCalibration,
    MeasuredBytes,
    StepCalibration,
    calibrated,
    calibration_of,
)
from service.estimator.gpu import Gpu
from service.estimator.measured_step import MeasuredStep
from service.estimator.question import Question
from service.estimator.samples import H100
from service.validation.serialization import to_bytes
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
