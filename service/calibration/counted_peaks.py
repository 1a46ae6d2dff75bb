"""Which peaks of live tensors were counted while real steps of reduced depth ran?"""

from dataclasses import dataclass
from functools import cache

from service.calibration.tables import shipped_table


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPeak:
    """The peak of one step."""

    model: str
    """Preset, at full width."""
    layers: int
    """Layers that it was cut to."""
    sequence_length: int
    """Tokens of a sequence."""
    micro_batch: int
    """Sequences of a step."""
    precision: str
    """Precision recipe."""
    attention: str
    """Attention kernel."""
    optimizer: str
    """Optimizer."""
    step: int
    """Step, from 1."""
    live_bytes_peak: int
    """Most bytes of tensors at once, temporaries inside operations counted."""
    source: str
    """Who counted, with what."""
    as_of: str
    """When."""


@cache
def counted_peaks() -> tuple[CountedPeak, ...]:
    """The peaks that the package ships.

    Returns:
        the rows, read once a process
    """
    return tuple(_peak(row) for row in shipped_table("counted_peaks"))


def _peak(row: dict[str, str]) -> CountedPeak:
    return CountedPeak(
        model=row["model"],
        layers=int(row["layers"]),
        sequence_length=int(row["sequence_length"]),
        micro_batch=int(row["micro_batch"]),
        precision=row["precision"],
        attention=row["attention"],
        optimizer=row["optimizer"],
        step=int(row["step"]),
        live_bytes_peak=int(row["live_bytes_peak"]),
        source=row["source"],
        as_of=row["as_of"],
    )
