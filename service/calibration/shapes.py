"""Does a measurement say enough of what was measured for formulas to speak of it?"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from service.calibration.records import Measurement, ProbeName

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

    Args:
        probe: which probe
        measurement: what it measured

    Returns:
        the field and what is wrong with it; None where nothing is

    >>> from service.calibration.records import Measurement
    >>> fault_of("gemm", Measurement(operation="forward", shape={"rows": 4}, quantity="seconds", value=1.0, low=1.0,
    ...                              high=1.0, repeats=20))
    ('shape.columns', 'columns is no whole number from 1 on')
    """
    return shape_fault(probe, measurement.shape) or _value_fault(measurement)


def shape_fault(probe: ProbeName, shape: Mapping[str, Any]) -> tuple[str, str] | None:
    """What of a shape nobody can read.

    Args:
        probe: which probe
        shape: the shape

    Returns:
        the field and what is wrong with it; None where nothing is
    """
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
