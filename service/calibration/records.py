"""Records of workers: the tasks that a worker gets, the measurements that it returns, and their quality flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Literal

ProbeName = Literal["context", "gemm", "attention", "bandwidth", "elementwise", "collective", "step", "profile"]
"""Probes of a worker; each is a module of service/worker/probes."""

ProbeStatus = Literal["queued", "running", "succeeded", "failed", "skipped", "cancelled"]
"""State of a probe. Skipped: the machine cannot run it; `reason` states why."""

LeftOutCode = Literal["wrong_result", "no_time", "out_of_memory", "cannot_run"]
"""Reason of a missing measurement: the `code` of a row of the summary's `left_out`."""

DeviceKind = Literal["cuda", "rocm", "cpu", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTask:
    """One probe of a job."""

    probe: ProbeName
    """Name of the probe."""
    parameters: Mapping[str, Any]
    """Its shapes, number formats and sizes."""
    timeout_seconds: float
    ranks: int = 1
    """Processes of the probe, one a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Device and software of a measurement; compare only measurements where both are equal."""

    kind: DeviceKind
    """Kind of device."""
    device: str
    """Name of the device as its driver reports it, or of the processor."""
    devices: int
    """Devices that the worker may use."""
    memory_bytes: float
    """Memory of one device."""
    threads: int | None = None
    """Computing threads of a processor; null on a GPU."""
    instructions: tuple[str, ...] = ()
    """Vector instructions of a processor, as its kernel names them, e.g. avx2; none on a GPU."""
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
    """Highest clock of the device."""
    power_limit_watts: float | None = None
    """Power limit of the device."""
    throttle_reasons: tuple[str, ...] = ()
    """Reasons of the driver for a lower clock while the probe ran."""
    is_partition: bool = False
    """Whether the device is a slice of a GPU (MIG)."""
    other_processes: int = 0
    """Other processes that use memory of the device."""


class _ShapeSchema:
    """Marker of a mapping to numbers, texts and booleans, for its JSON schema."""

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {"type": ["integer", "number", "string", "boolean"]}}


Shape = Annotated[Mapping[str, Any], _ShapeSchema()]
"""Sizes, number format and kernel of a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One quantity of one shape, measured several times."""

    operation: str
    """Measured operation, e.g. forward, input_gradient, weight_gradient, all_reduce, rms_norm, context, step."""
    shape: Shape
    """Its parameters among the measurements of the probe: sizes, number format, kernel."""
    quantity: str
    """Measured quantity, by the suffix of its unit: seconds, bytes, bytes_per_s."""
    value: float
    """Median over the repeats."""
    low: float
    """10th percentile over the repeats."""
    high: float
    """90th percentile over the repeats."""
    repeats: int
    """Number of repeats without warm-up."""
    relative_error_fraction: float | None = None
    """Largest error of the result over the largest number of a reference in higher precision; null without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """Result of one probe."""

    probe: ProbeName
    """Name of the probe."""
    status: ProbeStatus
    """Its end state."""
    reason: str | None = None
    """Reason for a failure, or its quality flags; with the remedy where there is one."""
    seconds: float = 0.0
    """Duration of the probe."""
    environment: Environment | None = None
    """Device and software; null where it did not run."""
    measurements: tuple[Measurement, ...] = ()
    """Its measurements."""
    summary: Mapping[str, Any] | None = None
    """Summary of a profile or a timeline."""


ALLOWED_ERROR_FRACTIONS: Mapping[str, float] = {"fp32": 1e-3, "bf16": 3e-2, "fp16": 1e-2, "fp8": 0.13}
"""Largest error of a correct result over the largest number of its reference, by number format. It covers the rounding
of the result, partial sums in the format and, in fp32, products in TF32. Errors of a wrong kernel are near 1.
Source: a choice, at least four units of rounding, of 2^-11 in TF32 and fp16, 2^-9 in bf16 and 2^-4 in fp8;
IEEE 754 and OCP 8-bit floating point specification 1.0."""

EXCHANGED_ERROR_FRACTION = 1e-4
"""Largest error of a sum of fp32 numbers over ranks. Source: a choice, a thousand times the format's precision."""
MOVED_ERROR_FRACTION = 1e-5
"""Largest error of an fp32 sum over the numbers that a kernel reads. Source: a choice, 100 times the precision."""


BACKWARD_WORK = 2.5
"""Work of the backward pass over that of the forward pass: five products, which include the recomputed scores, over
two. Source: Dao 2023, arXiv:2307.08691, section 4.1."""


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def bus_fraction(collective: str, ranks: int) -> float:
    """Bytes that pass each rank's link for each byte of a collective's tensor.

    Formula: all-reduce: 2 (n - 1) / n; all-gather, reduce-scatter, all-to-all: (n - 1) / n; send: 1
    Args:
        collective: the collective
        ranks: ranks of the group, n [1]
    Returns: the ratio of bus bandwidth to algorithm bandwidth [1]
    Source: NVIDIA/nccl-tests@v2.13 doc/PERFORMANCE.md

    >>> bus_fraction("all_reduce", 8), bus_fraction("send", 2)
    (1.75, 1.0)
    """
    if collective == "send":
        return 1.0
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


SIZES: Mapping[ProbeName, tuple[str, ...]] = {
    "gemm": ("rows", "columns", "inner"),
    "attention": ("batch", "heads", "kv_heads", "length", "width"),
    "bandwidth": ("size_bytes",),
    "collective": ("size_bytes", "ranks"),
    "elementwise": ("rows", "width"),
}
"""Entries of a shape that are whole numbers of at least 1, by probe."""

NAMES: Mapping[ProbeName, tuple[str, ...]] = {
    "gemm": ("dtype",),
    "attention": ("kernel", "dtype"),
    "elementwise": ("dtype",),
}
"""Entries of a shape that are texts, by probe."""

QUANTITIES = ("seconds", "bytes", "bytes_per_s")

LARGEST_SIZE = 1 << 53
"""Largest number in a shape; doubles hold all whole numbers up to it."""


MOST_REPEATS = (1 << 31) - 1
"""Largest number of repeats, which a whole number of 32 bits holds in every database."""


def fault_of(probe: ProbeName, measurement: Measurement) -> tuple[str, str] | None:
    """The first fault of a measurement, by field and message; None where it is valid.

    >>> from service.calibration.records import Measurement
    >>> fault_of("gemm", Measurement(operation="forward", shape={"rows": 4}, quantity="seconds", value=1.0, low=1.0,
    ...                              high=1.0, repeats=20))
    ('shape.columns', 'columns is not a whole number of at least 1')
    """
    if fault := shape_fault(probe, measurement.shape):
        return fault
    for name in ("low", "value", "high"):
        number = getattr(measurement, name)
        if not isfinite(number) or number <= 0:
            return name, f"{name} is not a number above zero"
    if not measurement.low <= measurement.value <= measurement.high:
        return "value", "value is not between low and high"
    if measurement.quantity not in QUANTITIES:
        return "quantity", f"quantity is not one of {', '.join(QUANTITIES)}"
    if not 1 <= measurement.repeats <= MOST_REPEATS:
        return "repeats", f"repeats is not between 1 and {MOST_REPEATS}"
    return None


def shape_fault(probe: ProbeName, shape: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first fault of a shape."""
    for name in SIZES.get(probe, ()):
        value = shape.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= LARGEST_SIZE:
            return f"shape.{name}", f"{name} is not a whole number of at least 1"
        if value != int(value):
            return f"shape.{name}", f"{name} is not a whole number"
    for name in NAMES.get(probe, ()):
        if not isinstance(shape.get(name), str):
            return f"shape.{name}", f"{name} is not text"
    return None


SLOWDOWNS = {
    "hw_slowdown": "the board lowered its clock",
    "hw_thermal_slowdown": "the board was too hot",
    "sw_thermal_slowdown": "the device was too hot",
    "hw_power_brake_slowdown": "the power supply limited the power",
}
"""Texts for reasons of a lower clock that measurements have and a run of weeks does not. A power limit is not listed,
because it applies to the run too. Source: NVML API reference, clocks event reasons."""


def quality_flag_of(environment: Environment) -> str | None:
    """Quality flag of measurements that should not be fitted, by their environment; None for good ones.

    >>> from service.calibration.records import Environment
    >>> quality_flag_of(Environment(kind="cuda", device="H100", devices=8, memory_bytes=8e10, other_processes=1))
    'shared: 1 other process(es) used the device'
    """
    throttled = [SLOWDOWNS[reason] for reason in environment.throttle_reasons if reason in SLOWDOWNS]
    if throttled:
        return f"throttled: {', '.join(throttled)}"
    if environment.other_processes:
        return f"shared: {environment.other_processes} other process(es) used the device"
    return "divided: the device is a slice of a GPU" if environment.is_partition else None


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """The value below which a fraction of sorted values lies, interpolated between the two nearest."""
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
