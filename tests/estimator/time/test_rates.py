"""A matrix product never beats the GPU's peak, and never gets faster with more work."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import get_args

import numpy as np
import pytest

from service.calibration.observations import processor_of
from service.calibration.records import Environment
from service.catalogue import shipped_catalogue
from service.estimator.constants import LAUNCH_SECONDS
from service.estimator.question import Gpu
from service.estimator.samples import H100
from service.estimator.software.precision import Format, peak_flop_per_s
from service.estimator.time.rates import (
    MATRIX_RATES,
    SLUG_RATES,
    TILE,
    UNMEASURED_RATES,
    FormatRate,
    ProductRates,
    format_rate,
    generation_rates,
    matrix_product_seconds,
    quantise_seconds,
    rates_under,
)

GPUS = [row.gpu for row in shipped_catalogue().gpus.values()]
FORMATS: tuple[Format, ...] = get_args(Format)


def product_rates(gpu: Gpu, number_format: Format, sustained: float = 1.0, *, adds: bool = False) -> ProductRates:
    """What a GPU reaches in products of one format."""
    return rates_under(generation_rates(gpu), gpu, number_format, sustained, adds=adds)


RATES = product_rates(H100, "bf16")
SIZES = (1, 100, 128, 160, 1000, 1024, 4096, 4100, 12288, 65536)
SHAPES = list(product(SIZES, repeat=3))


def _runs() -> list[tuple[Gpu, Format]]:
    """Every format of every GPU of the catalogue."""
    return [(gpu, name) for gpu in GPUS for name in FORMATS if peak_flop_per_s(gpu, name)]


def _seconds(shape: Sequence[float], rates: ProductRates, copies: float = 1) -> float:
    rows, columns, inner = shape
    return float(matrix_product_seconds(rows, columns, inner, rates, copies))


def _flop_per_s(rows: float, columns: float, inner: float, rates: ProductRates) -> float:
    return float(2 * rows * columns * inner / matrix_product_seconds(rows, columns, inner, rates))


@pytest.mark.parametrize("adds", [False, True])
def test_no_product_beats_the_peak_or_the_memory(adds: bool) -> None:
    for gpu, number_format in _runs():
        rates = product_rates(gpu, number_format, adds=adds)
        peak = peak_flop_per_s(gpu, number_format)
        assert peak is not None
        for rows, columns, inner in (
            (4096, 4096, 4096),
            (65536, 65536, 65536),
            (128, 128, 1 << 20),
            (1 << 20, 128, 16),
        ):
            seconds = matrix_product_seconds(rows, columns, inner, rates)
            assert _flop_per_s(rows, columns, inner, rates) < peak, (gpu.slug, number_format)
            assert rates.operand_bytes * rows * inner / seconds < gpu.memory_bytes_per_s, (gpu.slug, number_format)


def test_more_work_never_takes_less_time() -> None:
    for gpu, number_format in _runs():
        rates = product_rates(gpu, number_format)
        base = matrix_product_seconds(1000, 2000, 3000, rates)
        for larger in ((1000 + TILE, 2000, 3000), (1000, 2000 + TILE, 3000), (1000, 2000, 3001), (8000, 2000, 3000)):
            assert _seconds(larger, rates) >= base, (gpu.slug, number_format, larger)


@pytest.mark.parametrize("axis", range(3))
def test_time_rises_along_each_axis(axis: int) -> None:
    random = Random(axis)  # noqa: S311 - the same shapes each run
    for _ in range(2000):
        shape = [random.randint(1, 20000) for _ in range(3)]
        longer = [size + random.randint(1, 3000) if i == axis else size for i, size in enumerate(shape)]
        assert _seconds(longer, RATES) > _seconds(shape, RATES), (shape, longer)


def test_a_faster_gpu_is_never_slower() -> None:
    faster = replace(RATES, flop_per_s=2 * RATES.flop_per_s)
    wider = replace(RATES, bytes_per_s=2 * RATES.bytes_per_s)
    for shape in SHAPES:
        seconds = _seconds(shape, RATES)
        assert _seconds(shape, faster) <= seconds
        assert _seconds(shape, wider) < seconds


def test_small_products_run_at_a_smaller_share_of_the_peak() -> None:
    large = _flop_per_s(8192, 8192, 8192, RATES)
    for small in ((64, 8192, 8192), (8192, 64, 8192), (8192, 8192, 64), (512, 512, 512)):
        assert _flop_per_s(*small, RATES) < 0.7 * large, small


def test_a_large_product_reaches_nearly_its_rate() -> None:
    assert 0.97 * RATES.flop_per_s < _flop_per_s(16384, 16384, 16384, RATES) < RATES.flop_per_s


def test_an_edge_costs_a_whole_tile() -> None:
    assert matrix_product_seconds(8193, 8192, 8192, RATES) > matrix_product_seconds(8192, 8192, 8192, RATES) * 1.005


def test_a_group_is_one_kernel_of_many_tiles() -> None:
    one = matrix_product_seconds(1024, 2048, 4096, RATES)
    eight = matrix_product_seconds(1024, 2048, 4096, RATES, 8)
    assert matrix_product_seconds(1024, 2048, 4096, RATES, 1) == one
    assert one < eight < 8 * one
    assert matrix_product_seconds(100, 2048, 4096, RATES, 8) > matrix_product_seconds(800, 2048, 4096, RATES)


def test_products_called_in_turn_cost_their_launches() -> None:
    grouped, in_turn = (matrix_product_seconds(1024, 2048, 4096, RATES, 8, launches=calls) for calls in (1, 8))
    assert in_turn - grouped == pytest.approx(7 * LAUNCH_SECONDS)


def test_a_sum_in_fp32_takes_its_traffic() -> None:
    adding = product_rates(H100, "bf16", adds=True)
    more = matrix_product_seconds(4096, 4096, 4096, adding) - matrix_product_seconds(4096, 4096, 4096, RATES)
    assert more == pytest.approx(0.5 * (8 - 2) * 4096**2 / RATES.bytes_per_s)


def test_a_long_run_may_lower_the_clock() -> None:
    slower = product_rates(H100, "bf16", 0.8)
    assert slower.flop_per_s == pytest.approx(0.8 * RATES.flop_per_s)
    assert slower.bytes_per_s == RATES.bytes_per_s


def test_columns_give_the_numbers_of_plain_arguments() -> None:
    rows, columns, inner = (np.array(axis, dtype=np.float64) for axis in zip(*SHAPES, strict=True))
    for rates in (RATES, product_rates(H100, "fp8", adds=True), replace(RATES, wave_tiles=1)):
        for copies in (1, 8):
            plain = [_seconds(shape, rates, copies) for shape in SHAPES]
            assert np.array_equal(matrix_product_seconds(rows, columns, inner, rates, copies), plain)


def test_every_share_lies_within_the_peak() -> None:
    for generation in (*MATRIX_RATES.values(), *SLUG_RATES.values(), UNMEASURED_RATES):
        assert "bf16" in generation.formats
        for rate in generation.formats.values():
            assert 0 < rate.peak_fraction <= 1
            assert rate.quantise_bytes >= 0
            assert 0 <= rate.quantise_launch_seconds < 2e-5


def test_every_row_is_found_by_a_device_that_can_be_asked_for() -> None:
    devices = [*GPUS, processor_of(Environment(kind="cpu", device="EPYC", devices=1, memory_bytes=8e9))]
    found = {id(generation_rates(device)) for device in devices}
    assert {name for name, row in {**MATRIX_RATES, **SLUG_RATES}.items() if id(row) not in found} == set()
    assert MATRIX_RATES.keys() <= {device.architecture for device in devices}
    assert SLUG_RATES.keys() <= {device.slug for device in devices}


def test_a_gpu_unlike_its_generation_has_its_own_row() -> None:
    rows = {gpu.slug: generation_rates(gpu) for gpu in GPUS}
    assert rows["rtx-5090"] is not rows["b200-sxm-180gb"]
    assert rows["a100-pcie-80gb"] is not rows["a100-sxm4-80gb"]
    assert rows["v100-sxm2-32gb"] is UNMEASURED_RATES


def test_a_format_without_a_row_takes_the_nearest() -> None:
    hopper = generation_rates(H100)
    assert format_rate(hopper, "fp16") is format_rate(hopper, "fp32") is hopper.formats["bf16"]
    assert format_rate(hopper, "int8") is format_rate(hopper, "fp4") is hopper.formats["fp8"]
    alone = replace(hopper, formats={"bf16": FormatRate(peak_fraction=0.5)})
    assert format_rate(alone, "int8") is alone.formats["bf16"]


def test_quantising_moves_bytes_and_launches() -> None:
    rates = product_rates(H100, "fp8")
    assert quantise_seconds(0, rates) == rates.quantise_launch_seconds > 0
    assert quantise_seconds(1e9, rates) > 1e9 * 3 / H100.memory_bytes_per_s
    assert quantise_seconds(1e9, RATES) == 0


def test_an_empty_product_costs_its_launch() -> None:
    assert matrix_product_seconds(0, 4096, 4096, replace(RATES, operand_bytes=0)) == LAUNCH_SECONDS
