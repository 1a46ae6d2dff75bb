"""Why a job ran out of memory: its message beside its estimate, and what to change."""

from collections.abc import Iterator, Mapping
from typing import Any

from service.answers.diagnoses import ComparedLine, ComparedTotal, Diagnosis, Said
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator import changes as memory_changes
from service.estimator import estimate_memory
from service.estimator.changes import ranked_changes
from service.estimator.memory_parts import Memory
from service.estimator.timeline import Point
from service.workflows.diagnosis.causes import OUTSIDE, Found, found_cause, needed_bytes, of_a_tensor
from service.workflows.diagnosis.messages import EXAMPLE, read_message
from service.workflows.diagnosis.suppositions import NEAR_FRACTION, Supposed, given_away, likeliest, supposed
from service.workflows.estimates import grounds_of
from service.workflows.questions import Asked, read_question
from service.workflows.wire import to_bytes

BESIDE = ("message", "memory_stats")
"""What a diagnosis reads beside the question."""

OF_THE_QUESTION = frozenset({"too_large", "larger_than_predicted", "less_room", "not_told", "outside_allocator"})
"""Causes that a change of the question mends."""

ANOTHER_DEVICE_FRACTION = 0.08
"""Share by which a device may differ from the one that is asked about. Source: a choice; drivers keep up to 5 %."""


def diagnose(body: Mapping[str, Any], catalogue: Catalogue) -> Diagnosis:
    """Why memory ran out.

    Args:
        body: a question, and beside its nouns `message`, `memory_stats` or both
        catalogue: the facts

    Returns:
        the cause, the comparison line by line, and what to change

    Raises:
        Refused: the question cannot be answered, or the message is none that is understood
    """
    asked = read_question({name: value for name, value in body.items() if name not in BESIDE}, catalogue, beside=BESIDE)
    return _diagnosed(asked, _read(body), catalogue)


def diagnosis_sent(body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    """Why memory ran out, as it is sent.

    Args:
        body: a question, and beside its nouns `message`, `memory_stats` or both
        catalogue: the facts

    Returns:
        the content of the answer

    Raises:
        Refused: the question cannot be answered, or the message is none that is understood
    """
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


def _diagnosed(asked: Asked, said: Said, catalogue: Catalogue) -> Diagnosis:
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
    return (*first, *own, *map(memory_changes.in_words, changes))


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


def _warnings(said: Said, memory: Memory, asked: Asked) -> Iterator[str]:
    yield from asked.warnings
    if said.capacity_bytes is not None:
        off = abs(said.capacity_bytes / memory.usable_bytes - 1)
        if off > ANOTHER_DEVICE_FRACTION:
            yield "the message is from a GPU of another size than the one that is asked about"
    if said.private_pools_bytes:
        yield "CUDA graphs hold memory of their own, of which no estimate is made"
    if said.kind == "killed":
        yield "a process that is killed need not have run out of memory: look for oom-kill in the kernel's log"
