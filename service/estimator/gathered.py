"""Which weights does one rank hold beside its own shard while a layer runs?"""

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.load import StageLoad
from service.estimator.numeric import Amount, maximum, where
from service.estimator.parallelism.data import WEIGHTS

REDUCTION_BYTES = 4.0
"""Bytes of one gradient while ZeRO-3 reduces it. Source: torch FSDP MixedPrecision, reduce_dtype float32."""


def gathered_bytes(job: Job, degrees: Degrees, load: StageLoad) -> Amount:
    """Bytes of weights and gradients in the compute format that one rank holds beside its own shard or copy.

    Formula:
        ZeRO-3, freed after use: the larger of two layers, one with its gradient and reduction, and the head or
        embedding with both and one layer ahead
        ZeRO-3, kept: every weight, and one layer's gradient and reduction, or with a pipeline every fp32 gradient
        below ZeRO-3: every trained weight, where fp32 weights are cast on the fly; else nothing
        (gradients of trained parameters only)

    Args:
        job: the job
        degrees: the layout
        load: load of the rank

    Returns:
        bytes of one rank [byte]

    Source:
        Zhao et al. 2023, arXiv:2304.11277, section 3.3 (one layer ahead); torchtitan with a pipeline: weights and
        gradients stay unsharded between micro-batches; torch.amp: autocast keeps each weight's cast until it ends

    >>> from service.estimator.samples import sample_degrees, sample_job, sample_load
    >>> zero = sample_degrees(data=8, zero_stage=3, reshard_after_forward=1)
    >>> gathered_bytes(sample_job(), zero, sample_load()) == 128_256 * 4096 * 8 + 4096 * 8 + 218_112_000 * 2
    True
    """
    every, trained = load.held.dense + load.held.expert, load.held.dense_trained + load.held.expert_trained
    layer, end, weight = load.largest_layer, load.largest_end, job.state.gathered_bytes
    reducing = weight + REDUCTION_BYTES
    in_layer, in_end = load.largest_trained_layer * reducing, load.largest_trained_end * reducing
    freed = maximum(layer * 2 * weight + in_layer, end * weight + in_end + layer * weight)
    kept = every * weight + where(degrees.pipeline > 1, trained * REDUCTION_BYTES, in_layer)
    live = where(degrees.reshard_after_forward == 1, freed, kept)
    cast = trained * weight if job.state.casts_weights else 0.0
    sharded = where(degrees.shard_group > 1, live, cast)
    return where(degrees.zero_stage >= WEIGHTS, sharded, cast)
