"""Items to measure: task entry, estimated duration and prediction of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from service.calibration.records import ProbeName
from service.estimator.answer import Interval
from service.estimator.software.precision import Format, peak_flop_per_s
from service.features.launch_checks.targets import Target

CPU_FLOP_PER_S = 10e9
"""Conservative fp32 rate of one processor thread. Source: a choice; threads of cloud machines reach 20e9 and
more, and other work may run beside the probe."""

CPU_BYTES_PER_S = 5e9
"""Conservative memory rate of one processor thread. Source: a choice; half of what one DDR4 channel does."""

GPU_FLOP_PER_S = 20e12
"""Conservative 16-bit rate of a GPU outside the catalogue. Source: a choice."""

GPU_BYTES_PER_S = 200e9
"""Conservative memory rate of such a GPU. Source: a choice."""

EXPECTED_FRACTION = 0.4
"""Fraction of data sheet rates that every GPU reaches. Source: a choice; below every row of matrix_rates."""

DTYPES: Mapping[Format, str] = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
"""Names of number formats in probes; no probe has kernels for fp4 and int8."""

CPU_DTYPE: Final = "fp32"
"""Format measured on a processor: few have units for narrower ones, others take a hundred times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One planned measurement of a probe."""

    probe: ProbeName
    """Name of the probe."""
    operation: str
    """Name of the operation."""
    shape: Mapping[str, Any]
    """Shape, by dimension name."""
    quantity: str
    """seconds, bytes or bytes_per_s."""
    predicted: Interval | None = None
    """Prediction; None where no formula applies to the device."""
    count: float | None = None
    """Runs in one step on one rank; None where it is not part of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a probe's parameters."""

    entry: Any
    """Entry in the task for the worker."""
    name: str
    """Name for people."""
    once_seconds: float
    """Estimated duration of one run."""
    weight_flop: float
    """FLOP of it in one step, or bytes where it has none; items run in descending order."""
    memory_bytes: float
    """Estimated memory."""
    expected: tuple[Expected, ...]
    """Planned measurements."""


def reached_flop_per_s(target: Target, dtype: str) -> float:
    """Conservative matrix product rate of a machine, to size tasks."""
    if not target.is_gpu:
        return CPU_FLOP_PER_S * target.threads
    if target.gpu is None:
        return GPU_FLOP_PER_S
    number_format: Format = next((name for name, probe_name in DTYPES.items() if probe_name == dtype), "bf16")
    peak = peak_flop_per_s(target.gpu, number_format) or target.gpu.fp32_flop_per_s or GPU_FLOP_PER_S
    return EXPECTED_FRACTION * peak


def moved_bytes_per_s(target: Target) -> float:
    """Conservative memory rate of a machine, to size tasks."""
    if not target.is_gpu:
        return CPU_BYTES_PER_S * target.threads
    return GPU_BYTES_PER_S if target.gpu is None else EXPECTED_FRACTION * target.gpu.memory_bytes_per_s
