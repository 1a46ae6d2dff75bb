"""Values that no device can have: they say nothing, so they count nowhere, whoever looked at them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import get_args

from service.calibration.attention_work import BACKWARD_WORK
from service.calibration.observed import Observed
from service.calibration.predicted import MOVED, format_named
from service.calibration.records import Measurement, ProbeRecord
from service.calibration.shapes import fault_of
from service.estimator.question import Gpu
from service.estimator.software.precision import Format, peak_flop_per_s

LEAST_SECONDS = 1e-6
"""Shortest time of anything that a GPU is asked for. Source: a choice below what an empty kernel takes, 2 to 5 us
(constants.LAUNCH_SECONDS); one in a recorded graph takes 1.2 us."""

LEAST_PROCESSOR_SECONDS = 1e-9
"""The same of a processor, which calls a function. Source: some cycles of its clock."""

MOST_SECONDS = 86_400.0
"""Longest time of one repeat of a probe. Source: a choice; a whole launch check takes an hour at most."""

MOST_PEAK_FRACTION = 1.25
"""Rate over the peak of the data sheet above which a rate was not measured. Source: data sheets state the rate at a
boost clock that devices pass by up to 11 % (H100 SXM: 1,980 of 1,830 MHz; RTX 4090: 2,800 of 2,520 MHz); the rest is a
margin."""

MOST_LINK_FRACTION = 4.0
"""Bus bandwidth over that of the fastest link. Source: a choice; reduction inside a switch doubles it, and data sheets
count one direction of a link or both."""

CACHED_BYTES = 1 << 29
"""Size of a tensor from which no cache holds it. Source: a choice; twice the cache of an MI300X, 256 MB."""
MOST_CACHED_FRACTION = 16.0
"""Bandwidth of caches over that of the memory. Source: a choice; an MI300X's cache has 3 times its memory's."""

HOST_BYTES_PER_S = 5e11
"""Fastest link to a host, whatever is stated of the device. Source: NVLink-C2C, 450 GB/s a direction."""

ANY_FLOP_PER_S = 5e16
"""Rate that no device has, where nobody knows which it is. Source: a choice; twice the 4-bit rate of a B300."""
ANY_BYTES_PER_S = 1e14
"""The same of memory and links. Source: a choice; ten times the memory of a B300."""


def impossible(observed: Observed, gpu: Gpu | None) -> str | None:
    """Why a measurement cannot be one.

    Args:
        observed: the measurement
        gpu: the device as its data sheet has it; None where it is unknown, or a processor

    Returns:
        the reason; None where a device could have done it
    """
    measured = observed.measurement
    numbers = (measured.low, measured.value, measured.high)
    if not all(isfinite(number) and number > 0 for number in numbers):
        return "impossible: what was measured is not above zero, or no number"
    if measured.quantity == "seconds":
        least = LEAST_PROCESSOR_SECONDS if observed.environment.kind == "cpu" else LEAST_SECONDS
        if measured.low < least:
            return f"impossible: {measured.low:.3g} s is less than anything takes, {least:g} s"
        if measured.high > MOST_SECONDS:
            return f"impossible: {measured.high:.3g} s is more than a probe runs, {MOST_SECONDS:g} s"
    if measured.quantity == "bytes" and gpu is not None and measured.high > gpu.memory_bytes * MOST_PEAK_FRACTION:
        return f"impossible: {measured.high:.3g} bytes are more than the device has, {gpu.memory_bytes:.3g}"
    if fault_of(observed.probe, measured) is not None:
        return None  # it is in quarantine for that, and no formula reads it
    limit = _LIMITS.get(observed.probe)
    return None if limit is None else limit(observed, gpu)


def without_impossible(records: Iterable[ProbeRecord], gpu: Gpu | None) -> tuple[list[ProbeRecord], list[str]]:
    """Records without the measurements that no device can have made, and why those are left out.

    Args:
        records: what came of probes
        gpu: the device as its data sheet has it; None where it is unknown
    """
    kept, reasons = [], []
    for record in records:
        found = [(one, _reason(record, one, gpu)) for one in record.measurements]
        reasons += [f"{record.probe} {one.operation}: {reason}" for one, reason in found if reason is not None]
        kept.append(replace(record, measurements=tuple(one for one, reason in found if reason is None)))
    return kept, reasons


def _reason(record: ProbeRecord, one: Measurement, gpu: Gpu | None) -> str | None:
    if record.environment is None:
        return None
    known = None if record.environment.kind == "cpu" else gpu
    return impossible(
        Observed(id="", run="", probe=record.probe, measurement=one, environment=record.environment), known
    )


def _product(observed: Observed, gpu: Gpu | None) -> str | None:
    """A matrix product above the peak rate: 2 m n k FLOP in the shortest time."""
    shape = observed.measurement.shape
    flop = 2.0 * int(shape["rows"]) * int(shape["columns"]) * int(shape["inner"]) * _copies(shape)
    return _above_peak(flop, observed, gpu)


def _attention(observed: Observed, gpu: Gpu | None) -> str | None:
    """Attention above the peak rate: 4 q s w FLOP forward, where each query sees half of the keys if it is causal."""
    shape = observed.measurement.shape
    length = int(shape["length"])
    seen = length / 2 if shape.get("causal", True) else length
    flop = 4.0 * int(shape["batch"]) * int(shape["heads"]) * length * seen * int(shape["width"])
    is_backward = observed.measurement.operation == "backward"
    return _above_peak(flop * (BACKWARD_WORK if is_backward else 1.0), observed, gpu)


def _above_peak(flop: float, observed: Observed, gpu: Gpu | None) -> str | None:
    measured = observed.measurement
    if measured.quantity != "seconds":
        return None
    rate = flop / measured.low
    most = ANY_FLOP_PER_S if gpu is None else MOST_PEAK_FRACTION * _peak(gpu, format_named(measured.shape.get("dtype")))
    if rate <= most:
        return None
    return f"impossible: {rate:.3g} FLOP/s, and the device has {most / MOST_PEAK_FRACTION:.3g} at its peak"


def _peak(gpu: Gpu, number_format: Format | None) -> float:
    """Peak rate in a number format; the highest of all where nothing is told of it, or where 32 bits may mean TF32."""
    known = None if number_format in (None, "fp32") else peak_flop_per_s(gpu, number_format)
    rates = (peak_flop_per_s(gpu, one) for one in get_args(Format))
    return known or max((rate for rate in rates if rate), default=ANY_FLOP_PER_S)


def _bandwidth(observed: Observed, gpu: Gpu | None) -> str | None:
    """Memory or host traffic above the bandwidth of the data sheet."""
    measured = observed.measurement
    size = float(measured.shape["size_bytes"])
    rate = size / measured.low if measured.quantity == "seconds" else measured.high
    most = ANY_BYTES_PER_S
    if gpu is not None and measured.operation in MOVED:
        fraction = MOST_PEAK_FRACTION if size >= CACHED_BYTES else MOST_CACHED_FRACTION
        most = fraction * gpu.memory_bytes_per_s
    elif gpu is not None:
        most = MOST_PEAK_FRACTION * max(gpu.host_bytes_per_s, HOST_BYTES_PER_S)
    return None if rate <= most else f"impossible: {rate:.3g} byte/s, and the device moves at most {most:.3g}"


def _collective(observed: Observed, gpu: Gpu | None) -> str | None:
    """A collective above the bandwidth of the fastest link."""
    measured = observed.measurement
    rate = float(measured.shape["size_bytes"]) / measured.low if measured.quantity == "seconds" else measured.high
    links = ANY_BYTES_PER_S if gpu is None else max(gpu.link_bytes_per_s, gpu.inter_node_bytes_per_s)
    most = min(MOST_LINK_FRACTION * links, ANY_BYTES_PER_S)
    return None if rate <= most else f"impossible: {rate:.3g} byte/s, and the fastest link carries {links:.3g}"


def _copies(shape: Mapping[str, object]) -> float:
    copies = shape.get("copies", 1)
    return float(copies) if isinstance(copies, int | float) and not isinstance(copies, bool) and copies >= 1 else 1.0


_LIMITS: Mapping[str, Callable[[Observed, Gpu | None], str | None]] = {
    "gemm": _product,
    "attention": _attention,
    "bandwidth": _bandwidth,
    "collective": _collective,
}
