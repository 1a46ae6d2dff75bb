"""Published matrix products, and the constants of the estimator that fit them best.

The constants of `estimator/time/rates.py` and `rates.json` have the smallest mean of sqrt(r^2 + 0.02^2), with
r = ln(predicted / measured): large errors weigh by their size, so no single outlier pulls. Products of at least 1,024
rows, as training has them, count in full, smaller ones a quarter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from service.calibration.device_fit import NOISE, least
from service.calibration.tables import shipped_records, shipped_toml
from service.estimator.question import Gpu
from service.estimator.software.precision import Format
from service.estimator.time.rates import (
    FormatRate,
    GenerationRates,
    matrix_product_seconds,
    quantise_seconds,
    rates_under,
)

PRODUCT_SOURCES: Mapping[str, str] = shipped_toml("sources")["products"]
"""Sources by the key of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProduct:
    """One measured matrix product."""

    source_key: str
    gpu: str
    format: Format
    layout: str
    """Transposed operands: TN forward, NN gradient of the input, NT gradient of the weight."""
    adds: bool
    """Whether it adds to an fp32 result."""
    copies: int
    """Products of that shape that were timed together: those of experts."""
    rows: int
    columns: int
    inner: int
    """Length of the summed dimension."""
    product_seconds: float


@cache
def measured_products() -> tuple[MeasuredProduct, ...]:
    """The measured products that the package ships."""
    return shipped_records(MeasuredProduct, "matrix_products", product_seconds=("microseconds", 1e-6))


Gpus = Mapping[str, Gpu]

TRAINING_ROWS = 1024
"""Fewest rows of a product that counts in full."""

SMALL_WEIGHT = 0.25

BOUNDS = {
    "peak_fraction": (0.2, 1.0, 1e-3),
    "quantise_bytes": (0.0, 12.0, 0.1),
    "quantise_launch_seconds": (0.0, 15e-6, 1e-7),
}
"""Bounds of each constant, and the step in which it is written."""

START = FormatRate(peak_fraction=0.7)

FITTED_CONSTANTS: Mapping[Format, tuple[str, ...]] = {
    "bf16": ("peak_fraction",),
    "int8": ("peak_fraction",),
    "fp8": tuple(BOUNDS),
    "fp4": tuple(BOUNDS),
}
"""Constants that the rows of a format determine: those of quantising too, where the measured kernels quantise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Measurements that are fitted together."""

    name: str
    """Its key in MATRIX_RATES, or its name in a report."""
    gpus: tuple[str, ...]
    source_key: str
    """Source of its rows."""
    processors: int
    """Processors of those GPUs."""


*FITS, SECOND_B200 = shipped_records(Fit, "fits")
"""Fits of the estimator's constants, and a B200 that ran a quarter slower than all others: it tests the shape of the
formula, and gives no constant."""


def rows_of(fit: Fit, products: Sequence[MeasuredProduct]) -> list[MeasuredProduct]:
    """The rows of a fit: single products."""
    return [row for row in products if row.gpu in fit.gpus and row.source_key == fit.source_key and row.copies == 1]


@dataclass(frozen=True, slots=True)
class Columns:
    """Measured products of one GPU and format, as columns."""

    gpu: Gpu
    format: Format
    adds: bool
    copies: NDArray[np.float64]
    rows: NDArray[np.float64]
    columns: NDArray[np.float64]
    inner: NDArray[np.float64]
    seconds: NDArray[np.float64]


def columns_of(rows: Sequence[MeasuredProduct], gpus: Gpus) -> list[Columns]:
    """Measured products as columns, those of one GPU and format together."""
    kinds: dict[tuple[str, Format, bool], list[MeasuredProduct]] = {}
    for row in rows:
        kinds.setdefault((row.gpu, row.format, row.adds), []).append(row)
    names = ("copies", "rows", "columns", "inner", "product_seconds")
    return [
        Columns(
            gpus[gpu], number_format, adds, *np.array([[float(getattr(row, name)) for row in own] for name in names])
        )
        for (gpu, number_format, adds), own in kinds.items()
    ]


def residuals(measured: Columns, generation: GenerationRates) -> NDArray[np.float64]:
    """Residuals of predictions: ln(predicted / measured) of each product."""
    rates = rates_under(generation, measured.gpu, measured.format, adds=measured.adds)
    sizes = (measured.rows, measured.columns, measured.inner)
    seconds = matrix_product_seconds(*sizes, rates, measured.copies, launches=measured.copies)
    if rates.quantise_bytes or rates.quantise_launch_seconds:
        seconds = seconds + quantise_seconds(measured.rows * measured.inner, rates)
    result: NDArray[np.float64] = np.log(seconds / measured.seconds)
    return result


def loss_fraction(
    measured: Sequence[Columns], generation: GenerationRates, weights: NDArray[np.float64] | None = None
) -> float:
    """The loss of a fit: the weighted mean of sqrt(r^2 + NOISE^2)."""
    sizes = np.concatenate([np.hypot(residuals(one, generation), NOISE) for one in measured])
    return float(sizes @ (_weights(measured) if weights is None else weights))


def _weights(measured: Sequence[Columns]) -> NDArray[np.float64]:
    """Weight of each product; the sum of all is one."""
    weights = np.concatenate([np.where(one.rows >= TRAINING_ROWS, 1.0, SMALL_WEIGHT) for one in measured])
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def mape_fraction(measured: Sequence[Columns], generation: GenerationRates, least_rows: int = TRAINING_ROWS) -> float:
    """Mean absolute relative error over products of at least some rows."""
    off = [np.abs(np.expm1(residuals(one, generation)))[one.rows >= least_rows] for one in measured]
    return float(np.mean(np.concatenate(off)))


def fitted(measured: Sequence[Columns], processors: int, source: str) -> GenerationRates:
    """The best constants of one generation, each in the steps that constants are written in."""
    result = GenerationRates(processors=processors, formats={}, source=source)
    for number_format in FITTED_CONSTANTS:
        own = [one for one in measured if one.format == number_format]
        if own:
            result = _with(result, number_format, _best(own, result, number_format))
    return result


def left_out_mape_fraction(
    fit: Fit, products: Sequence[MeasuredProduct], gpus: Gpus, number_format: Format, least_rows: int = TRAINING_ROWS
) -> float:
    """Mean absolute error of each family (the products of one weight) by constants fitted without it."""
    own = [row for row in rows_of(fit, products) if row.format == number_format]
    off = []
    for family in sorted({(row.columns, row.inner) for row in own}):
        rest = [row for row in own if (row.columns, row.inner) != family]
        generation = fitted(columns_of(rest, gpus), fit.processors, fit.source_key)
        scored = [row for row in own if (row.columns, row.inner) == family and row.rows >= least_rows]
        off += [np.abs(np.expm1(residuals(one, generation))) for one in columns_of(scored, gpus)]
    return float(np.mean(np.concatenate(off)))


def _best(own: Sequence[Columns], start: GenerationRates, number_format: Format) -> dict[str, float]:
    names, weights = FITTED_CONSTANTS[number_format], _weights(own)
    best = least(
        lambda values: loss_fraction(own, _with(start, number_format, values), weights),
        {name: float(getattr(START, name)) for name in names},
        {name: BOUNDS[name][:2] for name in names},
    )
    return {name: round(round(value / BOUNDS[name][2]) * BOUNDS[name][2], 9) for name, value in best.items()}


def _with(generation: GenerationRates, number_format: Format, values: Mapping[str, float]) -> GenerationRates:
    return replace(generation, formats={**generation.formats, number_format: replace(START, **values)})
