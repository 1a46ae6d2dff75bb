"""Does the job fit on the fullest GPU, and what would make it fit?"""

from service.estimator.allocator import reserved_interval, reserved_shares
from service.estimator.answer import Change, Memory
from service.estimator.changes import ranked_changes
from service.estimator.checkpoint import checkpoint_bytes
from service.estimator.device import beside_allocator, device_interval, headroom_bytes, usable_bytes
from service.estimator.residuals import allocated_interval
from service.estimator.resolve import Resolved
from service.estimator.stage_answers import LoadedStage, stage_memory
from service.estimator.verdict import oom_probability_fraction, verdict_of
from service.units import BYTES, said


def memory_of(resolved: Resolved, stages: list[LoadedStage]) -> Memory:
    """The memory part of an answer.

    Args:
        resolved: the question
        stages: its stages

    Returns:
        the bytes of the fullest GPU with their intervals, of every stage, and changes where it does not surely fit
    """
    job, layout = resolved.job, resolved.question.layout
    answers = [stage_memory(job, resolved.degrees, layout, stage) for stage in stages]
    fullest, _ = max(answers, key=lambda answer: answer[0].reserved_peak_bytes)
    allocated = allocated_interval(job, fullest.allocated_peak_bytes)
    reserved = reserved_interval(allocated, fullest.reserved_peak_bytes, reserved_shares(job))
    device = device_interval(reserved, beside_allocator(job))
    usable = usable_bytes(job.gpu)
    probability = oom_probability_fraction(device, usable)
    biggest = max(fullest.lines, key=lambda line: line.bytes).kind
    changes = () if verdict_of(probability) == "fits" else ranked_changes(resolved, biggest)
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
        changes=changes,
        suggestions=tuple(map(in_words, changes)),
        stages=tuple(stage for stage, _ in answers),
    )


def in_words(change: Change) -> str:
    """A change as a person reads it.

    Args:
        change: the change

    Returns:
        what to set, what it saves, what it costs, and whether it is enough

    >>> full = Change(
    ...     field="recipe.recompute", value="full", saves_bytes=2.0**30, device_peak_bytes=1.0, fits=True,
    ...     slower_fraction=0.3,
    ... )
    >>> in_words(full)
    'recompute full: saves 1 GiB, 30 % slower, fits'
    """
    percent = round(100 * change.slower_fraction)
    pace = "as fast" if percent == 0 else f"{abs(percent)} % {'slower' if percent > 0 else 'faster'}"
    enough = "fits" if change.fits else "not enough alone"
    return f"{change.field.partition('.')[2]} {change.value}: saves {said(change.saves_bytes, BYTES)}, {pace}, {enough}"
