"""Which rates of matrix products fit what was measured of one device? Two constants a number format, three at most.

The rate of full tiles and the fixed cost of a product are always fitted, memory traffic where enough products were
measured that wait for it. The best constants have the smallest mean of sqrt(r^2 + NOISE^2), r = ln(predicted /
measured): large errors weigh by their size, so no outlier pulls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.calibration.descent import Values, least
from service.calibration.observed import Observed
from service.calibration.predicted import format_named
from service.estimator.constants import LAUNCH_SECONDS, MatrixCalibration
from service.estimator.question import Gpu
from service.estimator.software.precision import Format, peak_flop_per_s
from service.estimator.time.matrix_products import ProductRates, generation_rates, matrix_product_seconds, rates_under

NOISE = 0.02
"""Residuals below this count as noise of the measurement."""

LEAST_SHARE = 1e-4
"""Share of the peak that products are taken to reach at least: processors emulate formats that they do not have."""

MOST_TRAFFIC = 4.0
"""Times the memory's rate that the traffic of products may seem to have: caches answer a part of it."""

LEAST_PRODUCTS = 3
"""Shapes of which a second constant may be read."""

LEAST_LAUNCH_SECONDS = 1e-7
"""A product costs no less than this to start."""


REMEMBERED = 256
"""Fits kept in memory: scoring a calibration repeats the fit of all its products and of those without each source."""


class Product(NamedTuple):
    """One measured product."""

    rows: float
    columns: float
    inner: float
    copies: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Measured products, as columns."""

    rows: NDArray[np.float64]
    columns: NDArray[np.float64]
    inner: NDArray[np.float64]
    copies: NDArray[np.float64]
    seconds: NDArray[np.float64]


def fitted_products(observed: Sequence[Observed], gpu: Gpu) -> tuple[MatrixCalibration, ...]:
    """Rates of matrix products that fit what was measured of one device.

    Args:
        observed: its measurements; those of other things are passed over
        gpu: the device; what was measured of its memory stands in its calibration

    Returns:
        the rates of each format that was measured and that the device has
    """
    return tuple(_fitted(number_format, own, gpu) for number_format, own in _products_in(observed, gpu))


def _products_in(observed: Sequence[Observed], gpu: Gpu) -> list[tuple[Format, tuple[Product, ...]]]:
    """Measured products by format, those that the device has a peak for."""
    kinds: dict[Format, list[Product]] = {}
    for one in observed:
        number_format = format_named(one.measurement.shape.get("dtype")) if one.probe == "gemm" else None
        if number_format is not None and peak_flop_per_s(gpu, number_format) is not None:
            kinds.setdefault(number_format, []).append(_product(one))
    return [(number_format, tuple(own)) for number_format, own in sorted(kinds.items())]


def _product(one: Observed) -> Product:
    shape = {"copies": 1, **one.measurement.shape}
    rows, columns, inner, copies = (float(shape[name]) for name in ("rows", "columns", "inner", "copies"))
    return Product(rows, columns, inner, copies, one.measurement.value)


@lru_cache(maxsize=REMEMBERED)
def _fitted(number_format: Format, measured: tuple[Product, ...], gpu: Gpu) -> MatrixCalibration:
    """The best constants of one format: one, then two, then three where products tell that many."""
    products = Products(**dict(zip(Product._fields, np.array(measured).T.copy(), strict=True)))
    known, peak = generation_rates(gpu), peak_flop_per_s(gpu, number_format) or 1.0
    start = {"rate": log(peak / 2), "launch": log(LAUNCH_SECONDS)}
    bounds = {"rate": (log(peak * LEAST_SHARE), log(peak * known.most_peak_fraction))}
    if len(products.seconds) >= LEAST_PRODUCTS:
        shortest = max(float(products.seconds.min()), 2 * LEAST_LAUNCH_SECONDS)
        bounds["launch"] = (log(LEAST_LAUNCH_SECONDS), log(shortest))
        start["launch"] = min(start["launch"], log(shortest))
    base = rates_under(known, gpu, number_format)
    found = least(lambda values: _loss(products, _rates(base, values)), start, bounds)
    if _waiting(products, _rates(base, found)) >= LEAST_PRODUCTS:
        traffic = log(gpu.memory_bytes_per_s)
        bounds["traffic"] = (traffic + log(LEAST_SHARE), traffic + log(MOST_TRAFFIC))
        found = least(lambda values: _loss(products, _rates(base, values)), {**found, "traffic": traffic}, bounds)
    return _told(number_format, found)


def _told(number_format: Format, values: Values) -> MatrixCalibration:
    return MatrixCalibration(
        format=number_format,
        flop_per_s=_rounded(exp(values["rate"])),
        bytes_per_s=_rounded(exp(values["traffic"])) if "traffic" in values else None,
        launch_seconds=_rounded(exp(values["launch"])),
    )


def _rounded(value: float) -> float:
    """Four digits: no measurement tells more."""
    return float(f"{value:.4g}")


def _rates(base: ProductRates, values: Values) -> ProductRates:
    """Rates of the device with tried constants in the place of its own."""
    traffic = exp(values["traffic"]) if "traffic" in values else base.bytes_per_s
    return replace(base, flop_per_s=exp(values["rate"]), launch_seconds=exp(values["launch"]), bytes_per_s=traffic)


def _loss(products: Products, rates: ProductRates) -> float:
    """The mean of sqrt(r^2 + NOISE^2)."""
    sides = (products.rows, products.columns, products.inner)
    seconds = matrix_product_seconds(*sides, rates, products.copies)
    return float(np.mean(np.hypot(np.log(seconds / products.seconds), NOISE)))


def _waiting(products: Products, rates: ProductRates) -> int:
    """Products whose operands take longer to bring than to compute with."""
    flop = 2 * products.rows * products.columns * products.inner
    brought = rates.operand_bytes * products.inner * (products.rows + products.columns)
    moved = brought + rates.result_bytes * products.rows * products.columns
    return int(np.sum(moved / rates.bytes_per_s > flop / rates.flop_per_s))
