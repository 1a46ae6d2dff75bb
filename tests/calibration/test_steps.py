"""Do constants, baselines and intervals never see what they are judged by?"""

from collections.abc import Sequence
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.calibration.baselines import Worked, constant_utilisation_seconds
from service.calibration.held_out import digest_of, held_out_seconds
from service.calibration.own_measurements import calibrated_interval
from service.calibration.step_rows import StepRow
from service.estimator import Layout, Recipe
from service.estimator.question import Question
from service.estimator.samples import H100
from service.estimator.step_residuals import LEAST_RESIDUAL, Operations, step_class_of
from tests.ask import question
from tests.estimator.small_models import FAMILIES

ASKED = question(next(iter(FAMILIES.values())), Recipe(sequence_length=1024, stack="fsdp1"), Layout(), gpus=8)


def row(name: str, source: str, *, is_apart: bool = False) -> StepRow:
    return StepRow(
        id=name,
        source_key=source,
        left_out_with=source,
        question=ASKED,
        stack=("fsdp1", "eager"),
        measured_seconds=1.0,
        waiting_fraction=0.0,
        is_apart=is_apart,
    )


class Remembering:
    """A model whose constants are the names of the rows that it was fitted on."""

    def fit(self, rows: Sequence[StepRow]) -> object:
        return {row.id for row in rows}

    def step_seconds(self, question: Question, fitted: object) -> float:
        del question
        assert isinstance(fitted, set)
        self.seen = fitted
        return float(len(fitted))


def test_a_row_is_predicted_by_a_fit_without_its_source() -> None:
    rows = [row("a", "one"), row("b", "one"), row("c", "two"), row("d", "three", is_apart=True)]
    assert held_out_seconds(rows, Remembering()) == {"a": 2.0, "b": 2.0, "c": 3.0, "d": 3.0}
    assert held_out_seconds(rows, Remembering(), only=["two"]) == {"c": 3.0}


def test_digests_tell_names_and_values_apart() -> None:
    seconds = {"a": 1.0, "b": 2.0}
    assert digest_of(seconds) == digest_of(dict(reversed(seconds.items())))
    assert len({digest_of(seconds), digest_of({"a": 2.0, "b": 1.0}), digest_of({"a": 1.0})}) == 3


def test_a_baseline_is_fitted_on_other_sources_of_the_same_gpu() -> None:
    def worked(source: str, gpu: str, seconds: float, *, is_apart: bool = False) -> Worked:
        return Worked(
            left_out_with=source,
            gpu=gpu,
            work_flop=10.0,
            peak_flop_per_s=10.0,
            measured_seconds=seconds,
            is_apart=is_apart,
        )

    rows = [
        worked("one", "x", 2.0),
        worked("two", "x", 4.0),
        worked("two", "y", 8.0),
        worked("odd", "x", 64.0, is_apart=True),
    ]
    assert constant_utilisation_seconds(rows) == pytest.approx([4.0, 2.0, 2.0, 1 / 0.375])


residuals = st.floats(-0.5, 0.5)


@given(st.lists(residuals, max_size=30), st.floats(0.03, 1.0))
def test_own_measurements_make_an_interval(own: list[float], spread: float) -> None:
    found = calibrated_interval(10.0, spread, [(1.0, exp(residual)) for residual in own])
    assert found.basis == ("calibrated" if own else "analytic")
    assert found.low <= found.value <= found.high
    assert log(found.high / found.value) >= LEAST_RESIDUAL - 1e-12
    assert abs(log(found.value / 10.0)) <= max(map(abs, own), default=0.0) + 1e-12


@given(residuals, st.integers(1, 40), st.floats(0.1, 1.0))
def test_steps_that_agree_narrow_it_with_their_number(bias: float, count: int, spread: float) -> None:
    few = calibrated_interval(1.0, spread, [(1.0, exp(bias))] * count)
    more = calibrated_interval(1.0, spread, [(1.0, exp(bias))] * (count + 1))
    assert abs(log(more.value) - bias) <= abs(log(few.value) - bias) + 1e-12


def test_many_equal_steps_leave_the_floor_and_scattered_ones_do_not() -> None:
    equal = calibrated_interval(1.0, 0.2, [(1.0, 1.1)] * 2000)
    assert log(equal.high / equal.value) == pytest.approx(LEAST_RESIDUAL)
    scattered = calibrated_interval(1.0, 0.2, [(1.0, exp(0.5)), (1.0, exp(-0.5))] * 100)
    assert log(scattered.high / scattered.value) > 0.4


def test_a_stack_is_known_where_several_sources_run_it() -> None:
    engine: Operations = ("megatron-core", "transformer-engine")
    alone: Operations = ("deepspeed", "local")
    assert step_class_of(engine, H100, is_sparse=False) == "known stack"
    assert step_class_of(alone, H100, is_sparse=False) == "other stack"
    assert step_class_of(engine, H100, is_sparse=False, known_stacks=[alone]) == "other stack"
