"""Diagnosis of an out-of-memory error: hypotheses that explain its message, its cause, and changes that help."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

from service.answers.diagnoses import (
    Cause,
    ComparedLine,
    ComparedTotal,
    Confidence,
    Diagnosis,
    MatchedTensor,
    Said,
    Supposition,
)
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator import advice as memory_changes
from service.estimator import estimate_memory
from service.estimator.advice import ranked_changes
from service.estimator.answer import Memory
from service.estimator.memory.activations import rank_logits
from service.estimator.question import Question
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.run import LoadedStage, Point, StageTimeline, peak_stage_in, stages_of, timeline
from service.features.diagnose.schemas import OTHER_FIELDS, read_report
from service.features.estimates.answers import grounds_of
from service.units import BYTES, in_units
from service.validation.questions import ParsedQuestion, read_question
from service.validation.reading import to_bytes

SMALL_BYTES, MIDDLE_BYTES, LARGE_BYTES = 2.0**20, 2.0**21, 10 * 2.0**20
MIDDLE_SEGMENT_BYTES = 20 * 2.0**20
"""Requests up to 1 MiB open a segment of 2 MiB, up to 10 MiB one of 20 MiB, larger ones multiples of 2 MiB.
Source: c10/cuda/CUDACachingAllocator.cpp, get_allocation_size."""
LEAST_MATCHED_BYTES = 2 * MIDDLE_SEGMENT_BYTES
"""Smallest size to match: too many tensors are smaller. Source: a choice; segments of 20 MiB hold any small tensor."""

SCORES = "scores of all pairs of tokens in one layer's attention"

FP32_BYTES = 4.0


def segment_bytes(tensor_bytes: float) -> float:
    """Size of the segment that the allocator requests for a tensor.

    >>> segment_bytes(3.0 * 2**20) / 2**20, segment_bytes(21.5 * 2**20) / 2**20
    (20.0, 22.0)
    """
    if tensor_bytes <= SMALL_BYTES:
        return MIDDLE_BYTES
    if tensor_bytes < LARGE_BYTES:
        return MIDDLE_SEGMENT_BYTES
    return ceil(tensor_bytes / MIDDLE_BYTES) * MIDDLE_BYTES


def matched_tensors(resolved: ResolvedQuestion, stages: list[LoadedStage], oom: Said) -> tuple[MatchedTensor, ...]:
    """Tensors whose segment has the requested size."""
    requested = next((one for one in oom.numbers if one.name == "requested_bytes"), None)
    if requested is None or requested.bytes < LEAST_MATCHED_BYTES:
        return ()
    matches = {
        tensor.tensor: tensor
        for tensor in large_tensors(resolved, stages)
        if abs(segment_bytes(tensor.bytes) - requested.bytes) <= requested.precision_bytes
    }
    return tuple(matches.values())


def large_tensors(resolved: ResolvedQuestion, stages: list[LoadedStage]) -> Iterator[MatchedTensor]:
    """Large tensors of one rank, in the formats in which they occur."""
    job, degrees = resolved.workload, resolved.degrees
    element = job.precision.element_bytes
    tokens = job.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context)
    tensor, heads = float(degrees.tensor), job.model.num_attention_heads
    pairs = float(degrees.micro_batch) * job.recipe.sequence_length**2 / float(degrees.context)
    eager = 1.0 if job.kernel == "eager" else 0.0
    counted = [
        ("logits of a micro-batch", "logits", float(rank_logits(job, degrees))),
        (SCORES, "activations", eager * pairs * heads / tensor),
        ("mask of all pairs of tokens", "attention_mask", eager * pairs),
        ("hidden states of a micro-batch", "activations", tokens * job.model.hidden_size),
        ("inner states of one layer's MLP", "activations", tokens * (job.model.intermediate_size or 0) / tensor),
        *_weights(resolved, stages),
    ]
    for name, kind, count in counted:
        for size, format_name in ((element, "the compute format"), (FP32_BYTES, "fp32")):
            if count > 0:
                yield MatchedTensor(tensor=f"{name}, in {format_name}", kind=kind, bytes=count * size)


def _weights(resolved: ResolvedQuestion, stages: list[LoadedStage]) -> Iterator[tuple[str, str, float]]:
    """Parameters in common groups: a matrix, an all-gathered layer, a buffer of all."""
    model, degrees = resolved.workload.model, resolved.degrees
    matrix = model.hidden_size * (model.intermediate_size or 0) / float(degrees.tensor)
    yield "one matrix of an MLP, its gradient or a moment of it", "weights", matrix
    yield "weights and first matrix of a gated MLP together", "weights", 2 * matrix
    for loaded in stages:
        load = loaded.load
        parameters = float(load.parameters.dense + load.parameters.expert)
        shards = float(degrees.shard_group) if resolved.question.layout.zero_stage else 1.0
        yield "the embedding's matrix, its gradient or a moment of it", "weights", float(load.largest_table)
        yield "one layer, gathered from its shards", "gathered_weights", float(load.largest_layer)
        yield "embedding and head, gathered from their shards", "gathered_weights", float(load.gathered_ends)
        yield "all parameters of a rank in one buffer", "gradients", parameters
        yield "a rank's shard of all parameters in one buffer", "optimizer_states", parameters / shards


NEAR_FRACTION = 0.03
"""By how much live bytes may exceed the predicted peak. Source: a choice; predictions are off by a few per cent."""

ZERO_STAGES: tuple[Literal[0, 1, 2], ...] = (0, 1, 2)

TIMES = (2, 4, 8)
"""Factors on batch and sequence to try. Source: a choice."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A question that may describe the run, and its memory over a step."""

    difference: Supposition | None
    """Difference from the question; None for the unchanged question."""
    question: Question
    stages: tuple[StageTimeline, ...]
    """Its memory over the first step and over a later one."""
    tensors: tuple[MatchedTensor, ...]

    @property
    def peak_stage(self) -> StageTimeline:
        """Stage with the highest peak."""
        return max(self.stages, key=lambda stage: stage.peak.allocated_bytes)

    @property
    def peak_bytes(self) -> float:
        """Live bytes of the peak stage at its peak."""
        return self.peak_stage.peak.allocated_bytes


def evaluate_hypothesis(question: Question, oom: Said, difference: Supposition | None = None) -> Hypothesis:
    """Compute the memory of a question and match its tensors."""
    resolved = peak_stage_in(resolve(question)).resolved
    return Hypothesis(difference, question, timeline(resolved), matched_tensors(resolved, stages_of(resolved), oom))


def likeliest_hypothesis(base: Question, oom: Said, needed_bytes: float, own: Hypothesis) -> Hypothesis:
    """The hypothesis that best explains why the run needed more than predicted."""
    candidates = [one for one in _legal(differences(base), oom) if one.peak_bytes * (1 + NEAR_FRACTION) >= needed_bytes]
    return min(candidates, key=lambda one: (not one.tensors, one.peak_bytes), default=own)


def _legal(candidates: Iterable[tuple[Supposition, Question]], oom: Said) -> Iterator[Hypothesis]:
    for difference, question in candidates:
        with suppress(Refused):
            yield evaluate_hypothesis(question, oom, difference)


def differences(question: Question) -> Iterator[tuple[Supposition, Question]]:
    """Questions that differ from this one by one common mistake."""
    recipe, resolved = question.recipe, resolve(question)
    if resolved.workload.kernel != "eager":
        yield eager_attention(question)
    if resolved.workload.recompute.granularity != "none":
        yield _recipe(question, {"recompute": "none"}, "activations were stored, not recomputed")
    for times in TIMES:
        count = (recipe.micro_batch or 1) * times
        fields = {"micro_batch": count, "global_batch": None, "global_batch_tokens": None}
        yield _recipe(question, fields, f"a micro-batch had {count} sequences, {times} times as many")
        fields = {"sequence_length": recipe.sequence_length * times}
        yield _recipe(question, fields, f"sequences were {times} times as long")
    for stage in ZERO_STAGES[: resolved.question.layout.zero_stage]:
        difference = Supposition(
            patch={"layout": {"zero_stage": stage}}, message=f"states were sharded as by ZeRO stage {stage} only"
        )
        yield difference, replace(question, layout=replace(question.layout, zero_stage=stage))
    if recipe.precision != "fp32":
        yield _recipe(question, {"precision": "fp32"}, "everything was kept in fp32")
    if recipe.method != "full":
        yield _recipe(question, {"method": "full"}, "every parameter was trained, not adapters alone")


def eager_attention(question: Question) -> tuple[Supposition, Question]:
    """The question with attention that stores the scores of all token pairs."""
    return _recipe(question, {"attention": "eager"}, "attention was computed eagerly, not by a fused kernel")


def eager_hypothesis(base: Question, oom: Said, own: Hypothesis) -> Hypothesis:
    """The eager attention hypothesis if the requested size is that of its scores, else `own`."""
    if own.tensors or base.recipe.attention == "eager":
        return own
    eager = next(_legal([eager_attention(base)], oom), own)
    return eager if any(one.tensor.startswith(SCORES) for one in eager.tensors) else own


def _recipe(question: Question, fields: dict[str, Any], message: str) -> tuple[Supposition, Question]:
    difference = Supposition(patch={"recipe": fields}, message=message)
    return difference, replace(question, recipe=replace(question.recipe, **fields))


NOTICEABLE_FRACTION = 0.02
"""Share of a device's memory above which other processes count. Source: a choice; a CUDA context has half a GiB."""

EXPANDABLE = "set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before torch 2.9)"

LIBRARY_KINDS = frozenset({"cuda_error", "cublas", "nccl"})
HOST_KINDS = frozenset({"cpu_allocator", "oom_killer", "killed"})


@dataclass(frozen=True, slots=True)
class Explanation:
    cause: Cause
    reason: str
    confidence: Confidence
    first: str | None = None
    """Remedy to try before any change of the question; None if only such changes help."""


def needed_bytes(oom: Said) -> float | None:
    """Live tensors plus the requested allocation."""
    if oom.allocated_bytes is None:
        return oom.peak_allocated_bytes
    return max(oom.allocated_bytes + (oom.requested_bytes or 0.0), oom.peak_allocated_bytes or 0.0)


def others_bytes(oom: Said) -> float:
    """Memory of other processes: as the message states it, or what is neither free nor of this process."""
    if oom.other_processes_bytes is not None:
        return oom.other_processes_bytes
    if oom.capacity_bytes is None or oom.free_bytes is None or oom.process_bytes is None:
        return 0.0
    left = oom.capacity_bytes - oom.free_bytes - oom.process_bytes
    return left if left > NOTICEABLE_FRACTION * oom.capacity_bytes else 0.0


def explain_failure(oom: Said, memory: Memory, peak_bytes: float, *, is_explained: bool) -> Explanation:
    if oom.kind in HOST_KINDS:
        return _host_memory(oom, memory)
    needed = needed_bytes(oom)
    if needed is None:
        outside = memory.device_peak_bytes.value - memory.reserved_peak_bytes.value
        if oom.kind in LIBRARY_KINDS:
            text = f"a library found no memory outside torch's allocator, where {_size(outside)} are predicted"
            first = "leave libraries room: torch.cuda.set_per_process_memory_fraction, or a smaller peak"
            return Explanation("outside_allocator", text, "medium", first)
        is_large = memory.device_peak_bytes.high > memory.usable_bytes
        tail = "; the estimate does not fit either" if is_large else ""
        return Explanation("too_large" if is_large else "not_told", f"the message states no live bytes{tail}", "low")
    for explanation in (_limit_or_other_processes(oom, memory, needed, peak_bytes), _fragmentation(oom, needed)):
        if explanation is not None:
            return explanation
    return _peak_cause(memory, needed, peak_bytes, others_bytes(oom), is_explained=is_explained)


def _limit_or_other_processes(oom: Said, memory: Memory, needed: float, peak_bytes: float) -> Explanation | None:
    """A memory limit, or other processes on the device, where the job itself would fit."""
    others, lacking = others_bytes(oom), (oom.requested_bytes or 0.0) - (oom.free_bytes or 0.0)
    if oom.allowed_bytes is not None and needed > oom.allowed_bytes:
        limit = f"the process was limited to {_size(oom.allowed_bytes)}, and needed {_size(needed)}"
        return Explanation("limited", limit, "high", "raise torch.cuda.set_per_process_memory_fraction")
    would_fit = memory.device_peak_bytes.value <= memory.usable_bytes and needed <= peak_bytes * (1 + NEAR_FRACTION)
    if not would_fit or others < max(lacking, 1.0):
        return None
    text = f"other processes used {_size(others)} of the device, and {_size(max(lacking, 0.0))} were missing"
    return Explanation("other_processes", text, "high", "stop the other processes on the GPU (nvidia-smi lists them)")


def _fragmentation(oom: Said, needed: float) -> Explanation | None:
    """Enough reserved memory beside live tensors, but not contiguous."""
    spare, requested = oom.unallocated_bytes or 0.0, oom.requested_bytes or 0.0
    if oom.free_bytes is None or not spare >= requested > 0 or spare <= NOTICEABLE_FRACTION * needed:
        return None
    text = f"{_size(requested)} were requested while {_size(spare)} of reserved memory were free in smaller pieces"
    return Explanation("fragmentation", text, "high", EXPANDABLE)


def _peak_cause(memory: Memory, needed: float, peak_bytes: float, others: float, *, is_explained: bool) -> Explanation:
    """A larger peak than predicted, a predicted peak beyond the device, or less room than expected."""
    if needed > peak_bytes * (1 + NEAR_FRACTION):
        text = f"{_size(needed)} of live tensors were needed, and the estimate predicts {_size(peak_bytes)} at the peak"
        return Explanation("larger_than_predicted", text, "high" if is_explained else "medium")
    if memory.device_peak_bytes.high > memory.usable_bytes:
        peak = f"a peak of {_size(memory.device_peak_bytes.value)} on a GPU that has"
        beside = f", and other processes used {_size(others)} of it" if others else ""
        return Explanation("too_large", f"as predicted: {peak} {_size(memory.usable_bytes)}{beside}", "high")
    text = f"{_size(needed)} were needed, no more than the {_size(peak_bytes)} that fit: the device had less room"
    return Explanation("less_room", text, "medium", "check which other processes use memory of the device: nvidia-smi")


def _host_memory(oom: Said, memory: Memory) -> Explanation:
    when = "" if oom.requested_bytes is None else f" when {_size(oom.requested_bytes)} were requested"
    text = f"the node, not a GPU, ran out of memory{when}; predicted for a rank: {_size(memory.host_bytes)}"
    first = "request more memory of the node (Slurm: --mem), or have fewer data-loader workers and no offload"
    return Explanation("host_memory", text, "low" if oom.kind == "killed" else "high", first)


def _size(amount: float) -> str:
    return in_units(amount, BYTES)


CHANGEABLE = frozenset({"too_large", "larger_than_predicted", "less_room", "not_told", "outside_allocator"})
"""Causes that a change of the question can remove."""

ANOTHER_DEVICE_FRACTION = 0.08
"""Share by which the memory of two equal devices may differ. Source: a choice; drivers reserve up to 5 %."""


def diagnosis_json(body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    """Diagnose an out-of-memory error and serialize the answer."""
    return to_bytes(diagnose(body, catalogue))


def diagnose(body: Mapping[str, Any], catalogue: Catalogue) -> Diagnosis:
    """Diagnose an out-of-memory error."""
    question = {name: value for name, value in body.items() if name not in OTHER_FIELDS}
    parsed, oom = read_question(question, catalogue, beside=OTHER_FIELDS), read_report(body)
    answer = estimate_memory(parsed.question)
    needed = needed_bytes(oom)
    own = evaluate_hypothesis(parsed.question, oom)
    is_more = needed is not None and needed > own.peak_bytes * (1 + NEAR_FRACTION)
    more = likeliest_hypothesis(parsed.question, oom, needed, own) if is_more and needed is not None else own
    cause = explain_failure(oom, answer.memory, own.peak_bytes, is_explained=more is not own)
    can_change = cause.cause in CHANGEABLE
    best = eager_hypothesis(parsed.question, oom, own) if more is own and can_change else more
    if best is not more:
        size = f"the size of {best.tensors[0].tensor}, which the estimate does not have"
        text = f"{_size(oom.requested_bytes or 0.0)} were requested, {size}"
        cause = Explanation("larger_than_predicted", text, "high")
    point = _point(best, oom, needed)
    changes = ranked_changes(best.question, answer.memory.biggest_line) if can_change else ()
    to_check = () if best.difference is None else (f"check this difference: {best.difference.message}",)
    first = () if cause.first is None else (cause.first,)
    grounds = grounds_of(answer, parsed, catalogue)
    return Diagnosis(
        id=grounds["id"],
        cause=cause.cause,
        reason=cause.reason if best.difference is None else f"{cause.reason}; probably {best.difference.message}",
        confidence=cause.confidence,
        verdict=answer.verdict,
        said=oom,
        step=None if point is None else point.step,
        moment=oom.moment if point is None else point.moment,
        totals=tuple(_totals(oom, answer.memory, needed)),
        lines=() if point is None else _lines(own, best, point, needed),
        tensors=best.tensors,
        supposition=best.difference,
        changes=changes,
        suggestions=(*first, *to_check, *map(memory_changes.describe_change, changes)),
        warnings=tuple(_warnings(oom, answer.memory, parsed)),
        versions=grounds["versions"],
    )


def _point(best: Hypothesis, oom: Said, needed: float | None) -> Point | None:
    """Moment of failure: that of the traceback, or the first one that needs as much."""
    points = best.peak_stage.points
    if oom.kind in LIBRARY_KINDS or needed is None:
        return None
    candidates = [point for point in points if oom.moment in (None, point.moment)] or list(points)
    enough = (point for point in candidates if point.allocated_bytes * (1 + NEAR_FRACTION) >= needed)
    return next(enough, max(candidates, key=lambda point: point.allocated_bytes))


def _lines(own: Hypothesis, best: Hypothesis, point: Point, needed: float | None) -> tuple[ComparedLine, ...]:
    place = best.peak_stage.points.index(point)
    likely = dict(zip(best.peak_stage.kinds, point.series_bytes, strict=True))
    same = [one for one in own.peak_stage.points if (one.step, one.moment) == (point.step, point.moment)]
    own_point = own.peak_stage.points[place] if own is best else (same or [own.peak_stage.points[-1]])[-1]
    predicted = dict(zip(own.peak_stage.kinds, own_point.series_bytes, strict=True))
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
            yield "the message is from a GPU with another amount of memory than the one in the question"
    if oom.private_pools_bytes:
        yield "CUDA graphs use private memory, which the estimate leaves out"
    if oom.kind == "killed":
        yield "a process may be killed for other reasons than memory: look for oom-kill in the kernel's log"
