"""Records of workers: the tasks that a worker is given, the measurements that it returns, and their quality flags.

This is the wire format between the service and its workers, which run in other people's images: the standard library
alone is needed to read and write it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

ProbeName = Literal["context", "gemm", "attention", "bandwidth", "elementwise", "collective", "step", "profile"]
"""Things that a worker can measure; each is a file of service/worker/probes."""

ProbeStatus = Literal["queued", "running", "succeeded", "failed", "skipped", "cancelled"]
"""Where a probe is. Skipped: the machine cannot run it, and its reason says why."""

LeftOutCode = Literal["wrong_result", "no_time", "out_of_memory", "cannot_run"]
"""Why a probe has no figure of something that it was asked for: the `code` of a row of its summary's `left_out`."""

DeviceKind = Literal["cuda", "rocm", "cpu", "other"]
"""What was measured on; other: an accelerator that no probe runs on, of which schedulers tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTask:
    """One probe that a worker is asked to run."""

    probe: ProbeName
    """Which probe."""
    parameters: Mapping[str, Any]
    """Its shapes, number formats and sizes."""
    timeout_seconds: float
    """Time after which it is stopped."""
    ranks: int = 1
    """Processes that it runs in, one a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a measurement was taken on: it tells which measurements may be compared."""

    kind: DeviceKind
    """Kind of device."""
    device: str
    """Name of the device as its driver tells it, or of the processor."""
    devices: int
    """Devices that the worker may use."""
    memory_bytes: float
    """Memory of one of them."""
    threads: int | None = None
    """Threads that computed, on a processor; null on a GPU."""
    instructions: tuple[str, ...] = ()
    """Instructions of a processor for many numbers at once, as its kernel names them, e.g. avx2; none on a GPU."""
    compute_capability: str | None = None
    """CUDA compute capability, e.g. 9.0."""
    driver: str | None = None
    """Version of the driver."""
    runtime: str | None = None
    """Version of CUDA or ROCm that torch was built for."""
    torch: str | None = None
    """Version of torch."""
    nccl: str | None = None
    """Version of NCCL or RCCL."""
    python: str | None = None
    """Version of Python."""
    clock_hz: float | None = None
    """Clock of the device's processors when the probe ended."""
    most_clock_hz: float | None = None
    """Highest clock that the device may run at."""
    power_limit_watts: float | None = None
    """Power that the device is limited to."""
    throttle_reasons: tuple[str, ...] = ()
    """Why the driver lowered the clock while the probe ran."""
    is_partition: bool = False
    """Whether the device is a slice of a GPU (MIG)."""
    other_processes: int = 0
    """Processes of others that hold memory of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One quantity of one shape, measured several times."""

    operation: str
    """What ran, e.g. forward, input_gradient, weight_gradient, all_reduce, rms_norm, context, step."""
    shape: Mapping[str, Any]
    """What tells it from other measurements of the probe: sizes, number format, kernel."""
    quantity: str
    """What was measured, by the suffix of its unit: seconds, bytes, bytes_per_s."""
    value: float
    """Median over the repeats."""
    low: float
    """10th percentile over the repeats."""
    high: float
    """90th percentile over the repeats."""
    repeats: int
    """How often it was measured, warm-up not counted."""
    relative_error_fraction: float | None = None
    """Largest error of the result over the largest number of a reference in higher precision; null where none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """What came of one probe."""

    probe: ProbeName
    """Which probe."""
    status: ProbeStatus
    """How it ended."""
    reason: str | None = None
    """Why it did not succeed, or what casts doubt on it; with the command that mends it where there is one."""
    seconds: float = 0.0
    """How long it ran."""
    environment: Environment | None = None
    """What it ran on; null where it did not run."""
    measurements: tuple[Measurement, ...] = ()
    """What was measured."""
    summary: Mapping[str, Any] | None = None
    """What a profile or a timeline amounts to."""


ALLOWED_ERROR_FRACTIONS: Mapping[str, float] = {"fp32": 1e-3, "bf16": 3e-2, "fp16": 1e-2, "fp8": 0.13}
"""Largest error of a right result over the largest number of its reference, by number format: what rounding the result,
or summing parts of it in the format, leaves; in fp32 what products in TF32 leave. A wrong kernel is off by whole
numbers. Source: a choice, at least four units of rounding, of 2^-11 in TF32 and fp16, 2^-9 in bf16 and 2^-4 in fp8;
IEEE 754 and OCP 8-bit floating point specification 1.0."""

EXCHANGED_ERROR_FRACTION = 1e-4
"""The same of a sum of fp32 numbers over ranks. Source: a choice, a thousand times the format's precision."""

MOVED_ERROR_FRACTION = 1e-5
"""The same of a sum in fp32 over what was read; what is copied has none. Source: a choice, a hundred times the format's
precision."""


BACKWARD_WORK = 2.5
"""Work of the backward pass over that of the forward pass: five products, the scores once again among them, instead of
two. Source: Dao 2023, arXiv:2307.08691, section 4.1."""


SIZES: Mapping[ProbeName, tuple[str, ...]] = {
    "gemm": ("rows", "columns", "inner"),
    "attention": ("batch", "heads", "kv_heads", "length", "width"),
    "bandwidth": ("size_bytes",),
    "collective": ("size_bytes", "ranks"),
    "elementwise": ("rows", "width"),
}
"""Entries of a shape that are whole numbers from 1 on, by probe."""

NAMES: Mapping[ProbeName, tuple[str, ...]] = {
    "gemm": ("dtype",),
    "attention": ("kernel", "dtype"),
    "elementwise": ("dtype",),
}
"""Entries of a shape that are names."""

QUANTITIES = ("seconds", "bytes", "bytes_per_s")
"""What may be measured."""

LARGEST_SIZE = 1 << 53
"""Largest number in a shape: doubles hold whole numbers up to it."""


def fault_of(probe: ProbeName, measurement: Measurement) -> tuple[str, str] | None:
    """What of a measurement nobody can read.

    >>> from service.calibration.records import Measurement
    >>> fault_of("gemm", Measurement(operation="forward", shape={"rows": 4}, quantity="seconds", value=1.0, low=1.0,
    ...                              high=1.0, repeats=20))
    ('shape.columns', 'columns is no whole number from 1 on')
    """
    return shape_fault(probe, measurement.shape) or _value_fault(measurement)


def shape_fault(probe: ProbeName, shape: Mapping[str, Any]) -> tuple[str, str] | None:
    """What of a shape nobody can read."""
    for name in SIZES.get(probe, ()):
        value = shape.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= LARGEST_SIZE:
            return f"shape.{name}", f"{name} is no whole number from 1 on"
        if value != int(value):
            return f"shape.{name}", f"{name} is no whole number"
    for name in NAMES.get(probe, ()):
        if not isinstance(shape.get(name), str):
            return f"shape.{name}", f"{name} is no name"
    return None


def _value_fault(measurement: Measurement) -> tuple[str, str] | None:
    numbers = {"low": measurement.low, "value": measurement.value, "high": measurement.high}
    for name, number in numbers.items():
        if not isfinite(number) or number <= 0:
            return name, f"{name} is not above zero, so nothing was measured"
    if not measurement.low <= measurement.value <= measurement.high:
        return "value", "value is not between low and high"
    if measurement.quantity not in QUANTITIES:
        return "quantity", f"quantity is none of {', '.join(QUANTITIES)}"
    return None if measurement.repeats >= 1 else ("repeats", "repeats is below 1")


HELD_BACK = {
    "hw_slowdown": "the board lowered its clock",
    "hw_thermal_slowdown": "the board was too hot",
    "sw_thermal_slowdown": "the device was too hot",
    "hw_power_brake_slowdown": "the power supply asked for less",
}
"""Reasons of drivers for a lower clock that a run of weeks does not have, in words. A limit of power is none of them:
it holds for the run too. Source: NVML API reference, clocks event reasons."""


def quality_flag_of(environment: Environment) -> str | None:
    """Why nothing should be fitted on what was measured on a device.

    >>> from service.calibration.records import Environment
    >>> quality_flag_of(Environment(kind="cuda", device="H100", devices=8, memory_bytes=8e10, other_processes=1))
    'shared: 1 other process(es) used the device'
    """
    throttled = [HELD_BACK[reason] for reason in environment.throttle_reasons if reason in HELD_BACK]
    if throttled:
        return f"throttled: {', '.join(throttled)}"
    if environment.other_processes:
        return f"shared: {environment.other_processes} other process(es) used the device"
    return "divided: the device is a slice of a GPU" if environment.is_partition else None
