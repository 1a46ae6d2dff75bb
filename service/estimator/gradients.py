"""What stands beside the gradients themselves: buckets, fp32 copies of the step, the embedding's dense gradient?"""

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.load import StageLoad
from service.estimator.numeric import Amount, both, maximum, minimum, where
from service.estimator.parallelism.data import GRADIENTS, OPTIMIZER_STATES, WEIGHTS

STEP_GROUP_NUMBERS = 1_000_000_000
"""Parameters that DeepSpeed's ZeRO-3 updates at once. Source: DeepSpeed configuration, sub_group_size."""

TIED_SUMMANDS, CAST_SUMMANDS = 2, 1
"""Gradients of the vocabulary's one matrix beside their sum: the head's and the embedding's, added up into a third
tensor since the head's is a view; under autocast it is a cast, to which the embedding's is added in place.
Source: pytorch torch/csrc/autograd/input_buffer.cpp; live bytes counted by torch 2.13's profiler."""


def bucket_bytes(job: Job, degrees: Degrees, load: StageLoad, gradient_bytes: Amount) -> Amount:
    """Bytes of buckets in which the data group adds gradients up, beside the gradients themselves.

    Formula:
        replicas that shard nothing: as much as the gradients; ZeRO: the stack's bucket, or the largest matrix if that
        is larger, or all gradients if they are fewer

    Args:
        job: the job
        degrees: the layout
        load: load of the rank
        gradient_bytes: gradients of the rank [byte]

    Returns:
        bytes of one rank [byte]

    Source:
        torch DistributedDataParallel (gradient_as_bucket_view is off); DeepSpeed reduce_bucket_size, 5e8 numbers

    >>> from service.estimator.samples import sample_degrees, sample_job, sample_load
    >>> bucket_bytes(sample_job(), sample_degrees(data=8), sample_load(), 4.0)
    0.0
    """
    copied = where(both(degrees.zero_stage == 0, degrees.data > 1), gradient_bytes, 0.0)
    trained = load.held.dense_trained + load.held.expert_trained
    numbers = maximum(job.stack.bucket_numbers, load.largest_table) if job.stack.bucket_numbers else 0.0
    bucket = minimum(numbers, trained) * job.state.gradient_bytes
    reduced = where(degrees.zero_stage >= OPTIMIZER_STATES, bucket, 0.0)
    return (copied if job.stack.buckets_gradients else 0.0) + reduced


def table_gradient_bytes(job: Job, degrees: Degrees, load: StageLoad) -> Amount:
    """Bytes of the dense gradient of the embedding, beside what is accumulated, before it is added to that.

    Where the head is the embedding too, torch adds their two gradients up, into a third tensor unless autocast ran.

    Formula:
        V h / t elements; without buffers for gradients, in the weights' format and unsharded: none in a step of one
        micro-batch, two more where the embedding is the head, one under autocast

    Args:
        job: the job
        degrees: the layout
        load: load of the rank

    Returns:
        bytes of one rank [byte]

    Source:
        torch.nn.functional.embedding (dense gradient); torch autograd input buffers, live bytes counted by torch
        2.13's profiler

    >>> from service.estimator.samples import sample_degrees, sample_job, sample_load
    >>> table_gradient_bytes(sample_job(), sample_degrees(), sample_load()) == 2 * 128_256 * 4096
    True
    """
    buffered = load.embedding_table * job.precision.element_bytes
    if job.stack.keeps_gradients:
        return buffered
    summands = CAST_SUMMANDS if job.state.casts_weights else TIED_SUMMANDS
    tied = summands if job.model.tie_word_embeddings else 0
    tables = where(degrees.accumulation > 1, tied + 1, tied)
    return where(degrees.zero_stage == 0, load.embedding_table * job.state.gradient_bytes * tables, buffered)


def step_gradient_lines(job: Job, degrees: Degrees, whole: Amount) -> dict[str, Amount]:
    """fp32 gradients of the step: kept for the whole run, made all at once, or with ZeRO-3 group by group."""
    if not job.stack.keeps_step_gradients:
        return {"standing_gradients": 0.0, "step_gradients": whole}
    group = minimum(whole, STEP_GROUP_NUMBERS * job.stack.step_gradient_bytes)
    kept = where(degrees.zero_stage <= OPTIMIZER_STATES, whole, 0.0)
    made = where(degrees.zero_stage >= WEIGHTS, group, where(degrees.zero_stage == GRADIENTS, whole, 0.0))
    return {"standing_gradients": kept, "step_gradients": made}
