"""Do a caller's own measured steps move predictions and narrow intervals, as far as they warrant and no further?"""

from dataclasses import replace
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Refused
from service.estimator import Estimate, estimate
from service.estimator.measured_step import MeasuredStep
from service.estimator.own_steps import own_scale, own_spread_fraction
from service.estimator.run_stage import RunStage
from service.estimator.samples import sample_resolved
from service.estimator.step_residuals import LEAST_RESIDUAL

residuals = st.floats(-0.5, 0.5)


def steps(*residuals: float) -> tuple[MeasuredStep, ...]:
    return tuple(MeasuredStep(predicted_seconds=2.0, measured_seconds=2.0 * exp(residual)) for residual in residuals)


def asked(*residuals: float, stages: tuple[RunStage, ...] = ()) -> Estimate:
    question = sample_resolved().question
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
