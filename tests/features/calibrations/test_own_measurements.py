"""Questions about a device with measurements of its own."""

from collections.abc import Sequence
from dataclasses import replace

from service.calibration.observations import Observed
from service.calibration.records import Environment
from service.estimator import Layout, Recipe, estimate
from service.estimator.constants import (
    DeviceCalibration,
    MatrixCalibration,
    StepCalibration,
    calibrated,
    calibration_of,
)
from service.estimator.question import Gpu, MeasuredStep, StackName
from service.estimator.samples import H100
from service.features.calibrations.fitting import with_measured
from tests.ask import question
from tests.calibration.observations import ENVIRONMENT, others, products, records_of
from tests.estimator.small_models import FAMILIES

ASKED = question(next(iter(FAMILIES.values())), Recipe(sequence_length=4096, global_batch=64), Layout(tensor=2), gpus=8)
PROCESSOR = Environment(kind="cpu", device="EPYC", devices=1, memory_bytes=8e9, threads=2)


def test_what_was_measured_stands_in_the_place_of_what_is_published() -> None:
    measured = with_measured(ASKED, records_of([*products(), *others()]))
    found = estimate(measured)
    assert found.step.step_seconds.basis == "calibrated"
    assert found.step.step_seconds.value != estimate(ASKED).step.step_seconds.value
    assert found.memory.device_peak_bytes.basis == "calibrated"


def test_the_same_measurements_have_the_same_name_and_others_another() -> None:
    one, same, other = (
        calibration_of(with_measured(ASKED, records).gpu)
        for records in (records_of(products()), records_of(products()), records_of(products(noise=0.1)))
    )
    assert one == same
    assert one is not None
    assert other is not None
    assert one.id.startswith("own_")
    assert one.id != other.id


def test_measurements_that_say_nothing_of_the_device_leave_the_question_as_it_was() -> None:
    for environment in (PROCESSOR, replace(ENVIRONMENT, is_partition=True), replace(ENVIRONMENT, other_processes=1)):
        measured = with_measured(ASKED, records_of(products(), environment))
        assert measured == ASKED
    assert with_measured(ASKED, []) == ASKED
    lost = [replace(record, environment=None) for record in records_of(products())]
    assert with_measured(ASKED, lost) == ASKED


def test_what_a_calibration_knew_and_nobody_measured_now_stays() -> None:
    known = DeviceCalibration(
        id="cal_1", matrix=(MatrixCalibration(format="fp8", flop_per_s=1e15),), memory_bytes_per_s=2.5e12
    )
    asked = replace(ASKED, gpu=calibrated(H100, known))
    found = calibration_of(with_measured(asked, records_of(products())).gpu)
    assert found is not None
    assert {one.format for one in found.matrix} == {"bf16", "fp8"}
    assert found.memory_bytes_per_s == 2.5e12


def test_steps_are_predicted_with_the_rates_that_were_measured_beside_them() -> None:
    asked_of: list[Gpu] = []

    def steps_on(_: Sequence[Observed], gpu: Gpu) -> list[StepCalibration]:
        asked_of.append(gpu)
        step = MeasuredStep(predicted_seconds=1.0, measured_seconds=1.5)
        names: tuple[StackName, ...] = ("transformers", "torchtitan")
        return [StepCalibration(stack=name, implementation="eager", step=step) for name in names]

    asked = replace(ASKED, recipe=replace(ASKED.recipe, stack="transformers"))
    measured = with_measured(asked, records_of(products()), steps_on)
    found, seen = calibration_of(measured.gpu), calibration_of(asked_of[0])
    assert found is not None
    assert seen is not None
    assert seen.matrix == found.matrix
    assert (seen.steps, [one.stack for one in found.steps]) == ((), ["transformers"])
