"""Which calibration fits what was measured of one device? Each part by its own few constants, none beyond physics."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import get_args

from service.calibration.link_scales import fitted_links
from service.calibration.observed import Observed
from service.calibration.predicted import MOVED, fused_kernel_named, predicted_value
from service.calibration.product_fit import fitted_products
from service.estimator.constants import (
    LAUNCH_SECONDS,
    AttentionCalibration,
    DeviceCalibration,
    MeasuredBytes,
    StepCalibration,
    calibrated,
)
from service.estimator.question import Gpu
from service.estimator.time.attention import MOST_FRACTION, FusedName, attention_rate

StepsOn = Callable[[Sequence[Observed], Gpu], Sequence[StepCalibration]]
"""Whole steps among some measurements, each beside what is predicted of it on a GPU."""

LARGE_BYTES = 64 * 2**20
"""Tensors from this size on show the memory and not the caches before it. Source: L2 of 50 MB on H100."""

WIDTH = 128
"""Width of heads that shares of peak are told for. Source: attention_rate.KernelShares."""


def fitted_device(
    observed: Sequence[Observed], gpu: Gpu, calibration_id: str, steps_on: StepsOn | None = None
) -> DeviceCalibration:
    """The calibration that fits what was measured of one device.

    Args:
        observed: its measurements, of any probes; what no formula speaks of is passed over
        gpu: the device without any calibration
        calibration_id: what answers are to name it
        steps_on: whole steps among the measurements, each beside what is predicted of it by the other parts; None for
            none

    Returns:
        the calibration; parts of which nothing was measured are left out
    """
    memory_bytes_per_s = _memory_bytes_per_s(observed)
    known = calibrated(gpu, DeviceCalibration(id=calibration_id, memory_bytes_per_s=memory_bytes_per_s))
    found = DeviceCalibration(
        id=calibration_id,
        matrix=fitted_products(observed, known),
        attention=_attention(observed, known),
        links=fitted_links(observed, known),
        memory_bytes_per_s=memory_bytes_per_s,
        context_bytes=_bytes(observed, "context"),
        communicator_bytes=_bytes(observed, "communicator"),
    )
    return found if steps_on is None else replace(found, steps=tuple(steps_on(observed, calibrated(gpu, found))))


def _memory_bytes_per_s(observed: Sequence[Observed]) -> float | None:
    """Memory traffic of large tensors; of the largest where none is large [byte/s]."""
    own = [one for one in observed if one.probe == "bandwidth" and one.measurement.operation in MOVED]
    if not own:
        return None
    largest = max(float(one.measurement.shape["size_bytes"]) for one in own)
    large = [one for one in own if one.measurement.shape["size_bytes"] >= min(LARGE_BYTES, largest)]
    return _rounded(median(map(_streamed_bytes_per_s, large)))


def _streamed_bytes_per_s(one: Observed) -> float:
    """Memory traffic of one kernel without its fixed cost, of which at most half its time is taken to be [byte/s]."""
    moved = MOVED[one.measurement.operation] * float(one.measurement.shape["size_bytes"])
    seconds = moved / one.measurement.value
    return moved / max(seconds - LAUNCH_SECONDS, seconds / 2)


def _attention(observed: Sequence[Observed], gpu: Gpu) -> tuple[AttentionCalibration, ...]:
    """Shares of peak of each fused kernel that was measured."""
    found = []
    for kernel in get_args(FusedName):
        own = [
            one
            for one in observed
            if one.probe == "attention" and fused_kernel_named(one.measurement.shape.get("kernel")) == kernel
        ]
        forward, backward = (_share_fraction(own, kernel, gpu, name) for name in ("forward", "backward"))
        if forward is not None or backward is not None:
            found.append(AttentionCalibration(kernel=kernel, forward_fraction=forward, backward_fraction=backward))
    return tuple(found)


def _share_fraction(own: Sequence[Observed], kernel: FusedName, gpu: Gpu, operation: str) -> float | None:
    """Share of peak of one pass: what formulas take it for, times the median of predicted over measured."""
    rate = attention_rate(kernel, gpu, WIDTH, WIDTH)
    taken = rate.forward_fraction if operation == "forward" else rate.backward_fraction
    ratios = [
        predicted / one.measurement.value
        for one in own
        if one.measurement.operation == operation and (predicted := predicted_value(one, gpu)) is not None
    ]
    return _rounded(min(taken * median(ratios), MOST_FRACTION)) if ratios else None


def _bytes(observed: Sequence[Observed], operation: str) -> MeasuredBytes | None:
    """Bytes of the context or the communicators, from the least that was measured to the most [byte]."""
    own = [one.measurement for one in observed if one.probe == "context" and one.measurement.operation == operation]
    if not own:
        return None
    return MeasuredBytes(
        low=min(one.low for one in own), value=median(one.value for one in own), high=max(one.high for one in own)
    )


def _rounded(value: float) -> float:
    """Four digits: no measurement tells more."""
    return float(f"{value:.4g}")
