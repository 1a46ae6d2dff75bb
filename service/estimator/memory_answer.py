"""What does the fullest GPU hold, and does the job fit?"""

from service.estimator.allocator import reserved_interval, reserved_shares
from service.estimator.checkpoint import checkpoint_bytes
from service.estimator.device import beside_allocator, device_interval, headroom_bytes, memory_basis, usable_bytes
from service.estimator.memory_parts import Memory
from service.estimator.residuals import allocated_interval
from service.estimator.resolve import Resolved
from service.estimator.stage_answers import LoadedStage, stage_memory
from service.estimator.verdict import oom_probability_fraction


def memory_of(resolved: Resolved, stages: list[LoadedStage]) -> Memory:
    """The memory part of an answer.

    Args:
        resolved: the question
        stages: its stages

    Returns:
        the bytes of the fullest GPU with their intervals, and of every stage; `advised` adds what to change
    """
    job, layout = resolved.job, resolved.question.layout
    answers = [stage_memory(job, resolved.degrees, layout, stage) for stage in stages]
    fullest, _ = max(answers, key=lambda answer: answer[0].reserved_peak_bytes)
    allocated = allocated_interval(job, fullest.allocated_peak_bytes)
    reserved = reserved_interval(allocated, fullest.reserved_peak_bytes, reserved_shares(job))
    device = device_interval(reserved, beside_allocator(job), memory_basis(job.gpu))
    usable = usable_bytes(job.gpu)
    probability = oom_probability_fraction(device, usable)
    biggest = max(fullest.lines, key=lambda line: line.bytes).kind
    return Memory(
        allocated_peak_bytes=allocated,
        reserved_peak_bytes=reserved,
        device_peak_bytes=device,
        usable_bytes=usable,
        headroom_bytes=headroom_bytes(usable, device),
        host_bytes=max(host_bytes for _, host_bytes in answers),
        oom_probability_fraction=probability,
        peak_stage=fullest.stage,
        peak_phase=fullest.peak_phase,
        biggest_line=biggest,
        checkpoint_bytes=checkpoint_bytes(job),
        changes=(),
        suggestions=(),
        stages=tuple(stage for stage, _ in answers),
    )


def filled_fraction(memory: Memory) -> float:
    """Share of the device's room that the allocator holds at the peak.

    Formula:
        reserved / usable

    Args:
        memory: the memory of an answer

    Returns:
        share [1]

    Source:
        definition

    >>> from service.estimator.samples import sample_resolved
    >>> from service.estimator.stage_answers import stages_of
    >>> found = sample_resolved()
    >>> filled_fraction(memory_of(found, stages_of(found.job, found.degrees, found.question.layout))) > 1
    True
    """
    return memory.reserved_peak_bytes.value / memory.usable_bytes
