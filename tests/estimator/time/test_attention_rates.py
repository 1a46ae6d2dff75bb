"""An attention kernel stays below the peak, and reaches more of it with more work."""

from itertools import product
from typing import get_args

import numpy as np
import pytest

from service.catalogue import shipped_catalogue
from service.estimator.samples import H100
from service.estimator.time.rates import (
    HEAD_WIDTHS,
    KERNEL_SHARES,
    MOST_FRACTION,
    RUNS_LIKE,
    UNMEASURED_SHARES,
    AttentionRate,
    FusedName,
    attention_fraction,
    attention_rate,
)

GPUS = {slug: row.gpu for slug, row in shipped_catalogue().gpus.items()}
KERNELS: tuple[FusedName, ...] = get_args(FusedName)
WIDTHS = ((16, 16), (64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (512, 512))
RATE = attention_rate("cudnn", H100, 128, 128)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("widths", WIDTHS)
def test_no_kernel_reaches_the_peak(kernel: FusedName, widths: tuple[int, int]) -> None:
    for gpu in GPUS.values():
        rate = attention_rate(kernel, gpu, *widths)
        for backward in (False, True):
            assert 0 < attention_fraction(rate, 1e9, 1e12, backward=backward) <= MOST_FRACTION < 1, gpu.slug


@pytest.mark.parametrize("backward", [False, True])
def test_share_rises_with_keys_and_with_queries(backward: bool) -> None:
    for kernel, gpu in product(KERNELS, GPUS.values()):
        rate = attention_rate(kernel, gpu, 128, 128)
        sizes = [2.0**power for power in range(6, 24)]
        over_keys = [attention_fraction(rate, keys, 1e5, backward=backward) for keys in sizes]
        over_queries = [attention_fraction(rate, 2048, queries, backward=backward) for queries in sizes]
        assert over_keys == sorted(over_keys)
        assert over_queries == sorted(over_queries)


def test_time_rises_with_the_sequence() -> None:
    seconds = [tokens * tokens / attention_fraction(RATE, tokens / 2, 32 * tokens) for tokens in range(128, 65536, 128)]
    assert seconds == sorted(seconds)


def test_short_windows_and_few_heads_lose() -> None:
    full = attention_fraction(RATE, 4096, 32 * 8192)
    assert attention_fraction(RATE, 128, 32 * 8192) < 0.4 * full
    assert attention_fraction(RATE, 4096, 2 * 8192) < 0.4 * full


@pytest.mark.parametrize("kernel", KERNELS)
def test_width_between_measured_ones_lies_between_them(kernel: FusedName) -> None:
    rates = {width: attention_rate(kernel, H100, width, width) for width in (32, 64, 96, 128, 256, 300)}
    assert rates[32].forward_fraction == pytest.approx(rates[64].forward_fraction / 2)
    assert rates[64].forward_fraction < rates[96].forward_fraction < rates[128].forward_fraction
    assert rates[300] == rates[256]
    assert attention_rate(kernel, H100, 192, 128) == attention_rate(kernel, H100, 160, 160)


def test_newer_kernels_of_a_generation_are_faster_on_it() -> None:
    older = attention_fraction(attention_rate("flash-2", H100, 128, 128), 4096, 32 * 8192)
    for kernel in ("flash-3", "cudnn"):
        assert attention_fraction(attention_rate(kernel, H100, 128, 128), 4096, 32 * 8192) > 1.4 * older


def test_what_a_generation_is_paired_with_changes_nothing() -> None:
    assert attention_rate("cudnn", GPUS["gb200-186gb"], 128, 128) == attention_rate(
        "cudnn", GPUS["b200-sxm-180gb"], 128, 128
    )


def test_consumer_blackwell_runs_like_ada() -> None:
    assert set(RUNS_LIKE) <= GPUS.keys()
    ada, data_centre, consumer = (
        attention_rate("flash-2", GPUS[slug], 128, 128).forward_fraction
        for slug in ("l40s", "b200-sxm-180gb", "rtx-5090")
    )
    assert consumer == ada != data_centre


def test_generation_without_a_measurement_takes_the_row_that_says_so() -> None:
    rate = attention_rate("flash-2", GPUS["gaudi3"], 128, 128)
    assert rate.forward_fraction == UNMEASURED_SHARES.forward_fraction
    assert rate.wave_queries == 0
    assert attention_fraction(rate, 2048, 1) == attention_fraction(rate, 2048, 1e9)


def test_every_row_is_found_by_a_gpu_of_the_catalogue() -> None:
    families = {gpu.architecture.removesuffix(" (Grace)") for gpu in GPUS.values()}
    assert {family for rows in KERNEL_SHARES.values() for family in rows} <= families
    assert HEAD_WIDTHS.keys() == KERNEL_SHARES.keys() == set(KERNELS)


def test_columns_give_the_numbers_of_plain_arguments() -> None:
    keys, queries = np.array([64.0, 512.0, 4096.0]), np.array([1e3, 1e5, 1e7])
    for backward in (False, True):
        plain = [attention_fraction(RATE, *each, backward=backward) for each in zip(keys, queries, strict=True)]
        assert np.array_equal(attention_fraction(RATE, keys, queries, backward=backward), np.array(plain))


def test_an_endless_kernel_reaches_its_share() -> None:
    rate = AttentionRate(forward_fraction=0.7, backward_fraction=0.5, wave_queries=1000)
    assert attention_fraction(rate, 1e12, 1e12) == pytest.approx(0.7)
    assert attention_fraction(rate, 1e12, 1e12, backward=True) == pytest.approx(0.5)
