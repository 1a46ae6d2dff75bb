"""Does every fitted constant stay where physics and its source allow, and does no kernel beat its GPU with it?"""

import pytest

from service.calibration.step_constants_table import DENSE, SPARSE, Fitted
from service.catalogue import shipped_catalogue
from service.estimator.attention_rate import KERNEL_SHARES
from service.estimator.matrix_rates import MATRIX_RATES, SLUG_RATES, UNMEASURED_RATES, generation_rates
from service.estimator.step_constants import NEWEST_KERNEL, STEP_CONSTANTS, product_scale

EVERY = [pytest.param(one, id=f"{one.field} {one.key or ''}".strip()) for one in (*DENSE, *SPARSE)]
FASTEST_STACK = min(1.0, *STEP_CONSTANTS.stack_scales.values())
"""Least seconds of a step over what its kernels say."""


@pytest.mark.parametrize("one", EVERY)
def test_a_constant_is_inside_its_bounds(one: Fitted) -> None:
    assert one.low <= one.prior <= one.high
    assert one.low <= one.of(STEP_CONSTANTS) <= one.high
    assert one.source


@pytest.mark.parametrize("one", EVERY)
def test_no_fit_leaves_the_bounds(one: Fitted) -> None:
    assert one.of(one.put(STEP_CONSTANTS, 1e9)) == one.high
    assert one.of(one.put(STEP_CONSTANTS, 0.0)) == one.low


def test_products_stay_below_the_peak_of_every_gpu_on_the_fastest_stack() -> None:
    for gpu in (row.gpu for row in shipped_catalogue().gpus.values()):
        for rate in generation_rates(gpu).formats.values():
            assert 0 < rate.peak_fraction * product_scale(STEP_CONSTANTS, gpu) / FASTEST_STACK < 1


def test_attention_stays_below_the_peak_on_the_fastest_stack() -> None:
    scales = STEP_CONSTANTS.attention_scales
    for kernel, shares in KERNEL_SHARES.items():
        for share in shares.values():
            scale = scales.get(kernel, scales[NEWEST_KERNEL])
            assert 0 < share.forward_fraction * scale / FASTEST_STACK < 1
            assert 0 < share.backward_fraction * scale / FASTEST_STACK < 1


def test_every_measured_share_is_one_of_the_peak() -> None:
    for generation in (*MATRIX_RATES.values(), *SLUG_RATES.values(), UNMEASURED_RATES):
        assert all(0 < rate.peak_fraction <= 1 for rate in generation.formats.values())


def test_memory_and_networks_carry_no_more_than_their_rate() -> None:
    assert 0 < STEP_CONSTANTS.memory_fraction / FASTEST_STACK < 1
    assert 0 < STEP_CONSTANTS.network_scale <= 1
