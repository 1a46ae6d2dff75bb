"""How far are a device's collectives from the curves of its links? Two scales each: fixed costs, and large messages."""

from collections.abc import Sequence
from math import exp, log
from statistics import fmean
from typing import get_args

from service.calibration.descent import Values, least
from service.calibration.observed import Observed
from service.calibration.predicted import predicted_value
from service.estimator.constants import (
    CurveName,
    DeviceCalibration,
    LinkCalibration,
    calibrated,
    calibration_of,
)
from service.estimator.question import Gpu
from service.estimator.time.links import SWITCHED_GPUS, Curve, link_of

NOISE = 0.02
"""Residuals below this count as noise of the measurement."""

FIXED_BOUNDS = (0.05, 50.0)
"""Fixed costs over those of the curve: from a twentieth to libraries of the host."""

LEAST_LINK_FRACTION = 0.005
"""A link is taken to reach at least so much of its curve."""

LARGE_BYTES = 1 << 20
"""Messages from this size on tell what a link carries. Source: service.calibration.collectives.JUDGED_BYTES."""


def fitted_links(observed: Sequence[Observed], gpu: Gpu) -> tuple[LinkCalibration, ...]:
    """How far a device's collectives inside one domain are from the curves of its link.

    Args:
        observed: its measurements; those of other things, and between nodes, are passed over
        gpu: the device

    Returns:
        the scales of each collective that was measured
    """
    inside = [
        one
        for one in observed
        if one.probe == "collective" and one.measurement.quantity == "seconds" and _nodes(one) == 1 and _ranks(one) > 1
    ]
    kinds = {name: [one for one in inside if one.measurement.operation == name] for name in get_args(CurveName)}
    kinds["all_to_all"] = kinds["all_to_all"] or [one for one in inside if one.measurement.operation == "send"]
    return tuple(_fitted(name, own, gpu) for name, own in kinds.items() if own)


def _nodes(one: Observed) -> int:
    return int(one.measurement.shape.get("nodes", 1))


def _ranks(one: Observed) -> int:
    return int(one.measurement.shape.get("ranks", 1))


def _fitted(name: CurveName, own: Sequence[Observed], gpu: Gpu) -> LinkCalibration:
    """The scales of one collective: both where small and large messages were measured, else that of what was."""
    sizes = {float(one.measurement.shape["size_bytes"]) for one in own}
    reaches_all = gpu.scale_up_gpus >= min(max(map(_ranks, own)), SWITCHED_GPUS)
    curve: Curve = getattr(link_of(gpu, reaches_all=reaches_all), name)
    bounds: dict[str, tuple[float, float]] = {}
    if min(sizes) < LARGE_BYTES or len(sizes) > 1:
        bounds["fixed"] = (log(FIXED_BOUNDS[0]), log(FIXED_BOUNDS[1]))
    if max(sizes) >= LARGE_BYTES:
        bounds["link"] = (log(LEAST_LINK_FRACTION), log(1 / curve.link_fraction))
    found = least(lambda values: _loss(name, own, gpu, values), {"fixed": 0.0, "link": 0.0}, bounds)
    return _told(name, found)


def _told(name: CurveName, values: Values) -> LinkCalibration:
    fixed, link = (float(f"{exp(values[key]):.4g}") for key in ("fixed", "link"))
    return LinkCalibration(collective=name, fixed_fraction=fixed, link_fraction=link)


def _loss(name: CurveName, own: Sequence[Observed], gpu: Gpu, values: Values) -> float:
    """The mean of sqrt(r^2 + NOISE^2), r = ln(predicted / measured)."""
    known = calibration_of(gpu)
    memory = None if known is None else known.memory_bytes_per_s
    scaled = DeviceCalibration(id="tried", links=(_told(name, values),), memory_bytes_per_s=memory)
    tried = calibrated(gpu, scaled)
    residuals = [log((predicted_value(one, tried) or one.measurement.value) / one.measurement.value) for one in own]
    return fmean((residual**2 + NOISE**2) ** 0.5 for residual in residuals)
