"""Diagnosis of an out-of-memory error: its message beside the estimate, and what to change."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service.answers.diagnoses import Cause, ComparedLine, ComparedTotal, Confidence, Diagnosis, Said
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator import estimate_memory
from service.estimator.advice import changes as memory_changes
from service.estimator.advice.changes import ranked_changes
from service.estimator.answer import Memory
from service.estimator.run.stages import Point
from service.features.diagnose.hypotheses import NEAR_FRACTION, Supposed, given_away, likeliest, supposed
from service.features.diagnose.messages import EXAMPLE, read_message
from service.features.estimates.answers import grounds_of
from service.units import BYTES
from service.units import in_units as in_words
from service.validation.questions import ReadQuestion, read_question
from service.validation.serialization import to_bytes

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
    """Live tensors with what was asked for."""
    if said.allocated_bytes is None:
        return said.peak_allocated_bytes
    return max(said.allocated_bytes + (said.requested_bytes or 0.0), said.peak_allocated_bytes or 0.0)


def others_bytes(said: Said) -> float:
    """What others held on the device: named, or what is neither free nor the process's."""
    if said.other_processes_bytes is not None:
        return said.other_processes_bytes
    if said.capacity_bytes is None or said.free_bytes is None or said.process_bytes is None:
        return 0.0
    left = said.capacity_bytes - said.free_bytes - said.process_bytes
    return left if left > NOTICEABLE_FRACTION * said.capacity_bytes else 0.0


def found_cause(said: Said, memory: Memory, peak_bytes: float, *, is_explained: bool) -> Found:
    """Why memory ran out."""
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
    """What was asked for is a tensor that the question does not have."""
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


BESIDE = ("message", "memory_stats")
"""What a diagnosis reads beside the question."""

OF_THE_QUESTION = frozenset({"too_large", "larger_than_predicted", "less_room", "not_told", "outside_allocator"})
"""Causes that a change of the question mends."""

ANOTHER_DEVICE_FRACTION = 0.08
"""Share by which a device may differ from the one that is asked about. Source: a choice; drivers keep up to 5 %."""


def diagnose(body: Mapping[str, Any], catalogue: Catalogue) -> Diagnosis:
    """Why memory ran out."""
    asked = read_question({name: value for name, value in body.items() if name not in BESIDE}, catalogue, beside=BESIDE)
    return _diagnosed(asked, _read(body), catalogue)


def diagnosis_sent(body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    """Why memory ran out, as it is sent."""
    return to_bytes(diagnose(body, catalogue))


def _read(body: Mapping[str, Any]) -> Said:
    text, stats = body.get("message"), body.get("memory_stats")
    if text is None and stats is None:
        fix = f'give message, e.g. "{EXAMPLE}", or memory_stats, what torch.cuda.memory_stats() gives'
        raise Refused(Problem(field="message", code="required", message="there is nothing to diagnose", fix=fix))
    if text is not None and not isinstance(text, str):
        raise Refused(Problem(field="message", code="not_text", message="it is no text", fix="send it as a string"))
    if stats is not None and not isinstance(stats, Mapping):
        fix = "send the object that torch.cuda.memory_stats() gives, as JSON"
        raise Refused(Problem(field="memory_stats", code="not_object", message="it is no object", fix=fix))
    return read_message(text or "", stats)


def _diagnosed(asked: ReadQuestion, said: Said, catalogue: Catalogue) -> Diagnosis:
    found = estimate_memory(asked.question)
    needed = needed_bytes(said)
    own = supposed(asked.question, said)
    is_more = needed is not None and needed > own.peak_bytes * (1 + NEAR_FRACTION)
    more = likeliest(asked.question, said, needed, own) if is_more and needed is not None else own
    cause = found_cause(said, found.memory, own.peak_bytes, is_explained=more is not own)
    mends = cause.cause in OF_THE_QUESTION
    ran = given_away(asked.question, said, own) if more is own and mends else more
    if ran is not more:
        cause = of_a_tensor(ran.tensors[0].tensor, said)
    point = _point(ran, said, needed)
    changes = ranked_changes(ran.question, found.memory.biggest_line) if mends else ()
    grounds = grounds_of(found, asked, catalogue)
    return Diagnosis(
        id=grounds["id"],
        cause=cause.cause,
        reason=cause.reason
        if ran.supposition is None
        else f"{cause.reason}; so it seems that {ran.supposition.message}",
        confidence=cause.confidence,
        verdict=found.verdict,
        said=said,
        step=None if point is None else point.step,
        moment=said.moment if point is None else point.moment,
        totals=tuple(_totals(said, found.memory, needed)),
        lines=() if point is None else _lines(own, ran, point, needed),
        tensors=ran.tensors,
        supposition=ran.supposition,
        changes=changes,
        suggestions=_suggestions(cause, changes, ran),
        warnings=tuple(_warnings(said, found.memory, asked)),
        versions=grounds["versions"],
    )


def _suggestions(cause: Found, changes: tuple[Any, ...], ran: Supposed) -> tuple[str, ...]:
    own = () if ran.supposition is None else (f"see whether it ran as it is asked: {ran.supposition.message}",)
    first = () if cause.first is None else (cause.first,)
    return (*first, *own, *map(memory_changes.describe_change, changes))


def _point(ran: Supposed, said: Said, needed: float | None) -> Point | None:
    """The moment of failure: that of the traceback, or the first one that needs as much."""
    points = ran.fullest.points
    if said.kind in OUTSIDE or needed is None:
        return None
    told = [point for point in points if said.moment in (None, point.moment)] or list(points)
    enough = (point for point in told if point.allocated_bytes * (1 + NEAR_FRACTION) >= needed)
    return next(enough, max(told, key=lambda point: point.allocated_bytes))


def _lines(own: Supposed, ran: Supposed, point: Point, needed: float | None) -> tuple[ComparedLine, ...]:
    """Each line as it is predicted and as it seems to have been, and what no line explains."""
    place = ran.fullest.points.index(point)
    likely = dict(zip(ran.fullest.kinds, point.series_bytes, strict=True))
    same = [one for one in own.fullest.points if (one.step, one.moment) == (point.step, point.moment)]
    mine = own.fullest.points[place] if own is ran else (same or [own.fullest.points[-1]])[-1]
    predicted = dict(zip(own.fullest.kinds, mine.series_bytes, strict=True))
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


def _totals(said: Said, memory: Memory, needed: float | None) -> Iterator[ComparedTotal]:
    reserved, process = said.reserved_bytes, said.process_bytes
    outside = None if reserved is None or process is None else process - reserved
    beside = memory.device_peak_bytes.value - memory.reserved_peak_bytes.value
    rows: tuple[tuple[Any, float | None, float], ...] = (
        ("live_bytes", needed, memory.allocated_peak_bytes.value),
        ("reserved_bytes", reserved, memory.reserved_peak_bytes.value),
        ("outside_allocator_bytes", outside, beside),
        ("process_bytes", process, memory.device_peak_bytes.value),
        ("capacity_bytes", said.capacity_bytes, memory.usable_bytes),
    )
    for quantity, told, predicted in rows:
        if told is not None:
            yield ComparedTotal(
                quantity=quantity, said_bytes=told, predicted_bytes=predicted, difference_bytes=told - predicted
            )


def _warnings(said: Said, memory: Memory, asked: ReadQuestion) -> Iterator[str]:
    yield from asked.warnings
    if said.capacity_bytes is not None:
        off = abs(said.capacity_bytes / memory.usable_bytes - 1)
        if off > ANOTHER_DEVICE_FRACTION:
            yield "the message is from a GPU of another size than the one that is asked about"
    if said.private_pools_bytes:
        yield "CUDA graphs hold memory of their own, of which no estimate is made"
    if said.kind == "killed":
        yield "a process that is killed need not have run out of memory: look for oom-kill in the kernel's log"
