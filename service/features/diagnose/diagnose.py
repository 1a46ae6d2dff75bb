"""Diagnosis of an out-of-memory error: its message compared with the estimate, and changes that help."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service.answers.diagnoses import Cause, ComparedLine, ComparedTotal, Confidence, Diagnosis, Said
from service.catalogue import Catalogue
from service.estimator import advice as memory_changes
from service.estimator import estimate_memory
from service.estimator.advice import ranked_changes
from service.estimator.answer import Memory
from service.estimator.run.stages import Point
from service.features.diagnose.hypotheses import (
    NEAR_FRACTION,
    Hypothesis,
    eager_hypothesis,
    evaluate_hypothesis,
    likeliest_hypothesis,
)
from service.features.diagnose.schemas import BESIDE, read_report
from service.features.estimates.answers import grounds_of
from service.units import BYTES, in_units
from service.validation.questions import ParsedQuestion, read_question
from service.validation.serialization import to_bytes

NOTICEABLE_FRACTION = 0.02
"""Share of a device's memory above which other processes count. Source: a choice; a CUDA context has half a GiB."""

EXPANDABLE = "set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before torch 2.9)"

LIBRARY_KINDS = frozenset({"cuda_error", "cublas", "nccl"})
HOST_KINDS = frozenset({"cpu_allocator", "oom_killer", "killed"})


@dataclass(frozen=True, slots=True)
class Explanation:
    """A cause and its reason."""

    cause: Cause
    reason: str
    confidence: Confidence
    first: str | None = None
    """First remedy before any change of the question; None where such a change helps."""


def needed_bytes(oom: Said) -> float | None:
    """Live tensors plus the requested allocation."""
    if oom.allocated_bytes is None:
        return oom.peak_allocated_bytes
    return max(oom.allocated_bytes + (oom.requested_bytes or 0.0), oom.peak_allocated_bytes or 0.0)


def others_bytes(oom: Said) -> float:
    """Memory of other processes: named, or neither free nor of this process."""
    if oom.other_processes_bytes is not None:
        return oom.other_processes_bytes
    if oom.capacity_bytes is None or oom.free_bytes is None or oom.process_bytes is None:
        return 0.0
    left = oom.capacity_bytes - oom.free_bytes - oom.process_bytes
    return left if left > NOTICEABLE_FRACTION * oom.capacity_bytes else 0.0


def explain_failure(oom: Said, memory: Memory, peak_bytes: float, *, is_explained: bool) -> Explanation:
    """Why memory ran out."""
    if oom.kind in HOST_KINDS:
        return _host_memory(oom, memory)
    needed = needed_bytes(oom)
    if needed is None:
        return _outside_allocator(oom, memory)
    for explanation in (_limit_or_other_processes(oom, memory, needed, peak_bytes), _fragmentation(oom, needed)):
        if explanation is not None:
            return explanation
    return _peak_cause(memory, needed, peak_bytes, others_bytes(oom), is_explained=is_explained)


def _limit_or_other_processes(oom: Said, memory: Memory, needed: float, peak_bytes: float) -> Explanation | None:
    """A memory limit, or other processes on the device, where the job itself would fit."""
    others, lacking = others_bytes(oom), (oom.requested_bytes or 0.0) - (oom.free_bytes or 0.0)
    if oom.allowed_bytes is not None and needed > oom.allowed_bytes:
        limit = f"the process was limited to {_b(oom.allowed_bytes)}, and needed {_b(needed)}"
        return Explanation("limited", limit, "high", "raise torch.cuda.set_per_process_memory_fraction")
    would_fit = memory.device_peak_bytes.value <= memory.usable_bytes and needed <= peak_bytes * (1 + NEAR_FRACTION)
    if not would_fit or others < max(lacking, 1.0):
        return None
    text = f"other processes held {_b(others)} of the device, and {_b(max(lacking, 0.0))} were lacking"
    return Explanation("other_processes", text, "high", "end what else runs on the GPU (nvidia-smi lists it)")


def _fragmentation(oom: Said, needed: float) -> Explanation | None:
    """Enough reserved memory beside live tensors, but not in one piece."""
    spare, requested = oom.unallocated_bytes or 0.0, oom.requested_bytes or 0.0
    if oom.free_bytes is None or not spare >= requested > 0 or spare <= NOTICEABLE_FRACTION * needed:
        return None
    text = f"{_b(requested)} were asked for while {_b(spare)} lay in pieces that the allocator could not join"
    return Explanation("fragmentation", text, "high", EXPANDABLE)


def _peak_cause(memory: Memory, needed: float, peak_bytes: float, others: float, *, is_explained: bool) -> Explanation:
    """More than predicted, as predicted on a device with less memory, or less room than expected."""
    if needed > peak_bytes * (1 + NEAR_FRACTION):
        text = f"{_b(needed)} of live tensors were needed, and the estimate tells {_b(peak_bytes)} at its peak"
        return Explanation("larger_than_predicted", text, "high" if is_explained else "medium")
    if memory.device_peak_bytes.high > memory.usable_bytes:
        peak = f"the estimate tells a peak of {_b(memory.device_peak_bytes.value)} on a GPU that has"
        beside = f", and other processes held {_b(others)} of it" if others else ""
        return Explanation("too_large", f"as predicted: {peak} {_b(memory.usable_bytes)}{beside}", "high")
    text = f"{_b(needed)} were needed, no more than the {_b(peak_bytes)} that fit: the device had less room"
    return Explanation("less_room", text, "medium", "look at what else holds memory of the device: nvidia-smi")


def _unexpected_tensor(tensor: str, oom: Said) -> Explanation:
    """A requested allocation that matches a tensor outside the question."""
    text = f"{_b(oom.requested_bytes or 0.0)} were asked for, the size of {tensor}, which the estimate does not have"
    return Explanation("larger_than_predicted", text, "high")


def _host_memory(oom: Said, memory: Memory) -> Explanation:
    when = "" if oom.requested_bytes is None else f" when {_b(oom.requested_bytes)} were asked for"
    text = f"memory of the node ran out{when}, not of a GPU; a rank is predicted to take {_b(memory.host_bytes)} of it"
    first = "ask for more memory of the node (Slurm: --mem), or have fewer data-loader workers and no offload"
    return Explanation("host_memory", text, "low" if oom.kind == "killed" else "high", first)


def _outside_allocator(oom: Said, memory: Memory) -> Explanation:
    outside = memory.device_peak_bytes.value - memory.reserved_peak_bytes.value
    if oom.kind in LIBRARY_KINDS:
        text = f"a library found no memory outside torch's allocator, where {_b(outside)} are predicted"
        first = "leave libraries room: torch.cuda.set_per_process_memory_fraction, or a smaller peak"
        return Explanation("outside_allocator", text, "medium", first)
    is_large = memory.device_peak_bytes.high > memory.usable_bytes
    tail = "; the estimate does not fit either" if is_large else ""
    return Explanation("too_large" if is_large else "not_told", f"the message tells no live bytes{tail}", "low")


def _b(amount: float) -> str:
    return in_units(amount, BYTES)


CHANGEABLE = frozenset({"too_large", "larger_than_predicted", "less_room", "not_told", "outside_allocator"})
"""Causes that a change of the question can remove."""

ANOTHER_DEVICE_FRACTION = 0.08
"""Share by which a device may differ from that of the question. Source: a choice; drivers reserve up to 5 %."""


def diagnosis_json(body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    """Diagnose an out-of-memory error and serialize the answer."""
    return to_bytes(diagnose(body, catalogue))


def diagnose(body: Mapping[str, Any], catalogue: Catalogue) -> Diagnosis:
    """Diagnose an out-of-memory error."""
    question = {name: value for name, value in body.items() if name not in BESIDE}
    parsed, oom = read_question(question, catalogue, beside=BESIDE), read_report(body)
    answer = estimate_memory(parsed.question)
    needed = needed_bytes(oom)
    own = evaluate_hypothesis(parsed.question, oom)
    is_more = needed is not None and needed > own.peak_bytes * (1 + NEAR_FRACTION)
    more = likeliest_hypothesis(parsed.question, oom, needed, own) if is_more and needed is not None else own
    cause = explain_failure(oom, answer.memory, own.peak_bytes, is_explained=more is not own)
    mends = cause.cause in CHANGEABLE
    ran = eager_hypothesis(parsed.question, oom, own) if more is own and mends else more
    if ran is not more:
        cause = _unexpected_tensor(ran.tensors[0].tensor, oom)
    point = _point(ran, oom, needed)
    changes = ranked_changes(ran.question, answer.memory.biggest_line) if mends else ()
    grounds = grounds_of(answer, parsed, catalogue)
    return Diagnosis(
        id=grounds["id"],
        cause=cause.cause,
        reason=cause.reason if ran.difference is None else f"{cause.reason}; so it seems that {ran.difference.message}",
        confidence=cause.confidence,
        verdict=answer.verdict,
        said=oom,
        step=None if point is None else point.step,
        moment=oom.moment if point is None else point.moment,
        totals=tuple(_totals(oom, answer.memory, needed)),
        lines=() if point is None else _lines(own, ran, point, needed),
        tensors=ran.tensors,
        supposition=ran.difference,
        changes=changes,
        suggestions=_suggestions(cause, changes, ran),
        warnings=tuple(_warnings(oom, answer.memory, parsed)),
        versions=grounds["versions"],
    )


def _suggestions(cause: Explanation, changes: tuple[Any, ...], ran: Hypothesis) -> tuple[str, ...]:
    own = () if ran.difference is None else (f"see whether it ran as it is asked: {ran.difference.message}",)
    first = () if cause.first is None else (cause.first,)
    return (*first, *own, *map(memory_changes.describe_change, changes))


def _point(ran: Hypothesis, oom: Said, needed: float | None) -> Point | None:
    """Moment of failure: that of the traceback, or the first one that needs as much."""
    points = ran.peak_stage.points
    if oom.kind in LIBRARY_KINDS or needed is None:
        return None
    candidates = [point for point in points if oom.moment in (None, point.moment)] or list(points)
    enough = (point for point in candidates if point.allocated_bytes * (1 + NEAR_FRACTION) >= needed)
    return next(enough, max(candidates, key=lambda point: point.allocated_bytes))


def _lines(own: Hypothesis, ran: Hypothesis, point: Point, needed: float | None) -> tuple[ComparedLine, ...]:
    """Each line with its predicted and likely bytes, and the unexplained rest."""
    place = ran.peak_stage.points.index(point)
    likely = dict(zip(ran.peak_stage.kinds, point.series_bytes, strict=True))
    same = [one for one in own.peak_stage.points if (one.step, one.moment) == (point.step, point.moment)]
    mine = own.peak_stage.points[place] if own is ran else (same or [own.peak_stage.points[-1]])[-1]
    predicted = dict(zip(own.peak_stage.kinds, mine.series_bytes, strict=True))
    rest = 0.0 if needed is None else max(needed - sum(likely.values()), 0.0)
    rows = [
        ComparedLine(
            kind=kind,
            predicted_bytes=predicted.get(kind, 0.0),
            likely_bytes=likely.get(kind, 0.0),
            difference_bytes=likely.get(kind, 0.0) - predicted.get(kind, 0.0),
        )
        for kind in dict.fromkeys((*predicted, *likely))
        if predicted.get(kind) or likely.get(kind)
    ]
    if rest > NEAR_FRACTION * sum(likely.values()):
        rows.append(ComparedLine(kind="unexplained", predicted_bytes=0.0, likely_bytes=rest, difference_bytes=rest))
    return tuple(sorted(rows, key=lambda row: (-abs(row.difference_bytes), -row.likely_bytes)))


def _totals(oom: Said, memory: Memory, needed: float | None) -> Iterator[ComparedTotal]:
    reserved, process = oom.reserved_bytes, oom.process_bytes
    outside = None if reserved is None or process is None else process - reserved
    beside = memory.device_peak_bytes.value - memory.reserved_peak_bytes.value
    rows: tuple[tuple[Any, float | None, float], ...] = (
        ("live_bytes", needed, memory.allocated_peak_bytes.value),
        ("reserved_bytes", reserved, memory.reserved_peak_bytes.value),
        ("outside_allocator_bytes", outside, beside),
        ("process_bytes", process, memory.device_peak_bytes.value),
        ("capacity_bytes", oom.capacity_bytes, memory.usable_bytes),
    )
    for quantity, reported, predicted in rows:
        if reported is not None:
            yield ComparedTotal(
                quantity=quantity, said_bytes=reported, predicted_bytes=predicted, difference_bytes=reported - predicted
            )


def _warnings(oom: Said, memory: Memory, parsed: ParsedQuestion) -> Iterator[str]:
    yield from parsed.warnings
    if oom.capacity_bytes is not None:
        off = abs(oom.capacity_bytes / memory.usable_bytes - 1)
        if off > ANOTHER_DEVICE_FRACTION:
            yield "the message is from a GPU of another size than the one that is asked about"
    if oom.private_pools_bytes:
        yield "CUDA graphs hold memory of their own, of which no estimate is made"
    if oom.kind == "killed":
        yield "a process that is killed need not have run out of memory: look for oom-kill in the kernel's log"
