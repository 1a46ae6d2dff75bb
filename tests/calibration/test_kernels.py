"""Fitted rates of matrix products: the best fit of the shipped measurements, and its error."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean, median
from typing import Any, get_args

import numpy as np
import pytest

from service.calibration.device_fit import fitted_device
from service.calibration.observations import Observed, predicted_value
from service.calibration.records import Environment, Measurement
from service.catalogue import shipped_catalogue
from service.estimator.constants import calibrated
from service.estimator.question import Gpu
from service.estimator.software.precision import Format
from service.estimator.time import rates
from service.estimator.time.rates import (
    HEAD_WIDTHS,
    KERNEL_SHARES,
    MATRIX_RATES,
    SLUG_RATES,
    UNMEASURED_RATES,
    FormatRate,
    FusedName,
    GenerationRates,
)
from tests.amounts import WHOLE
from tests.calibration.attention_fit import (
    ATTENTION_SOURCES,
    UNEQUAL_WIDTH,
    MeasuredAttention,
    fitted_shares,
    is_fitted,
    measured_attention,
    residual_fraction,
    unexplained_fraction,
)
from tests.calibration.product_fit import (
    BOUNDS,
    FITS,
    PRODUCT_SOURCES,
    SECOND_B200,
    Fit,
    MeasuredProduct,
    columns_of,
    fitted,
    left_out_mape_fraction,
    loss_fraction,
    mape_fraction,
    measured_products,
    rows_of,
)

GPUS = {slug: row.gpu for slug, row in shipped_catalogue().gpus.items()}
ROWS = measured_products()
COLUMNS = {fit.name: columns_of(rows_of(fit, ROWS), GPUS) for fit in (*FITS, SECOND_B200)}

PERCENT: dict[tuple[str, Format], tuple[float, float, float]] = {
    ("Ampere", "bf16"): (3.6, 3.6, 4.3),
    ("Ampere", "int8"): (7.1, 7.5, 9.0),
    ("a100-pcie-80gb", "bf16"): (3.4, 3.4, 3.5),
    ("Ada", "bf16"): (7.9, 8.1, 8.1),
    ("Ada", "fp8"): (7.8, 8.0, 8.3),
    ("Hopper", "bf16"): (5.0, 5.2, 5.5),
    ("Hopper", "fp8"): (3.2, 3.4, 3.4),
    ("Blackwell", "bf16"): (6.8, 7.0, 6.8),
    ("Blackwell", "fp8"): (3.8, 3.9, 3.8),
    ("Blackwell", "fp4"): (3.9, 4.2, 4.6),
    ("Blackwell (Grace)", "bf16"): (7.4, 7.7, 7.7),
    ("Blackwell (Grace)", "fp8"): (5.0, 5.4, 5.0),
    ("Blackwell (Grace)", "fp4"): (4.0, 4.4, 4.8),
    ("Blackwell Ultra", "bf16"): (7.6, 7.9, 8.0),
    ("Blackwell Ultra", "fp8"): (4.5, 4.7, 4.5),
    ("Blackwell Ultra", "fp4"): (7.0, 8.4, 7.2),
    ("Blackwell Ultra (Grace)", "bf16"): (4.9, 5.1, 5.2),
    ("Blackwell Ultra (Grace)", "fp8"): (3.0, 3.2, 3.5),
    ("Blackwell Ultra (Grace)", "fp4"): (6.7, 8.0, 7.1),
    ("rtx-pro-6000-blackwell-server", "bf16"): (3.1, 3.2, 3.6),
    ("rtx-pro-6000-blackwell-server", "fp8"): (3.6, 3.8, 4.6),
    ("rtx-pro-6000-blackwell-server", "fp4"): (4.3, 4.6, 5.4),
    ("b200, simumax", "bf16"): (10.7, 10.7, 11.1),
}  # fmt: skip
"""Mean absolute error in percent by fit and format: of products of 1,024 rows and more, the same with each family of
shapes left out of the fit, and of all products."""

RATES = {**MATRIX_RATES, **SLUG_RATES}


@cache
def best(fit: Fit) -> GenerationRates:
    """The best constants of what is fitted together."""
    return fitted(COLUMNS[fit.name], fit.processors, fit.source_key)


def _constants(rate: FormatRate) -> dict[str, float]:
    """What is fitted on published products; the rest of a rate only what was measured of one device tells."""
    return {name: getattr(rate, name) for name in BOUNDS}


def test_every_measurement_is_of_a_known_gpu_and_source_once() -> None:
    assert len(ROWS) > 2900
    assert {row.gpu for row in ROWS} <= GPUS.keys()
    assert {row.source_key for row in ROWS} == PRODUCT_SOURCES.keys()
    assert len(
        {(r.source_key, r.gpu, r.format, r.layout, r.adds, r.copies, r.rows, r.columns, r.inner) for r in ROWS}
    ) == len(ROWS)


def test_every_measurement_is_fitted_or_judged_once() -> None:
    read = [row for fit in (*FITS, SECOND_B200) for row in rows_of(fit, ROWS)]
    assert sorted(map(id, read)) == sorted(id(row) for row in ROWS if row.copies == 1)


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.name)
def test_rates_of_the_estimator_are_the_best_fit(fit: Fit) -> None:
    found, kept = best(fit), RATES[fit.name]
    assert (kept.processors, kept.formats.keys()) == (fit.processors, found.formats.keys())
    for number_format, rate in found.formats.items():
        for name, value in _constants(rate).items():
            low, high, step = BOUNDS[name]
            assert _constants(kept.formats[number_format])[name] == pytest.approx(value, abs=1.01 * step), number_format
            assert low <= value < high, f"{number_format} {name} lies at its bound"


def test_generations_without_a_measurement_take_the_median() -> None:
    assert UNMEASURED_RATES.processors is None
    for number_format, rate in UNMEASURED_RATES.formats.items():
        measured = [
            _constants(RATES[fit.name].formats[number_format])
            for fit in FITS
            if number_format in RATES[fit.name].formats
        ]
        assert len(measured) >= 5
        for name, value in _constants(rate).items():
            assert value == pytest.approx(median(row[name] for row in measured), abs=BOUNDS[name][2])


def _total_loss_fraction() -> float:
    """Loss over all fits, each at its own best constants."""
    fits = (*FITS, SECOND_B200)
    return sum(loss_fraction(COLUMNS[fit.name], fitted(COLUMNS[fit.name], fit.processors, "")) for fit in fits)


NEAR_WAVE = (0.0, 0.05, 0.25, 0.5) if WHOLE else (0.05, 0.25)
NEAR_STORE = (0.0, 0.25, 0.75, 1.0) if WHOLE else (0.25, 0.75)
"""Values on either side of what is kept; those farther away in `.ci/proof sweeps`."""


@pytest.mark.parametrize(("name", "others"), [("WAVE_FRACTION", NEAR_WAVE), ("EXPOSED_STORE_FRACTION", NEAR_STORE)])
def test_what_all_gpus_share_fits_better_than_other_values(
    monkeypatch: pytest.MonkeyPatch, name: str, others: tuple[float, ...]
) -> None:
    kept = sum(loss_fraction(COLUMNS[fit.name], best(fit)) for fit in (*FITS, SECOND_B200))
    for other in others:
        monkeypatch.setattr(rates, name, other)
        assert _total_loss_fraction() > kept, other


@pytest.mark.parametrize("fit", [*FITS, SECOND_B200], ids=lambda fit: fit.name)
def test_errors_are_those_that_are_told(fit: Fit) -> None:
    generation = best(fit)
    told = {number_format: errors for (name, number_format), errors in PERCENT.items() if name == fit.name}
    assert told.keys() == generation.formats.keys()
    for number_format, errors in told.items():
        own: list[Any] = [one for one in COLUMNS[fit.name] if one.format == number_format]
        found = (
            mape_fraction(own, generation),
            left_out_mape_fraction(fit, ROWS, GPUS, number_format),
            mape_fraction(own, generation, 0),
        )
        assert [100 * error for error in found] == pytest.approx(errors, abs=0.1), number_format


@pytest.mark.parametrize(
    ("fit", "layouts", "percent"),
    [
        pytest.param(FITS[1], ("TN", "NN"), 2.8, id="A100, forward and gradients of inputs"),
        pytest.param(FITS[1], ("NT",), 5.8, id="A100, gradients of weights"),
        pytest.param(SECOND_B200, ("TN", "NN"), 10.9, id="B200, forward and gradients of inputs"),
        pytest.param(SECOND_B200, ("NT",), 10.1, id="B200, gradients of weights"),
    ],
)
def test_products_of_experts_are_predicted_without_a_part_in_the_fit(
    fit: Fit, layouts: tuple[str, ...], percent: float
) -> None:
    experts = [row for row in ROWS if row.copies > 1 and row.gpu in fit.gpus and row.layout in layouts]
    assert len(experts) >= 4
    generation = best(fit)
    assert 100 * mape_fraction(columns_of(experts, GPUS), generation, 0) == pytest.approx(percent, abs=0.1)


HALF_PERCENT: dict[tuple[str, str], tuple[float, float]] = {
    ("aiconfigurator", "a100-sxm4-80gb"): (12.2, 4.3),
    ("aiconfigurator", "b200-sxm-180gb"): (7.5, 7.4),
    ("aiconfigurator", "b300-sxm-288gb"): (7.1, 8.6),
    ("aiconfigurator", "gb200-186gb"): (10.7, 8.5),
    ("aiconfigurator", "gb300-279gb"): (5.5, 5.1),
    ("aiconfigurator", "h100-sxm5-80gb"): (7.8, 4.5),
    ("aiconfigurator", "h200-sxm5-141gb"): (7.5, 4.9),
    ("aiconfigurator", "l40s"): (19.6, 7.5),
    ("aiconfigurator", "rtx-pro-6000-blackwell-server"): (13.6, 3.8),
    ("simumax", "a100-pcie-80gb"): (5.4, 4.8),
    ("simumax", "b200-sxm-180gb"): (32.6, 12.0),
}
"""Mean absolute error of bf16 products in percent: by the median of all generations, by constants of the other half.
Those of one GPU are no better: a calibration of it would be refused promotion."""


@pytest.mark.parametrize(("source", "slug"), HALF_PERCENT)
def test_errors_of_the_half_that_was_not_seen(source: str, slug: str) -> None:
    gpu = replace(shipped_catalogue().gpus[slug].gpu, slug="new", architecture="new")
    own = [one for one in measured_products() if (one.source_key, one.gpu, one.format) == (source, slug, "bf16")]
    observed = [_observed_product(one, number) for number, one in enumerate(own)]
    first, second = observed[::2], observed[1::2]
    before = fmean(_error_percent(gpu, rows) for rows in (first, second))
    after = fmean(
        _error_percent(calibrated(gpu, fitted_device(seen, gpu, "half")), unseen)
        for seen, unseen in ((first, second), (second, first))
    )
    assert (before, after) == pytest.approx(HALF_PERCENT[source, slug], abs=0.06)


def test_the_errors_fall() -> None:
    fall = [before - after for before, after in HALF_PERCENT.values()]
    assert sum(one > 0 for one in fall) == len(fall) - 1
    assert fmean(fall) > 5


def _observed_product(one: MeasuredProduct, number: int) -> Observed:
    shape = {"rows": one.rows, "columns": one.columns, "inner": one.inner, "copies": one.copies, "dtype": one.format}
    measured = Measurement(
        operation="forward",
        shape=shape,
        quantity="seconds",
        value=one.product_seconds,
        low=one.product_seconds,
        high=one.product_seconds,
        repeats=1,
    )
    environment = Environment(kind="cuda", device="new", devices=1, memory_bytes=8e10)
    return Observed(id=str(number), run=one.source_key, probe="gemm", measurement=measured, environment=environment)


def _error_percent(gpu: Gpu, rows: Sequence[Observed]) -> float:
    return 100 * fmean(abs((predicted_value(one, gpu) or 0.0) / one.measurement.value - 1) for one in rows)


ATTENTION_ROWS = measured_attention()
FITTED = [row for row in ATTENTION_ROWS if is_fitted(row)]
FUSED = [row for row in ATTENTION_ROWS if row.kernel != "eager"]
SHARES = fitted_shares(FITTED, GPUS)
KERNELS: tuple[FusedName, ...] = tuple(
    name for name in get_args(FusedName) if any(row.kernel == name for row in ATTENTION_ROWS)
)


def _mape_percent(rows: Sequence[MeasuredAttention]) -> float:
    return 100 * fmean(abs(float(np.expm1(residual_fraction(row, GPUS)))) for row in rows)


def test_every_measurement_is_of_a_known_gpu_and_source() -> None:
    assert len(ATTENTION_ROWS) > 500
    assert {row.gpu for row in ATTENTION_ROWS} <= GPUS.keys()
    assert {row.source_key for row in ATTENTION_ROWS} == ATTENTION_SOURCES.keys()


@pytest.mark.parametrize("kernel", KERNELS)
def test_shares_of_the_estimator_are_the_best_fit(kernel: FusedName) -> None:
    generations = {name[1] for name in SHARES if name[0] == kernel and not name[-1].isdigit()}
    assert generations
    for generation in generations:
        kept = KERNEL_SHARES[kernel][generation]
        found = [SHARES[kernel, generation, direction] for direction in ("forward", "backward")]
        assert [kept.forward_fraction, kept.backward_fraction] == pytest.approx(found, abs=0.0015), generation


@pytest.mark.parametrize("kernel", KERNELS)
def test_widths_of_the_estimator_are_the_best_fit(kernel: FusedName) -> None:
    for index, direction in enumerate(("forward", "backward")):
        for width, both in HEAD_WIDTHS[kernel].items():
            found = SHARES.get((kernel, direction, str(width)))
            if found is not None:
                assert both[index] == pytest.approx(found, abs=0.0015), (direction, width)


def test_what_nobody_measured_is_taken_from_the_nearest() -> None:
    others = [HEAD_WIDTHS[kernel][UNEQUAL_WIDTH][1] for kernel in ("flash-2", "cudnn")]
    assert HEAD_WIDTHS["flash-3"][UNEQUAL_WIDTH][1] == pytest.approx(fmean(others), abs=0.002)
    for kernel in KERNELS:
        assert (kernel, "backward", "256") not in SHARES
        assert HEAD_WIDTHS[kernel][256][1] == HEAD_WIDTHS[kernel][UNEQUAL_WIDTH][1]


@pytest.mark.parametrize(
    ("rows", "percent"),
    [
        pytest.param([row for row in FITTED if row.kernel == kernel and row.gpu.startswith(chip)], percent, id=name)
        for name, kernel, chip, percent in (
            ("flash-2, A100", "flash-2", "a100", 5.2),
            ("flash-2, H100", "flash-2", "h100", 4.1),
            ("flash-2, B200", "flash-2", "b200", 3.3),
            ("flash-3, H100", "flash-3", "h100", 7.3),
            ("FlashAttention-4, B200", "flash-4", "b200", 8.7),
            ("cudnn, H100", "cudnn", "h100", 5.5),
            ("cudnn, H200", "cudnn", "h200", 5.6),
            ("cudnn, B200", "cudnn", "b200", 15.8),
            ("cudnn, GB200", "cudnn", "gb200", 10.1),
            ("cudnn, GB300", "cudnn", "gb300", 4.7),
        )
    ],
)
def test_attention_errors_are_those_stated(rows: Sequence[MeasuredAttention], percent: float) -> None:
    assert _mape_percent(rows) == pytest.approx(percent, abs=0.1)


@pytest.mark.parametrize(("chip", "percent"), [("a100", 6.1), ("h100", 5.3)])
def test_rows_that_had_no_part_in_the_fit_are_predicted(chip: str, percent: float) -> None:
    both = [row for row in FUSED if row.direction == "both" and row.gpu.startswith(chip)]
    causal = [row for row in both if row.causal and row.sequence_tokens >= 1024]
    assert len(causal) == 10
    assert _mape_percent(causal) == pytest.approx(percent, abs=0.1)


def test_a_window_is_predicted_by_the_keys_it_shows() -> None:
    windows = [row for row in FUSED if row.window == 1024 and row.gpu.startswith("h200")]
    assert len(windows) == 10
    assert _mape_percent(windows) < 7


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("FORWARD_KEYS", (100.0, 175.0, 400.0)),
        ("BACKWARD_KEYS", (250.0, 800.0)),
        ("FORWARD_TILES", (1.0, 2.0, 5.0)),
        ("BACKWARD_TILES", (0.2, 2.0)),
    ],
)
def test_what_all_kernels_share_fits_better_than_other_values(
    monkeypatch: pytest.MonkeyPatch, name: str, others: tuple[float, ...]
) -> None:
    kept = unexplained_fraction(FITTED, GPUS)
    for other in others:
        monkeypatch.setattr(rates, name, other)
        assert unexplained_fraction(FITTED, GPUS) > kept, other
