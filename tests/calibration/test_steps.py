"""Constants, baselines and intervals are fitted without the rows that score them."""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import product

import pytest

from service.calibration.steps import (
    ASSUMED,
    DENSE,
    NEWER,
    SPARSE,
    Fitted,
    PublishedStep,
    StepRow,
    constant_utilisation_seconds,
    digest_of,
    held_out_seconds,
)
from service.catalogue import shipped_catalogue
from service.estimator import Layout, Recipe
from service.estimator.constants import STEP_CONSTANTS, StepConstants, product_scale
from service.estimator.question import Question
from service.estimator.samples import H100, sample_workload
from service.estimator.software.precision import peak_flop_per_s
from service.estimator.time.kernels import rates_of
from service.estimator.time.rates import MATRIX_RATES, SLUG_RATES, UNMEASURED_RATES, generation_rates
from service.estimator.time.step import Operations, step_class_of
from tests.ask import known, question
from tests.estimator.small_models import FAMILIES

ASKED = question(next(iter(FAMILIES.values())), Recipe(sequence_length=1024, stack="fsdp1"), Layout(), gpus=8)


def row(name: str, source: str, *, is_scored_apart: bool = False) -> StepRow:
    return StepRow(
        id=name,
        source_key=source,
        left_out_with=source,
        question=ASKED,
        stack=("fsdp1", "eager"),
        measured_seconds=1.0,
        waiting_fraction=0.0,
        is_scored_apart=is_scored_apart,
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
    rows = [row("a", "one"), row("b", "one"), row("c", "two"), row("d", "three", is_scored_apart=True)]
    assert held_out_seconds(rows, Remembering()) == {"a": 2.0, "b": 2.0, "c": 3.0, "d": 3.0}
    assert held_out_seconds(rows, Remembering(), only=["two"]) == {"c": 3.0}


def test_digests_tell_names_and_values_apart() -> None:
    seconds = {"a": 1.0, "b": 2.0}
    assert digest_of(seconds) == digest_of(dict(reversed(seconds.items())))
    assert len({digest_of(seconds), digest_of({"a": 2.0, "b": 1.0}), digest_of({"a": 1.0})}) == 3


def test_a_baseline_is_fitted_on_other_sources_of_the_same_gpu() -> None:
    def worked(source: str, gpu: str, seconds: float, *, is_scored_apart: bool = False) -> PublishedStep:
        return PublishedStep(
            left_out_with=source,
            gpu=gpu,
            work_flop=10.0,
            peak_flop_per_s=10.0,
            measured_seconds=seconds,
            is_scored_apart=is_scored_apart,
        )

    rows = [
        worked("one", "x", 2.0),
        worked("two", "x", 4.0),
        worked("two", "y", 8.0),
        worked("odd", "x", 64.0, is_scored_apart=True),
    ]
    assert constant_utilisation_seconds(rows) == pytest.approx([4.0, 2.0, 2.0, 1 / 0.375])


def test_a_stack_is_known_where_several_sources_run_it() -> None:
    engine: Operations = ("megatron-core", "transformer-engine")
    alone: Operations = ("deepspeed", "local")
    assert step_class_of(engine, H100, is_sparse=False) == "known stack"
    assert step_class_of(alone, H100, is_sparse=False) == "other stack"
    assert step_class_of(engine, H100, is_sparse=False, known_stacks=[alone]) == "other stack"


EVERY = [pytest.param(one, id=f"{one.field} {one.key or ''}".strip()) for one in (*DENSE, *NEWER, *SPARSE, *ASSUMED)]
FASTEST_STACK = min(1.0, *STEP_CONSTANTS.stack_scales.values())
"""Least seconds of a step over what its kernels say."""


@pytest.mark.parametrize("one", EVERY)
def test_a_constant_is_inside_its_bounds(one: Fitted) -> None:
    assert one.low <= one.prior <= one.high
    assert one.low <= one.of(STEP_CONSTANTS) <= one.high
    assert one.source


@pytest.mark.parametrize("one", ASSUMED)
def test_what_is_assumed_is_the_prior(one: Fitted) -> None:
    assert one.of(STEP_CONSTANTS) == one.prior


def test_every_constant_has_its_row() -> None:
    assert {field.name for field in fields(StepConstants)} == {one.field for one in (*DENSE, *SPARSE, *ASSUMED)}


@pytest.mark.parametrize("one", EVERY)
def test_no_fit_leaves_the_bounds(one: Fitted) -> None:
    assert one.of(one.put(STEP_CONSTANTS, 1e9)) == one.high
    assert one.of(one.put(STEP_CONSTANTS, 0.0)) == one.low


def test_products_stay_below_the_peak_of_every_gpu_on_the_fastest_stack() -> None:
    for gpu in (row.gpu for row in shipped_catalogue().gpus.values()):
        for rate in generation_rates(gpu).formats.values():
            assert 0 < rate.peak_fraction * product_scale(STEP_CONSTANTS, gpu) / FASTEST_STACK < 1


def test_attention_stays_below_the_peak_on_the_fastest_stack_with_heads_of_any_width() -> None:
    job = sample_workload()
    name, implementation = min(STEP_CONSTANTS.stack_scales, key=lambda stack: STEP_CONSTANTS.stack_scales[stack])
    software = replace(job.software, name=name, implementation=implementation)
    for gpu, width in product((row.gpu for row in shipped_catalogue().gpus.values()), (64, 128, 192, 256)):
        if gpu.bf16_flop_per_s is None:
            continue
        asked = replace(job, gpu=gpu, software=software, model=replace(job.model, head_dim=width))
        rates = rates_of(asked)
        peak = known(peak_flop_per_s(gpu, asked.precision.attention_format))
        for share in (rates.attention.forward_fraction, rates.attention.backward_fraction):
            assert 0 < share * rates.attention_flop_per_s / peak / FASTEST_STACK < 1


def test_every_measured_share_is_one_of_the_peak() -> None:
    for generation in (*MATRIX_RATES.values(), *SLUG_RATES.values(), UNMEASURED_RATES):
        assert all(0 < rate.peak_fraction <= 1 for rate in generation.formats.values())


def test_memory_and_networks_carry_no_more_than_their_rate() -> None:
    assert 0 < STEP_CONSTANTS.memory_fraction / FASTEST_STACK < 1
    assert 0 < STEP_CONSTANTS.network_scale <= 1
