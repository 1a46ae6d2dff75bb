"""Items to measure: what the worker runs, about how long it takes, and what was predicted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from service.calibration.records import ProbeName
from service.estimator.answer import Interval
from service.estimator.software.precision import Format, peak_flop_per_s
from service.features.launch_checks.targets import Target

CPU_FLOP_PER_S = 10e9
"""What one thread of a processor reaches in fp32, carefully. Source: a choice; threads of cloud machines reach 20e9 and
more, and others may work beside the probe."""

CPU_BYTES_PER_S = 5e9
"""What one thread of a processor moves, carefully. Source: a choice; half of what one DDR4 channel does."""

GPU_FLOP_PER_S = 20e12
"""What a GPU that the catalogue does not hold reaches in 16-bit products, carefully. Source: a choice."""

GPU_BYTES_PER_S = 200e9
"""What such a GPU moves, carefully. Source: a choice."""

EXPECTED_FRACTION = 0.4
"""Share of its data sheet's rates that a GPU surely reaches. Source: a choice; below every row of matrix_rates."""

DTYPES: Mapping[Format, str] = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
"""What probes multiply, by format; of fp4 and int8 no probe has kernels."""

CPU_DTYPE: Final = "fp32"
"""What is measured on a processor: few have units for anything narrower, others take a hundred times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One measurement that a probe is to bring."""

    probe: ProbeName
    """Which probe."""
    operation: str
    """What runs."""
    shape: Mapping[str, Any]
    """What tells it from others."""
    quantity: str
    """seconds, bytes or bytes_per_s."""
    predicted: Interval | None = None
    """What formulas say; None where none holds for the device."""
    count: float | None = None
    """How often one step has it on one rank; None where it is no part of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a probe's parameters."""

    entry: Any
    """What the worker is told."""
    name: str
    """What a reader calls it."""
    once_seconds: float
    """About how long it takes, once."""
    weight_flop: float
    """FLOP that one step spends on it, or bytes where it has none: the most comes first."""
    memory_bytes: float
    """About what it takes in memory."""
    expected: tuple[Expected, ...]
    """What it is to bring."""


def reached_flop_per_s(target: Target, dtype: str) -> float:
    """What a machine surely reaches in products, to size what it is given."""
    if not target.is_gpu:
        return CPU_FLOP_PER_S * target.threads
    if target.gpu is None:
        return GPU_FLOP_PER_S
    number_format: Format = next((name for name, told in DTYPES.items() if told == dtype), "bf16")
    peak = peak_flop_per_s(target.gpu, number_format) or target.gpu.fp32_flop_per_s or GPU_FLOP_PER_S
    return EXPECTED_FRACTION * peak


def moved_bytes_per_s(target: Target) -> float:
    """What a machine surely moves through its memory, to size what it is given."""
    if not target.is_gpu:
        return CPU_BYTES_PER_S * target.threads
    return GPU_BYTES_PER_S if target.gpu is None else EXPECTED_FRACTION * target.gpu.memory_bytes_per_s
