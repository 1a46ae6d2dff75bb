"""Peak of live tensors of a step, without libraries and the allocator, and the peaks that were counted.

The step probe counts the same on a processor, where no library keeps a workspace in torch's allocator.
"""

from dataclasses import dataclass
from functools import cache

from service.calibration.tables import shipped_table
from service.estimator.memory.memory import first_step_peak_bytes, stage_bytes
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run.stages import stages_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBytes:
    """Live tensors of one GPU at the fullest moment of a step."""

    first_step_bytes: float
    """Of the first step, before which the optimizer has no states."""
    later_steps_bytes: float
    """Of any later one."""

    def of_step(self, step: int) -> float:
        """Those of one step."""
        return self.first_step_bytes if step == 1 else self.later_steps_bytes


def live_step_bytes(resolved: ResolvedQuestion) -> LiveBytes:
    """Live tensors at the fullest moment of the first step and of later ones, on the fullest GPU.

    Formula:
        peak of the estimate - workspaces of the matrix libraries

    Args:
        resolved: the configuration

    Returns:
        bytes of one GPU

    Source:
        memory.LIVE; first_step.first_step_peak_bytes

    >>> from service.estimator.samples import sample_resolved
    >>> found = live_step_bytes(sample_resolved())
    >>> found.of_step(1) <= found.of_step(3)
    True
    """
    job, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    stages = [stage_bytes(job, degrees, one.stage, one.load, layout) for one in stages_of(job, degrees, layout)]
    several = float(degrees.accumulation) > 1
    return LiveBytes(
        first_step_bytes=max(first_step_peak_bytes(one, several=several) - float(one.workspace) for one in stages),
        later_steps_bytes=max(float(one.peak) - float(one.workspace) for one in stages),
    )


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
    """The peaks that the package ships."""
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
