"""Do constants, baselines and intervals never see what they are judged by?"""

from collections.abc import Sequence

import pytest

from service.calibration.steps import PublishedStep, StepRow, constant_utilisation_seconds, digest_of, held_out_seconds
from service.estimator import Layout, Recipe
from service.estimator.question import Question
from service.estimator.samples import H100
from service.estimator.time.step import Operations, step_class_of
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
    def worked(source: str, gpu: str, seconds: float, *, is_apart: bool = False) -> PublishedStep:
        return PublishedStep(
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


def test_a_stack_is_known_where_several_sources_run_it() -> None:
    engine: Operations = ("megatron-core", "transformer-engine")
    alone: Operations = ("deepspeed", "local")
    assert step_class_of(engine, H100, is_sparse=False) == "known stack"
    assert step_class_of(alone, H100, is_sparse=False) == "other stack"
    assert step_class_of(engine, H100, is_sparse=False, known_stacks=[alone]) == "other stack"
