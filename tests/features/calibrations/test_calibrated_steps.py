"""A timed step of a launch check is predicted, fitted and scored by other runs only."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from service.calibration.device_fit import STEP, fitted_device, score_calibration
from service.calibration.observations import Observed
from service.calibration.records import Environment, Measurement
from service.estimator import Layout, Recipe, estimate
from service.estimator.constants import calibrated
from service.estimator.resolve import configuration_of
from service.estimator.run.run import compute_configuration
from service.estimator.samples import H100
from service.features.calibrations.fitting import StepPredictor, TrainedModel, trained_by
from service.features.launch_checks.tasks import step_parameters
from tests.ask import question
from tests.calibration.observations import ENVIRONMENT, TRUE_GPU, products
from tests.estimator.small_models import FAMILIES

RECIPE = Recipe(sequence_length=2048, global_batch=4, stack="transformers")
ASKED = question(next(iter(FAMILIES.values())), RECIPE, Layout())
PAYLOAD = {
    "tasks": [
        {"probe": "gemm", "parameters": {"products": []}},
        {"probe": STEP, "parameters": step_parameters((configuration_of(ASKED),), timed_steps=5)},
    ]
}
SLOWER = 1.4
"""Times as long as formulas say that steps take on the device."""

PROCESSOR = Environment(kind="cpu", device="EPYC", devices=1, memory_bytes=8e9, threads=2)


def trained() -> TrainedModel:
    found = trained_by(PAYLOAD)
    assert found is not None
    return found


def timed(run: str, depth: int, off: float = 1.0, **changed: Any) -> Observed:
    """A step of so many layers, which takes longer than formulas say of the true device."""
    model = replace(ASKED.model, num_hidden_layers=depth)
    whole = configuration_of(replace(ASKED, model=model, recipe=trained().recipe, gpu=TRUE_GPU))
    seconds = SLOWER * off * compute_configuration(whole).step.step_seconds.value
    measured = Measurement(
        operation=STEP, shape={"depth": depth}, quantity="seconds", value=seconds, low=seconds, high=seconds, repeats=5
    )
    return replace(
        Observed(id=f"{run}/{depth}", run=run, probe=STEP, measurement=measured, environment=ENVIRONMENT), **changed
    )


STEPS = StepPredictor({run: trained() for run in ("one", "two")})
MEASURED = [
    *products("one"),
    *(timed(run, depth, off) for run, off in (("one", 1.0), ("two", 1.02)) for depth in (1, 2)),
]


def test_steps_of_other_runs_bring_predictions_nearer() -> None:
    before: Callable[[Observed], float | None] = lambda one: STEPS.predict(one, H100)  # noqa: E731
    judgement = score_calibration(MEASURED, H100, before, STEPS.predict, STEPS.on)
    part = next(one for one in judgement.parts if one.probe == STEP)
    assert (part.left_out, part.measurements) == ("run", 4)
    assert part.held_out_fraction < part.before_fraction
    alone = score_calibration(MEASURED, H100, before, STEPS.predict)
    without = next(one for one in alone.parts if one.probe == STEP)
    assert part.held_out_fraction < without.held_out_fraction, "more than products alone do"


def test_a_step_is_set_beside_what_the_other_measurements_let_one_expect_and_scales_its_own_stack_alone() -> None:
    found = fitted_device(MEASURED, H100, "cal_1", STEPS.on)
    assert len(found.steps) == 4
    for one in found.steps:
        assert one.step.measured_seconds / one.step.predicted_seconds == pytest.approx(SLOWER, rel=0.15)
    other = replace(ASKED, recipe=replace(ASKED.recipe, stack="torchtitan"))
    for asked, is_same in ((replace(ASKED, recipe=trained().recipe), False), (other, True)):
        unscaled, scaled = (
            estimate(replace(asked, gpu=calibrated(H100, one))).step.step_seconds.value
            for one in (replace(found, steps=()), found)
        )
        assert (scaled == unscaled) is is_same
        assert scaled >= unscaled


@pytest.mark.parametrize(
    "one",
    [
        timed("three", 1),
        timed("one", 1, environment=PROCESSOR),
        timed("one", 1, measurement=replace(timed("one", 1).measurement, operation="allocated_peak")),
        timed("one", 1, measurement=replace(timed("one", 1).measurement, shape={})),
    ],
    ids=["of an unknown run", "of a processor", "of memory", "of no depth"],
)
def test_what_is_no_known_step_is_passed_over(one: Observed) -> None:
    assert STEPS.predict(one, H100) is None
    assert STEPS.on([one], H100) == ()


@pytest.mark.parametrize(
    "payload",
    [{}, {"tasks": [{"probe": "gemm"}]}, {"tasks": [{"probe": STEP, "parameters": {"model": {"layers": 1}}}]}],
    ids=["no tasks", "no step", "a model of another release"],
)
def test_a_job_without_a_step_that_can_be_read_trains_nothing(payload: Mapping[str, Any]) -> None:
    assert trained_by(payload) is None
