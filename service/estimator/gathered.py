"""Which weights and gradients of whole layers does one rank hold beside its own shard?"""

from dataclasses import dataclass

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.load import StageLoad
from service.estimator.numeric import Amount, both, maximum, where
from service.estimator.parallelism.data import WEIGHTS

REDUCTION_BYTES = 4.0
"""Bytes of one gradient while ZeRO-3 reduces it. Source: torch FSDP MixedPrecision, reduce_dtype float32."""


@dataclass(slots=True)
class Gathered:
    """What is whole on one rank for a while."""

    weight_bytes: Amount
    """Weights, from the loss to the end of the backward pass."""
    cast_bytes: Amount
    """Weights that autocast has cast, until their last use in the backward pass."""
    gradient_bytes: Amount
    """Gradients of what is gathered, as the data group reduces them."""
    waiting_bytes: Amount
    """Whole gradients that wait from micro-batch to micro-batch until the last one; 0 where each is reduced."""


def gathered_weights(job: Job, degrees: Degrees, load: StageLoad) -> Gathered:
    """Bytes of whole weights, and of their gradients, that one rank holds at once.

    Formula:
        ZeRO-3, freed after use: weights of the embedding's and the head's group and of one layer; the gradients of the
        largest of either, once in the compute format and once in fp32
        ZeRO-3, kept: every weight; with a pipeline every fp32 gradient, which waits for the last micro-batch, else one
        layer's in both formats
        below ZeRO-3: every trained weight but an embedding that is no head, where fp32 weights are cast on the fly;
        else nothing
        (gradients of trained parameters only)

    Args:
        job: the job
        degrees: the layout
        load: load of the rank

    Returns:
        bytes of one rank [byte]

    Source:
        Zhao et al. 2023, arXiv:2304.11277, section 3.3; torch 2.13 distributed/fsdp/_fully_shard: the root's group and
        the last layer stay gathered between forward and backward; torchtitan with a pipeline: weights and gradients
        stay whole between micro-batches; torch.amp: autocast keeps each weight's cast until it ends

    >>> from service.estimator.samples import sample_degrees, sample_job, sample_load
    >>> zero = sample_degrees(data=8, zero_stage=3, reshard_after_forward=1)
    >>> ends, layer = 2 * 128_256 * 4096 + 4096, 218_112_000
    >>> gathered_weights(sample_job(), zero, sample_load()).weight_bytes == 2 * (ends + layer)
    True
    """
    every, trained = load.held.dense + load.held.expert, load.held.dense_trained + load.held.expert_trained
    weight = job.state.gathered_bytes
    reducing = weight + REDUCTION_BYTES
    freed = (load.largest_layer + load.gathered_ends) * weight
    in_turn = maximum(load.largest_trained_layer, load.largest_trained_end) * reducing
    kept = where(degrees.pipeline > 1, trained * REDUCTION_BYTES, load.largest_trained_layer * reducing)
    frees = degrees.reshard_after_forward == 1
    looked_up = 0.0 if job.model.tie_word_embeddings else load.embedding_table
    cast = (trained - looked_up) * weight if job.state.casts_weights else 0.0
    waits = both(degrees.pipeline > 1, degrees.reshard_after_forward == 0)
    gathers, sharded = degrees.shard_group > 1, degrees.zero_stage >= WEIGHTS
    whole = where(both(sharded, gathers), where(frees, freed, every * weight), 0.0)
    return Gathered(
        weight_bytes=whole,
        cast_bytes=where(both(sharded, gathers), 0.0, cast),
        gradient_bytes=where(sharded, where(gathers, where(frees, in_turn, kept), 0.0), 0.0),
        waiting_bytes=where(both(both(sharded, gathers), waits), trained * REDUCTION_BYTES, 0.0),
    )
