"""What does an answer say of memory?"""

from dataclasses import dataclass
from typing import Literal

from service.estimator.interval import Interval

Verdict = Literal["fits", "at_risk", "out_of_memory"]
Phase = Literal["loss", "backward", "reduction", "optimizer", "idle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """One kind of tensor on one rank of a stage, at that stage's peak."""

    kind: str
    """What the bytes are, e.g. weights, gradients, optimizer_states, activations, logits."""
    bytes: float
    """Bytes on one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of one rank of one pipeline stage at its peak."""

    stage: int
    """Stage, from 0."""
    layers: int
    """Transformer layers it holds."""
    micro_batches_in_flight: float
    """Micro-batches whose activations it keeps at once."""
    peak_phase: Phase
    """Phase at which the peak falls."""
    allocated_peak_bytes: float
    """Sum of the lines."""
    reserved_peak_bytes: float
    """The same with what the allocator holds beside live tensors."""
    first_step_peak_bytes: float
    """Live tensors at the peak of the first step, when the optimizer has no states yet."""
    idle_bytes: float
    """Live between two steps."""
    lines: tuple[MemoryLine, ...]
    """Each kind of tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One single change of the question that saves memory."""

    field: str
    """Field that changes."""
    value: str
    """Its new value."""
    also: tuple[str, ...]
    """Fields that have to be set with it, e.g. layout.data=4."""
    saves_bytes: float
    """Device peak before, less the device peak with it."""
    device_peak_bytes: float
    """Device peak with it."""
    verdict: Verdict
    """Whether the job fits with it."""
    slower_fraction: float
    """Seconds of a step with it over those before, less one; below 0 it is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of the fullest GPU, and of every stage."""

    allocated_peak_bytes: Interval
    """Live tensors at the peak (torch.cuda.max_memory_allocated)."""
    reserved_peak_bytes: Interval
    """With the allocator's slack (torch.cuda.max_memory_reserved)."""
    device_peak_bytes: Interval
    """With context and communicators (what nvidia-smi shows)."""
    usable_bytes: float
    """Memory a job can use on this GPU."""
    headroom_bytes: float
    """usable_bytes - device_peak_bytes; negative when bytes are missing."""
    host_bytes: float
    """Bytes one rank keeps in host memory (offload)."""
    oom_probability_fraction: float
    """Probability that the device peak exceeds the usable memory."""
    peak_stage: int
    """Fullest stage."""
    peak_phase: Phase
    """Phase at which its peak falls."""
    biggest_line: str
    """Largest line of the fullest stage."""
    checkpoint_bytes: float
    """A checkpoint of the whole job on disk: weights, master weights and optimizer states of what is trained."""
    changes: tuple[Change, ...]
    """Single changes when it does not surely fit: those first that make it fit, the cheapest in time before others."""
    suggestions: tuple[str, ...]
    """The same in words."""
    stages: tuple[StageMemory, ...]
    """Every pipeline stage."""
