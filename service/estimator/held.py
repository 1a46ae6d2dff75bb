"""What does the allocator hold at the peak beside live tensors, that follows from how the stack allocates?"""

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.load import StageLoad
from service.estimator.logits import rank_logits
from service.estimator.numeric import Amount, both, maximum, minimum, where
from service.estimator.parallelism.data import OPTIMIZER_STATES, WEIGHTS
from service.estimator.stream import stream_bytes

SEGMENT_HOLE_BYTES = 2.0
"""Bytes for each logit that no other tensor fits into where segments do not grow.
Source: replays of the caching allocator's rules for torchtitan's losses."""


def held_bytes(job: Job, degrees: Degrees, load: StageLoad, gradient_bytes: Amount) -> Amount:
    """Bytes that the allocator holds for streams of their own, and in holes that nothing fits, at the peak of one rank.

    FSDP gathers weights on one stream and reduces gradients on another, and the allocator never lends memory of one
    stream to another: both pools stay at their own largest size while the default stream is at its peak.

    Formula:
        ZeRO-3 with streams of its own, freed after use: the largest group and one layer, with the rank's own part of
        the group, in the compute format; all sharded gradients, where none are live at the loss;
        the hole of the cross entropy's row for each logit; and that of a gathered stream where tensor ranks split it

    Args:
        job: the job
        degrees: the layout
        load: load of the rank
        gradient_bytes: gradients of the rank [byte]

    Returns:
        bytes of one rank [byte]

    Source:
        torch 2.13 distributed/fsdp/_fully_shard/_fsdp_param_group.py (streams); PyTorch CUDA caching allocator (blocks
        belong to the stream they were allocated on)

    >>> from service.estimator.samples import sample_degrees, sample_job, sample_load
    >>> held_bytes(sample_job(), sample_degrees(), sample_load(), 0.0)
    0.0
    """
    if not job.stack.gathers_on_streams:
        return _results_ahead_bytes(job, degrees, load) + _flattened_bytes(job, degrees, load)
    each = max(job.cross_entropy.hole_bytes, 0.0 if job.software.expandable_segments else SEGMENT_HOLE_BYTES)
    hole = where(load.logits_bytes > 0, rank_logits(job, degrees) * each, 0.0)
    splits = both(degrees.sequence_parallel == 1, degrees.tensor > 1)
    hole = hole + where(splits, stream_bytes(job, degrees), 0.0)
    weight = job.state.gathered_bytes
    ends = load.gathered_ends
    pool = (ends + load.largest_layer + maximum(ends, load.largest_layer) / degrees.shard_group) * weight
    later = where(degrees.accumulation > 1, 0.0, gradient_bytes)
    sharded = both(degrees.zero_stage >= WEIGHTS, degrees.shard_group > 1)
    return hole + where(sharded, where(degrees.reshard_after_forward == 1, pool, 0.0) + later, 0.0)


LAUNCHES_AHEAD = 1024
"""Kernels that the host launches before the GPU has run the first of them. Source: CUDA launch queue."""

KERNELS_OF_A_LAYER = 24
"""Kernels of the forward pass of one layer. Source: huggingface/nanotron@67c5ebb6 models/llama.py, counted."""


def _results_ahead_bytes(job: Job, degrees: Degrees, load: StageLoad) -> Amount:
    """Results of row-split matrices, two a layer, that wait for the GPU before their memory is free."""
    if not job.stack.keeps_results_ahead:
        return 0.0
    layers = minimum(load.layers, LAUNCHES_AHEAD / KERNELS_OF_A_LAYER)
    return where(degrees.tensor > 1, 2 * stream_bytes(job, degrees) * layers, 0.0)


def _flattened_bytes(job: Job, degrees: Degrees, load: StageLoad) -> Amount:
    """Flat copies of updated weights, and of the rank's part of them where that is larger than any activation."""
    if not job.stack.flattens_update:
        return 0.0
    weights = (load.updated.dense_trained + load.updated.expert_trained) * job.state.weight_bytes
    part = weights / degrees.shard_group
    again = where(part > load.largest_activation_bytes, weights + part, 0.0)
    return where(degrees.zero_stage >= OPTIMIZER_STATES, weights + again, 0.0)
