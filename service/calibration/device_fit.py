"""Fit of one device: rates of matrix products, scales of links and memory bandwidth, each within physical bounds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import exp, log
from statistics import fmean, median
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from service.calibration.observations import MOVED, Observed, format_named, fused_kernel_named, predicted_value
from service.estimator.constants import (
    LAUNCH_SECONDS,
    AttentionCalibration,
    CurveName,
    DeviceCalibration,
    LinkCalibration,
    MatrixCalibration,
    MeasuredBytes,
    StepCalibration,
    calibrated,
    calibration_of,
)
from service.estimator.question import Documented, Gpu
from service.estimator.software.precision import Format, peak_flop_per_s
from service.estimator.time.collectives import SWITCHED_GPUS, Curve, link_of
from service.estimator.time.rates import (
    MOST_FRACTION,
    FusedName,
    ProductRates,
    attention_rate,
    generation_rates,
    matrix_product_seconds,
    rates_under,
)

Values = Mapping[str, float]

Bounds = Mapping[str, tuple[float, float]]

LARGEST_SHARE = 0.25
"""First step of the search, as a fraction of a constant's bounds."""
SMALLEST_SHARE = 2e-4
"""Its last step."""
SMALLEST_GAIN = 1e-9


def least(loss: Callable[[Values], float], start: Values, bounds: Bounds) -> dict[str, float]:
    """The constants with the least loss, found by steps of at most three of them.

    >>> best = least(lambda at: abs(at["x"] + at["y"] - 1) + abs(at["x"] - 0.3), {"x": 0.9, "y": 0.9},
    ...               {"x": (0.0, 1.0), "y": (0.0, 1.0)})
    >>> round(best["x"], 2), round(best["y"], 2)
    (0.3, 0.7)
    """
    values, share = dict(start), LARGEST_SHARE
    reached = loss(values)
    ways = [way for way in product((0, 1, -1), repeat=len(bounds)) if any(way)]
    while share > SMALLEST_SHARE:
        before = values
        for way in ways:
            attempt = values | {
                name: min(max(values[name] + share * direction * (high - low), low), high)
                for (name, (low, high)), direction in zip(bounds.items(), way, strict=True)
            }
            result = loss(attempt)
            if result < reached - SMALLEST_GAIN:
                values, reached = attempt, result
        if values is before:
            share /= 2
            continue
        # as far again, so that a valley is followed in ever longer steps (Hooke and Jeeves 1961)
        further = values | {
            name: min(max(2 * values[name] - before[name], low), high) for name, (low, high) in bounds.items()
        }
        result = loss(further)
        if result < reached - SMALLEST_GAIN:
            values, reached = further, result
    return values


NOISE = 0.02
"""Residuals below this count as noise of the measurement."""
LEAST_SHARE = 1e-4
"""Lowest share of the peak that products reach: processors emulate formats that they lack."""
MOST_TRAFFIC = 4.0
"""Highest apparent traffic of products over the memory's rate: caches serve a part of it."""
LEAST_PRODUCTS = 3
"""Fewest shapes for a second constant."""
LEAST_LAUNCH_SECONDS = 1e-7
"""Lower bound of the start of a product."""


REMEMBERED = 256
"""Fits in the cache: scoring a calibration repeats the fit of all its products and of those without each source."""


class Products(NamedTuple):
    """Measured products, as columns."""

    rows: NDArray[np.float64]
    columns: NDArray[np.float64]
    inner: NDArray[np.float64]
    copies: NDArray[np.float64]
    seconds: NDArray[np.float64]


Product = tuple[float, ...]
"""Rows, columns, inner numbers, copies and seconds of one measured product."""


def _products_in(observed: Sequence[Observed], gpu: Gpu) -> list[tuple[Format, tuple[Product, ...]]]:
    kinds: dict[Format, list[Product]] = {}
    for one in observed:
        number_format = format_named(one.measurement.shape.get("dtype")) if one.probe == "gemm" else None
        if number_format is not None and peak_flop_per_s(gpu, number_format) is not None:
            shape = {"copies": 1, **one.measurement.shape}
            sizes = (float(shape[name]) for name in Products._fields[:-1])
            kinds.setdefault(number_format, []).append((*sizes, one.measurement.value))
    return [(number_format, tuple(own)) for number_format, own in sorted(kinds.items())]


@lru_cache(maxsize=REMEMBERED)
def _fitted_format(number_format: Format, measured: tuple[Product, ...], gpu: Gpu) -> MatrixCalibration:
    """The best constants of one format: one, then two, then three where the products determine that many."""
    products = Products(*np.array(measured).T.copy())
    known, peak = generation_rates(gpu), peak_flop_per_s(gpu, number_format) or 1.0
    start = {"rate": log(peak / 2), "launch": log(LAUNCH_SECONDS)}
    bounds = {"rate": (log(peak * LEAST_SHARE), log(peak * known.most_peak_fraction))}
    if len(products.seconds) >= LEAST_PRODUCTS:
        shortest = max(float(products.seconds.min()), 2 * LEAST_LAUNCH_SECONDS)
        bounds["launch"] = (log(LEAST_LAUNCH_SECONDS), log(shortest))
        start["launch"] = min(start["launch"], log(shortest))
    base = rates_under(known, gpu, number_format)
    result = least(lambda values: _product_loss(products, _rates(base, values)), start, bounds)
    rates = _rates(base, result)
    flop = 2 * products.rows * products.columns * products.inner
    brought = rates.operand_bytes * products.inner * (products.rows + products.columns)
    moved = brought + rates.result_bytes * products.rows * products.columns
    waits_for_memory = moved / rates.bytes_per_s > flop / rates.flop_per_s
    if int(np.sum(waits_for_memory)) >= LEAST_PRODUCTS:
        traffic = log(gpu.memory_bytes_per_s)
        bounds["traffic"] = (traffic + log(LEAST_SHARE), traffic + log(MOST_TRAFFIC))
        result = least(
            lambda values: _product_loss(products, _rates(base, values)), {**result, "traffic": traffic}, bounds
        )
    return MatrixCalibration(
        format=number_format,
        flop_per_s=_rounded(exp(result["rate"])),
        bytes_per_s=_rounded(exp(result["traffic"])) if "traffic" in result else None,
        launch_seconds=_rounded(exp(result["launch"])),
    )


def _rounded(value: float) -> float:
    """A value with four digits: no measurement has more."""
    return float(f"{value:.4g}")


def _rates(base: ProductRates, values: Values) -> ProductRates:
    traffic = exp(values["traffic"]) if "traffic" in values else base.bytes_per_s
    return replace(base, flop_per_s=exp(values["rate"]), launch_seconds=exp(values["launch"]), bytes_per_s=traffic)


def _product_loss(products: Products, rates: ProductRates) -> float:
    sides = (products.rows, products.columns, products.inner)
    seconds = matrix_product_seconds(*sides, rates, products.copies)
    return float(np.mean(np.hypot(np.log(seconds / products.seconds), NOISE)))


FIXED_BOUNDS = (0.05, 50.0)
"""Bounds of fixed costs over those of the curve: from a twentieth to those of libraries on the host."""

LEAST_LINK_FRACTION = 0.005
"""Lowest fraction of its curve that a link reaches."""
BANDWIDTH_BOUND_BYTES = 1 << 20
"""Least message that is bound by the bandwidth of a link. Source: SCORED_BYTES of tests.calibration.links."""


def _fitted_links(observed: Sequence[Observed], gpu: Gpu) -> tuple[LinkCalibration, ...]:
    timed = [one for one in observed if one.probe == "collective" and one.measurement.quantity == "seconds"]
    inside = [
        one
        for one in timed
        if int(one.measurement.shape.get("nodes", 1)) == 1 and one.measurement.shape.get("ranks", 1) > 1
    ]
    kinds = {name: [one for one in inside if one.measurement.operation == name] for name in get_args(CurveName)}
    kinds["all_to_all"] = kinds["all_to_all"] or [one for one in inside if one.measurement.operation == "send"]
    return tuple(_fitted_link(name, own, gpu) for name, own in kinds.items() if own)


def _fitted_link(name: CurveName, own: Sequence[Observed], gpu: Gpu) -> LinkCalibration:
    """The scales of one collective: both where small and large messages were measured, else the measured one."""
    sizes = {float(one.measurement.shape["size_bytes"]) for one in own}
    ranks = max(int(one.measurement.shape.get("ranks", 1)) for one in own)
    reaches_all = gpu.scale_up_gpus >= min(ranks, SWITCHED_GPUS)
    curve: Curve = getattr(link_of(gpu, reaches_all=reaches_all), name)
    bounds: dict[str, tuple[float, float]] = {}
    if min(sizes) < BANDWIDTH_BOUND_BYTES or len(sizes) > 1:
        bounds["fixed"] = (log(FIXED_BOUNDS[0]), log(FIXED_BOUNDS[1]))
    if max(sizes) >= BANDWIDTH_BOUND_BYTES:
        bounds["link"] = (log(LEAST_LINK_FRACTION), log(1 / curve.link_fraction))
    known = calibration_of(gpu)
    memory = None if known is None else known.memory_bytes_per_s

    def scaled(values: Values) -> LinkCalibration:
        fixed, link = (_rounded(exp(values[key])) for key in ("fixed", "link"))
        return LinkCalibration(collective=name, fixed_fraction=fixed, link_fraction=link)

    def loss_fraction(values: Values) -> float:
        attempt = calibrated(gpu, DeviceCalibration(id="tried", links=(scaled(values),), memory_bytes_per_s=memory))
        ratios = [(predicted_value(one, attempt) or one.measurement.value) / one.measurement.value for one in own]
        return fmean((log(ratio) ** 2 + NOISE**2) ** 0.5 for ratio in ratios)

    return scaled(least(loss_fraction, {"fixed": 0.0, "link": 0.0}, bounds))


StepsOn = Callable[[Sequence[Observed], Gpu], Sequence[StepCalibration]]
"""Whole steps among the measurements, each with its prediction on a GPU."""

MEMORY_BOUND_BYTES = 64 * 2**20
"""Least tensor that is bound by the memory and not by its caches. Source: L2 of 50 MB on H100."""
WIDTH = 128
"""Width of heads of the shares of peak. Source: rates.KernelShares."""


def fitted_device(
    observed: Sequence[Observed], gpu: Gpu, calibration_id: str, steps_on: StepsOn | None = None
) -> DeviceCalibration:
    """The calibration that fits the measurements of one device."""
    memory_bytes_per_s = _memory_bytes_per_s(observed)
    known = calibrated(gpu, DeviceCalibration(id=calibration_id, memory_bytes_per_s=memory_bytes_per_s))
    result = DeviceCalibration(
        id=calibration_id,
        matrix=tuple(_fitted_format(*products, known) for products in _products_in(observed, known)),
        attention=_attention(observed, known),
        links=_fitted_links(observed, known),
        memory_bytes_per_s=memory_bytes_per_s,
        context_bytes=_bytes(observed, "context"),
        communicator_bytes=_bytes(observed, "communicator"),
    )
    return result if steps_on is None else replace(result, steps=tuple(steps_on(observed, calibrated(gpu, result))))


def _memory_bytes_per_s(observed: Sequence[Observed]) -> float | None:
    """Memory traffic of large tensors; of the largest where none is large [byte/s]."""
    own = [one for one in observed if one.probe == "bandwidth" and one.measurement.operation in MOVED]
    if not own:
        return None
    largest = max(float(one.measurement.shape["size_bytes"]) for one in own)
    large = [one for one in own if one.measurement.shape["size_bytes"] >= min(MEMORY_BOUND_BYTES, largest)]
    rates = []
    for one in large:
        moved = MOVED[one.measurement.operation] * float(one.measurement.shape["size_bytes"])
        seconds = moved / one.measurement.value
        rates.append(moved / max(seconds - LAUNCH_SECONDS, seconds / 2))  # without its fixed cost, at most half of it
    return _rounded(median(rates))


def _attention(observed: Sequence[Observed], gpu: Gpu) -> tuple[AttentionCalibration, ...]:
    """Shares of peak of the measured fused kernels: those of formulas, times the median of predicted over measured."""
    results = []
    for kernel in get_args(FusedName):
        own = [
            one
            for one in observed
            if one.probe == "attention" and fused_kernel_named(one.measurement.shape.get("kernel")) == kernel
        ]
        rate = attention_rate(kernel, gpu, WIDTH, WIDTH)
        shares: dict[str, float | None] = {}
        for name, known in (("forward", rate.forward_fraction), ("backward", rate.backward_fraction)):
            measured = [one for one in own if one.measurement.operation == name]
            predictions = ((predicted_value(one, gpu), one.measurement.value) for one in measured)
            ratios = [predicted / value for predicted, value in predictions if predicted is not None]
            share = _rounded(min(known * median(ratios), MOST_FRACTION)) if ratios else None
            shares[f"{name}_fraction"] = share
        if any(share is not None for share in shares.values()):
            results.append(AttentionCalibration(kernel=kernel, **shares))
    return tuple(results)


def _bytes(observed: Sequence[Observed], operation: str) -> MeasuredBytes | None:
    """Bytes of the context or the communicators, from the least measured value to the largest [byte]."""
    own = [one.measurement for one in observed if one.probe == "context" and one.measurement.operation == operation]
    if not own:
        return None
    low, high = min(one.low for one in own), max(one.high for one in own)
    return MeasuredBytes(low=low, value=median(one.value for one in own), high=high)


LeftOut = Literal["run", "shape"]
"""Unit of a held-out part."""

MOST_FOLDS = 5

STEP: Literal["step"] = "step"
"""The probe whose predictions use all others, and its timed operation."""

SHARED = "bandwidth"
"""The probe whose constant other predictions use too: memory traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartError(Documented):
    """Errors of predictions of one probe: the mean of |predicted / measured - 1|."""

    probe: str
    """Name of the probe."""
    left_out: LeftOut
    """Unit of a held-out part: a run, or a shape."""
    measurements: int
    """Predicted measurements."""
    held_out_fraction: float
    """Error by constants that never saw their run, or their shape."""
    in_sample_fraction: float
    """Error by constants fitted on all of them."""
    before_fraction: float
    """Error by the constants before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationScore:
    """Errors of predictions of a calibration, beside those before it."""

    parts: tuple[PartError, ...]
    """Probes with a held-out part."""
    held_out_fraction: float | None
    """Mean over the probes; null without a held-out part."""
    in_sample_fraction: float | None
    """The same, with constants fitted on all measurements."""
    before_fraction: float | None
    """The same, by the constants before."""


def score_calibration(
    observed: Sequence[Observed],
    gpu: Gpu,
    before: Callable[[Observed], float | None],
    predict: Callable[[Observed, Gpu], float | None] = predicted_value,
    steps_on: StepsOn | None = None,
) -> CalibrationScore:
    """Errors of a calibration at measurements that had no part in it; steps count where `steps_on` predicts them."""
    whole = calibrated(gpu, fitted_device(observed, gpu, "whole", steps_on))
    parts = []
    for probe in sorted({one.probe for one in observed}):
        own = [one for one in observed if one.probe == probe]
        left_out: LeftOut = "run" if len({one.run for one in own}) > 1 else "shape"
        others = [one for one in observed if one.probe != probe and (probe == STEP or one.probe == SHARED)]
        errors = []
        for training, held_out in _held_out_in(own, others, left_out):
            fitted = calibrated(gpu, fitted_device(training, gpu, "kept", steps_on))
            kinds = {(one.measurement.operation, one.measurement.shape.get("dtype")) for one in training}
            for one in held_out:
                if probe == "gemm" or (one.measurement.operation, one.measurement.shape.get("dtype")) in kinds:
                    predictions = predict(one, fitted), predict(one, whole), before(one)
                    off = [abs(value / one.measurement.value - 1) for value in predictions if value is not None]
                    errors += [off] if len(off) == len(predictions) else []
        if errors:
            means = dict(zip(_ERRORS, map(fmean, zip(*errors, strict=True)), strict=True))
            parts.append(PartError(probe=probe, left_out=left_out, measurements=len(errors), **means))
    over_probes = {name: fmean(getattr(part, name) for part in parts) if parts else None for name in _ERRORS}
    return CalibrationScore(parts=tuple(parts), **over_probes)


_ERRORS = ("held_out_fraction", "in_sample_fraction", "before_fraction")


def _held_out_in(
    own: Sequence[Observed], shared: Sequence[Observed], left_out: LeftOut
) -> Iterator[tuple[list[Observed], list[Observed]]]:
    if left_out == "run":
        places: dict[object, object] = {one.run: one.run for one in own}
    else:
        families = sorted({one.family for one in own})
        folds = min(MOST_FOLDS, len(families))
        places = {family: number % folds for number, family in enumerate(families)} if folds > 1 else {}
    for place in dict.fromkeys(places.values()):
        out = [one for one in own if places[one.run if left_out == "run" else one.family] == place]
        gone = {one.id for one in out}
        training = [one for one in (*own, *shared) if one.id not in gone and (left_out == "shape" or one.run != place)]
        yield training, out
