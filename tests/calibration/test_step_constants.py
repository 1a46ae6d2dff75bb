"""Does every fitted constant stay where physics and its source allow, and does no kernel beat its GPU with it?"""

from dataclasses import fields, replace
from itertools import product

import pytest

from service.calibration.steps import ASSUMED, DENSE, SPARSE, Fitted
from service.catalogue import shipped_catalogue
from service.estimator.constants import STEP_CONSTANTS, StepConstants, product_scale
from service.estimator.samples import sample_workload
from service.estimator.software.precision import peak_flop_per_s
from service.estimator.time.kernels import rates_of
from service.estimator.time.matrix_products import MATRIX_RATES, SLUG_RATES, UNMEASURED_RATES, generation_rates
from tests.ask import known

EVERY = [pytest.param(one, id=f"{one.field} {one.key or ''}".strip()) for one in (*DENSE, *SPARSE, *ASSUMED)]
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
    software = replace(job.software, name="megatron-core", implementation="transformer-engine")
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
