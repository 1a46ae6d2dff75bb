"""What does the allocator hold at the peak beside live tensors, that follows from how the stack allocates?"""

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.load import StageLoad
from service.estimator.logits import rank_logits
from service.estimator.numeric import Amount, both, maximum, where
from service.estimator.parallelism.data import WEIGHTS


def held_bytes(job: Job, degrees: Degrees, load: StageLoad, gradient_bytes: Amount) -> Amount:
    """Bytes that the allocator holds for streams of their own, and in holes that nothing fits, at the peak of one rank.

    FSDP gathers weights on one stream and reduces gradients on another, and the allocator never lends memory of one
    stream to another: both pools stay at their own largest size while the default stream is at its peak.

    Formula:
        ZeRO-3 with streams of its own, freed after use: the largest group and one layer, with the rank's own part of
        the group, in the compute format; all sharded gradients, where none are live at the loss;
        the hole of the cross entropy's row for each logit

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
    hole = where(load.logits_bytes > 0, rank_logits(job, degrees) * job.cross_entropy.hole_bytes, 0.0)
    if not job.stack.gathers_on_streams:
        return hole
    weight = job.state.gathered_bytes
    ends = load.gathered_ends
    pool = (ends + load.largest_layer + maximum(ends, load.largest_layer) / degrees.shard_group) * weight
    later = where(degrees.accumulation > 1, 0.0, gradient_bytes)
    sharded = both(degrees.zero_stage >= WEIGHTS, degrees.shard_group > 1)
    return hole + where(sharded, where(degrees.reshard_after_forward == 1, pool, 0.0) + later, 0.0)
