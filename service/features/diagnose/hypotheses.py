"""Hypotheses: single differences between the question and the run that would explain a message."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

from service.answers.diagnoses import MatchedTensor, Said, Supposition
from service.errors import Refused
from service.estimator.memory.activations import rank_logits
from service.estimator.question import Question
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.run import peak_stage_in
from service.estimator.run.stages import LoadedStage, StageTimeline, stages_of, timeline

SMALL_BYTES, MIDDLE_BYTES, LARGE_BYTES = 2.0**20, 2.0**21, 10 * 2.0**20
MIDDLE_SEGMENT_BYTES = 20 * 2.0**20
"""Requests up to 1 MiB open a segment of 2 MiB, up to 10 MiB one of 20 MiB, larger ones multiples of 2 MiB.
Source: c10/cuda/CUDACachingAllocator.cpp, get_allocation_size."""

LEAST_MATCHED_BYTES = 2 * MIDDLE_SEGMENT_BYTES
"""Sizes below which too many tensors match. Source: a choice; segments of 20 MiB hold any small tensor."""

SCORES = "scores of all pairs of tokens in one layer's attention"

FLOATS = 4.0
"""Bytes of fp32."""


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


def matched_tensors(
    resolved: ResolvedQuestion, stages: list[LoadedStage], requested_bytes: float, precision_bytes: float
) -> tuple[MatchedTensor, ...]:
    """Tensors whose segment has the requested size."""
    if requested_bytes < LEAST_MATCHED_BYTES:
        return ()
    matches = {
        tensor.tensor: tensor
        for tensor in large_tensors(resolved, stages)
        if abs(segment_bytes(tensor.bytes) - requested_bytes) <= precision_bytes
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
        for size, format_name in ((element, "the compute format"), (FLOATS, "fp32")):
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
"""Share of the predicted peak by which live bytes may exceed it. Source: a choice; published runs are predicted within
some per cent."""

ZERO_STAGES: tuple[Literal[0, 1, 2], ...] = (0, 1, 2)

TIMES = (2, 4, 8)
"""Factors on batch and sequence that are tried. Source: a choice."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A question that may have run, and its memory over a step."""

    difference: Supposition | None
    """Difference from the question; None for the question itself."""
    question: Question
    """The question that may have run."""
    stages: tuple[StageTimeline, ...]
    """Its memory over the first step and over a later one."""
    tensors: tuple[MatchedTensor, ...]
    """Its tensors of the requested size."""

    @property
    def peak_stage(self) -> StageTimeline:
        """Its peak stage."""
        return max(self.stages, key=lambda stage: stage.peak.allocated_bytes)

    @property
    def peak_bytes(self) -> float:
        """Live bytes of the peak stage at its peak."""
        return self.peak_stage.peak.allocated_bytes


def evaluate_hypothesis(question: Question, oom: Said, difference: Supposition | None = None) -> Hypothesis:
    """Compute the memory of a question and match its tensors."""
    resolved = peak_stage_in(resolve(question)).resolved
    loaded = stages_of(resolved)
    return Hypothesis(difference, question, timeline(resolved), _tensors(resolved, loaded, oom))


def likeliest_hypothesis(base: Question, oom: Said, needed_bytes: float, own: Hypothesis) -> Hypothesis:
    """The difference that best explains why more was needed than predicted."""
    legal = _evaluated(differences(base), oom)
    candidates = [one for one in legal if one.peak_bytes * (1 + NEAR_FRACTION) >= needed_bytes]
    return min(candidates, key=lambda one: (not one.tensors, one.peak_bytes), default=own)


def _evaluated(candidates: Iterable[tuple[Supposition, Question]], oom: Said) -> Iterator[Hypothesis]:
    """The hypotheses that no rule refuses."""
    for difference, question in candidates:
        with suppress(Refused):
            yield evaluate_hypothesis(question, oom, difference)


def differences(question: Question) -> Iterator[tuple[Supposition, Question]]:
    """Questions that differ in one common mistake."""
    recipe, resolved = question.recipe, resolve(question)
    if resolved.workload.kernel != "eager":
        yield eager_attention(question)
    if resolved.workload.recompute.granularity != "none":
        yield _recipe(question, {"recompute": "none"}, "activations were kept, not computed again")
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
    eager = next(_evaluated([eager_attention(base)], oom), own)
    return eager if any(one.tensor.startswith(SCORES) for one in eager.tensors) else own


def _recipe(question: Question, fields: dict[str, Any], message: str) -> tuple[Supposition, Question]:
    difference = Supposition(patch={"recipe": fields}, message=message)
    return difference, replace(question, recipe=replace(question.recipe, **fields))


def _tensors(resolved: ResolvedQuestion, stages: list[LoadedStage], oom: Said) -> tuple[MatchedTensor, ...]:
    number = next((one for one in oom.numbers if one.name == "requested_bytes"), None)
    return () if number is None else matched_tensors(resolved, stages, number.bytes, number.precision_bytes)
