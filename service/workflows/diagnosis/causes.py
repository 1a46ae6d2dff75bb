"""Why did memory run out? What a message says, weighed against what is predicted."""

from dataclasses import dataclass

from service.answers.diagnoses import Cause, Confidence, Said
from service.estimator.memory_parts import Memory
from service.units import BYTES
from service.units import said as in_words
from service.workflows.diagnosis.suppositions import NEAR_FRACTION

NOTICEABLE_FRACTION = 0.02
"""Share of a device's memory from which on others in it count. Source: a choice; a CUDA context has half a GiB."""

EXPANDABLE = "set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before torch 2.9)"

OUTSIDE = frozenset({"cuda_error", "cublas", "nccl"})
OF_HOST = frozenset({"cpu_allocator", "oom_killer", "killed"})


@dataclass(frozen=True, slots=True)
class Found:
    """A cause, in a word and in one line."""

    cause: Cause
    reason: str
    confidence: Confidence
    first: str | None = None
    """What to do before any change of the question; None where such a change is what helps."""


def needed_bytes(said: Said) -> float | None:
    """Live tensors with what was asked for.

    Args:
        said: what the message says

    Returns:
        bytes [byte]; None where it does not tell of live tensors
    """
    if said.allocated_bytes is None:
        return said.peak_allocated_bytes
    return max(said.allocated_bytes + (said.requested_bytes or 0.0), said.peak_allocated_bytes or 0.0)


def others_bytes(said: Said) -> float:
    """What others held on the device: named, or what is neither free nor the process's.

    Args:
        said: what the message says

    Returns:
        bytes [byte]; 0 where the message does not tell
    """
    if said.other_processes_bytes is not None:
        return said.other_processes_bytes
    if said.capacity_bytes is None or said.free_bytes is None or said.process_bytes is None:
        return 0.0
    left = said.capacity_bytes - said.free_bytes - said.process_bytes
    return left if left > NOTICEABLE_FRACTION * said.capacity_bytes else 0.0


def found_cause(said: Said, memory: Memory, peak_bytes: float, *, is_explained: bool) -> Found:
    """Why memory ran out.

    Args:
        said: what the message says
        memory: what the estimate says
        peak_bytes: live bytes that are predicted for the peak
        is_explained: whether a supposed difference explains that more was needed

    Returns:
        the cause
    """
    if said.kind in OF_HOST:
        return _of_host(said, memory)
    needed = needed_bytes(said)
    if needed is None:
        return _outside(said, memory)
    for found in (_elsewhere(said, memory, needed, peak_bytes), _in_pieces(said, needed)):
        if found is not None:
            return found
    return _of_the_question(memory, needed, peak_bytes, others_bytes(said), is_explained=is_explained)


def _elsewhere(said: Said, memory: Memory, needed: float, peak_bytes: float) -> Found | None:
    """A limit, or others on the device, where the job itself would fit."""
    others, lacking = others_bytes(said), (said.requested_bytes or 0.0) - (said.free_bytes or 0.0)
    if said.allowed_bytes is not None and needed > said.allowed_bytes:
        limit = f"the process was limited to {_b(said.allowed_bytes)}, and needed {_b(needed)}"
        return Found("limited", limit, "high", "raise torch.cuda.set_per_process_memory_fraction")
    would_fit = memory.device_peak_bytes.value <= memory.usable_bytes and needed <= peak_bytes * (1 + NEAR_FRACTION)
    if not would_fit or others < max(lacking, 1.0):
        return None
    text = f"other processes held {_b(others)} of the device, and {_b(max(lacking, 0.0))} were lacking"
    return Found("other_processes", text, "high", "end what else runs on the GPU (nvidia-smi lists it)")


def _in_pieces(said: Said, needed: float) -> Found | None:
    """The allocator held enough beside live tensors, but not in one piece."""
    spare, requested = said.unallocated_bytes or 0.0, said.requested_bytes or 0.0
    if said.free_bytes is None or not spare >= requested > 0 or spare <= NOTICEABLE_FRACTION * needed:
        return None
    text = f"{_b(requested)} were asked for while {_b(spare)} lay in pieces that the allocator could not join"
    return Found("fragmentation", text, "high", EXPANDABLE)


def _of_the_question(memory: Memory, needed: float, peak_bytes: float, others: float, *, is_explained: bool) -> Found:
    """More than is predicted, as much as is predicted on a device that has less, or less room than there should be."""
    if needed > peak_bytes * (1 + NEAR_FRACTION):
        text = f"{_b(needed)} of live tensors were needed, and the estimate tells {_b(peak_bytes)} at its peak"
        return Found("larger_than_predicted", text, "high" if is_explained else "medium")
    if memory.device_peak_bytes.high > memory.usable_bytes:
        peak = f"the estimate tells a peak of {_b(memory.device_peak_bytes.value)} on a GPU that has"
        beside = f", and other processes held {_b(others)} of it" if others else ""
        return Found("too_large", f"as predicted: {peak} {_b(memory.usable_bytes)}{beside}", "high")
    text = f"{_b(needed)} were needed, no more than the {_b(peak_bytes)} that fit: the device had less room"
    return Found("less_room", text, "medium", "look at what else holds memory of the device: nvidia-smi")


def of_a_tensor(tensor: str, said: Said) -> Found:
    """What was asked for is a tensor that the question does not have.

    Args:
        tensor: the tensor, in words
        said: what the message says

    Returns:
        the cause
    """
    text = f"{_b(said.requested_bytes or 0.0)} were asked for, the size of {tensor}, which the estimate does not have"
    return Found("larger_than_predicted", text, "high")


def _of_host(said: Said, memory: Memory) -> Found:
    asked = "" if said.requested_bytes is None else f" when {_b(said.requested_bytes)} were asked for"
    text = f"memory of the node ran out{asked}, not of a GPU; a rank is predicted to take {_b(memory.host_bytes)} of it"
    first = "ask for more memory of the node (Slurm: --mem), or have fewer data-loader workers and no offload"
    return Found("host_memory", text, "low" if said.kind == "killed" else "high", first)


def _outside(said: Said, memory: Memory) -> Found:
    outside = memory.device_peak_bytes.value - memory.reserved_peak_bytes.value
    if said.kind in OUTSIDE:
        text = f"a library found no memory outside torch's allocator, where {_b(outside)} are predicted"
        first = "leave libraries room: torch.cuda.set_per_process_memory_fraction, or a smaller peak"
        return Found("outside_allocator", text, "medium", first)
    is_large = memory.device_peak_bytes.high > memory.usable_bytes
    tail = "; the estimate does not fit either" if is_large else ""
    return Found("too_large" if is_large else "not_told", f"the message tells no live bytes{tail}", "low")


def _b(amount: float) -> str:
    return in_words(amount, BYTES)
