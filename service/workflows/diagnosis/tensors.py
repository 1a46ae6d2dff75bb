"""Which tensors of a model have the size that was asked for when memory ran out?"""

from collections.abc import Iterator
from math import ceil

from service.answers.diagnoses import MatchedTensor
from service.estimator.filled import filled
from service.estimator.logits import rank_logits
from service.estimator.resolve import Resolved
from service.estimator.stage_answers import LoadedStage

SMALL_BYTES, MIDDLE_BYTES, LARGE_BYTES = 2.0**20, 2.0**21, 10 * 2.0**20
MIDDLE_SEGMENT_BYTES = 20 * 2.0**20
"""Requests up to 1 MiB open a segment of 2 MiB, up to 10 MiB one of 20 MiB, larger ones multiples of 2 MiB.
Source: c10/cuda/CUDACachingAllocator.cpp, get_allocation_size."""

LEAST_TELLING_BYTES = 2 * MIDDLE_SEGMENT_BYTES
"""Sizes below which too many tensors are alike. Source: a choice; segments of 20 MiB hold anything small."""

SCORES = "scores of all pairs of tokens in one layer's attention"

FLOATS = 4.0
"""Bytes of fp32."""


def segment_bytes(tensor_bytes: float) -> float:
    """What the allocator asks the device for to hold a tensor.

    Args:
        tensor_bytes: its size

    Returns:
        the size that a message tells

    >>> segment_bytes(3.0 * 2**20) / 2**20, segment_bytes(21.5 * 2**20) / 2**20
    (20.0, 22.0)
    """
    if tensor_bytes <= SMALL_BYTES:
        return MIDDLE_BYTES
    if tensor_bytes < LARGE_BYTES:
        return MIDDLE_SEGMENT_BYTES
    return ceil(tensor_bytes / MIDDLE_BYTES) * MIDDLE_BYTES


def matched_tensors(
    resolved: Resolved, stages: list[LoadedStage], requested_bytes: float, precision_bytes: float
) -> tuple[MatchedTensor, ...]:
    """Tensors whose segment has the size that was asked for.

    Args:
        resolved: the question
        stages: its stages
        requested_bytes: what was asked for
        precision_bytes: how far that may be off

    Returns:
        the tensors; none where the size tells too little
    """
    if requested_bytes < LEAST_TELLING_BYTES:
        return ()
    found = {
        tensor.tensor: tensor
        for tensor in known_tensors(resolved, stages)
        if abs(segment_bytes(tensor.bytes) - requested_bytes) <= precision_bytes
    }
    return tuple(found.values())


def known_tensors(resolved: Resolved, stages: list[LoadedStage]) -> Iterator[MatchedTensor]:
    """Large tensors of one rank, in the formats in which they occur.

    Args:
        resolved: the question
        stages: its stages

    Yields:
        the tensors
    """
    job, degrees = resolved.job, resolved.degrees
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


def _weights(resolved: Resolved, stages: list[LoadedStage]) -> Iterator[tuple[str, str, float]]:
    """Parameters as they stand together: a matrix, what ZeRO gathers, a buffer of all."""
    model, degrees = resolved.job.model, resolved.degrees
    matrix = model.hidden_size * (model.intermediate_size or 0) / float(degrees.tensor)
    yield "one matrix of an MLP, its gradient or a moment of it", "weights", matrix
    yield "weights and first matrix of a gated MLP together", "weights", 2 * matrix
    for loaded in stages:
        load = loaded.load
        held = float(load.held.dense + load.held.expert)
        shards = float(degrees.shard_group) if filled(resolved.question.layout.zero_stage) else 1.0
        yield "the embedding's matrix, its gradient or a moment of it", "weights", float(load.largest_table)
        yield "one layer, gathered from its shards", "gathered_weights", float(load.largest_layer)
        yield "embedding and head, gathered from their shards", "gathered_weights", float(load.gathered_ends)
        yield "all parameters of a rank in one buffer", "gradients", held
        yield "a rank's shard of all parameters in one buffer", "optimizer_states", held / shards
