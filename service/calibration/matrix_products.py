"""Which constants make the time of a matrix product fit what was measured, and how well do they hold elsewhere?

The constants of `estimator/matrix_rates.py` are the optimum that `fitted` finds over the shipped measurements; what is
fitted is the estimator's own formula, on columns. The best constants have the smallest mean of sqrt(r^2 + 0.02^2), with
r = ln(predicted / measured): large errors weigh by their size, so no single outlier pulls. Products of at least 1,024
rows, as training has them, count in full, smaller ones a quarter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from service.calibration.measured_products import MeasuredProduct
from service.estimator.question import Gpu
from service.estimator.software.precision import Format
from service.estimator.time.matrix_products import (
    FormatRate,
    GenerationRates,
    matrix_product_seconds,
    quantise_seconds,
    rates_under,
)

Gpus = Mapping[str, Gpu]
"""GPUs by slug."""

TRAINING_ROWS = 1024
"""Fewest rows of a product that counts in full."""

SMALL_WEIGHT = 0.25
"""Weight of smaller ones."""

NOISE = 0.02
"""Residuals below this count as noise of the measurement."""

BOUNDS = {
    "peak_fraction": (0.2, 1.0, 1e-3),
    "quantise_bytes": (0.0, 12.0, 0.1),
    "quantise_launch_seconds": (0.0, 15e-6, 1e-7),
}
"""What each constant may be, and the step that it is written in."""

START = FormatRate(peak_fraction=0.7)
"""Where the search starts."""

SMALLEST_SHARE = 2e-4
"""Steps of the search end at this share of what a constant may be."""

SMALLEST_GAIN = 1e-9
"""A step that gains less is none."""

TOLD: Mapping[Format, tuple[str, ...]] = {
    "bf16": ("peak_fraction",),
    "int8": ("peak_fraction",),
    "fp8": tuple(BOUNDS),
    "fp4": tuple(BOUNDS),
}
"""What the rows of a format tell: where the measured kernels quantise their input, what that costs too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What is fitted together, and what it stands for."""

    name: str
    """The key of MATRIX_RATES that it gives, or what a report calls it."""
    gpus: tuple[str, ...]
    """GPUs whose rows are read."""
    source_key: str
    """Whose rows are read."""
    processors: int
    """Processors of those GPUs."""


FITS = (
    Fit(name="Ampere", gpus=("a100-sxm4-80gb",), source_key="aiconfigurator", processors=108),
    Fit(name="a100-pcie-80gb", gpus=("a100-pcie-80gb",), source_key="simumax", processors=108),
    Fit(name="Ada", gpus=("l40s",), source_key="aiconfigurator", processors=142),
    Fit(name="Hopper", gpus=("h100-sxm5-80gb", "h200-sxm5-141gb"), source_key="aiconfigurator", processors=132),
    Fit(name="Blackwell", gpus=("b200-sxm-180gb",), source_key="aiconfigurator", processors=148),
    Fit(name="Blackwell (Grace)", gpus=("gb200-186gb",), source_key="aiconfigurator", processors=148),
    Fit(name="Blackwell Ultra", gpus=("b300-sxm-288gb",), source_key="aiconfigurator", processors=148),
    Fit(name="Blackwell Ultra (Grace)", gpus=("gb300-279gb",), source_key="aiconfigurator", processors=148),
    Fit(
        name="rtx-pro-6000-blackwell-server", gpus=("rtx-pro-6000-blackwell-server",), source_key="aiconfigurator",
        processors=188,
    ),
)  # fmt: skip
"""The fits that give the estimator its constants."""

SECOND_B200 = Fit(name="b200, simumax", gpus=("b200-sxm-180gb",), source_key="simumax", processors=148)
"""A B200 that ran a quarter slower than all others': it judges the shape of the formula, and gives no constant."""


def rows_of(fit: Fit, products: Sequence[MeasuredProduct]) -> list[MeasuredProduct]:
    """The rows that a fit reads: single products.

    Args:
        fit: the fit
        products: all rows

    Returns:
        those of its GPUs from its source
    """
    return [row for row in products if row.gpu in fit.gpus and row.source_key == fit.source_key and row.copies == 1]


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Measured products as columns, those of one GPU and format together.

    Args:
        rows: the products
        gpus: the GPUs by slug

    Returns:
        the columns
    """
    kinds: dict[tuple[str, Format, bool], list[MeasuredProduct]] = {}
    for row in rows:
        kinds.setdefault((row.gpu, row.format, row.adds), []).append(row)
    return [
        Columns(
            gpu=gpus[gpu],
            format=number_format,
            adds=adds,
            copies=np.array([row.copies for row in own], dtype=np.float64),
            rows=np.array([row.rows for row in own], dtype=np.float64),
            columns=np.array([row.columns for row in own], dtype=np.float64),
            inner=np.array([row.inner for row in own], dtype=np.float64),
            seconds=np.array([row.product_seconds for row in own]),
        )
        for (gpu, number_format, adds), own in kinds.items()
    ]


def residuals(measured: Columns, generation: GenerationRates) -> NDArray[np.float64]:
    """How far predictions are off: ln(predicted / measured) of each product.

    Args:
        measured: measured products
        generation: constants to predict them with

    Returns:
        a column, in the order of the products
    """
    rates = rates_under(generation, measured.gpu, measured.format, adds=measured.adds)
    sizes = (measured.rows, measured.columns, measured.inner)
    seconds = matrix_product_seconds(*sizes, rates, measured.copies, launches=measured.copies)
    if rates.quantise_bytes or rates.quantise_launch_seconds:
        seconds = seconds + quantise_seconds(measured.rows * measured.inner, rates)
    found: NDArray[np.float64] = np.log(seconds / measured.seconds)
    return found


def loss_fraction(measured: Sequence[Columns], generation: GenerationRates) -> float:
    """What a fit makes small: the weighted mean of sqrt(r^2 + NOISE^2).

    Args:
        measured: measured products
        generation: constants to predict them with

    Returns:
        the mean
    """
    return _weighted_loss_fraction(measured, generation, _weights(measured))


def _weights(measured: Sequence[Columns]) -> NDArray[np.float64]:
    """Weight of each product; the sum of all is one."""
    weights = np.concatenate([np.where(one.rows >= TRAINING_ROWS, 1.0, SMALL_WEIGHT) for one in measured])
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _weighted_loss_fraction(
    measured: Sequence[Columns], generation: GenerationRates, weights: NDArray[np.float64]
) -> float:
    sizes = np.concatenate([np.hypot(residuals(one, generation), NOISE) for one in measured])
    return float(sizes @ weights)


def mape_fraction(measured: Sequence[Columns], generation: GenerationRates, least_rows: int = TRAINING_ROWS) -> float:
    """Mean absolute error over products of some rows and more, as a share of what was measured.

    Args:
        measured: measured products
        generation: constants to predict them with
        least_rows: fewest rows of a product that is counted

    Returns:
        the error; nan where no product is counted
    """
    off = [np.abs(np.expm1(residuals(one, generation)))[one.rows >= least_rows] for one in measured]
    return float(np.mean(np.concatenate(off)))


def fitted(measured: Sequence[Columns], processors: int, source: str) -> GenerationRates:
    """The best constants of one generation, each in the steps that constants are written in.

    Args:
        measured: its measured products
        processors: processors of its GPUs
        source: who measured

    Returns:
        the constants of the formats that were measured
    """
    found = GenerationRates(processors=processors, formats={}, source=source)
    for number_format in TOLD:
        own = [one for one in measured if one.format == number_format]
        if own:
            found = _with(found, number_format, _best(own, found, number_format))
    return found


def left_out_mape_fraction(
    fit: Fit, products: Sequence[MeasuredProduct], gpus: Gpus, number_format: Format, least_rows: int = TRAINING_ROWS
) -> float:
    """Mean absolute error where every family of shapes is predicted by constants that never saw it.

    A family is all products of one weight: those of the same columns and inner numbers.

    Args:
        fit: what is fitted together
        products: all measured products
        gpus: the GPUs by slug
        number_format: format of the products that are judged
        least_rows: fewest rows of a product that is counted

    Returns:
        the error
    """
    own = [row for row in rows_of(fit, products) if row.format == number_format]
    off = []
    for family in sorted({(row.columns, row.inner) for row in own}):
        rest = [row for row in own if (row.columns, row.inner) != family]
        generation = fitted(columns_of(rest, gpus), fit.processors, fit.source_key)
        judged = [row for row in own if (row.columns, row.inner) == family and row.rows >= least_rows]
        off += [np.abs(np.expm1(residuals(one, generation))) for one in columns_of(judged, gpus)]
    return float(np.mean(np.concatenate(off)))


def _best(own: Sequence[Columns], start: GenerationRates, number_format: Format) -> dict[str, float]:
    """The constants of one format with the least loss: one at a time, up and down, in ever smaller steps."""
    values = {name: float(getattr(START, name)) for name in TOLD[number_format]}
    weights, share = _weights(own), 0.25
    least = _weighted_loss_fraction(own, _with(start, number_format, values), weights)
    while share > SMALLEST_SHARE:
        moved = False
        for name, direction in product(values, (1, -1)):
            low, high, _ = BOUNDS[name]
            tried = {**values, name: min(max(values[name] + direction * share * (high - low), low), high)}
            reached = _weighted_loss_fraction(own, _with(start, number_format, tried), weights)
            if reached < least - SMALLEST_GAIN:
                values, least, moved = tried, reached, True
        if not moved:
            share /= 2
    return {name: round(round(value / BOUNDS[name][2]) * BOUNDS[name][2], 9) for name, value in values.items()}


def _with(generation: GenerationRates, number_format: Format, values: Mapping[str, float]) -> GenerationRates:
    """A generation with the constants of a format put in."""
    return replace(generation, formats={**generation.formats, number_format: replace(START, **values)})
