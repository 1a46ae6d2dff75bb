"""What does a worker measure, and how does it tell? Tasks that it is given, and records of what came of them.

This is the wire format between the service and its workers, which run in other people's images: the standard library
alone is needed to read and write it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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
