"""Calls of the data group: what one call carries, and which calls run beside compute."""

from math import inf

from service.estimator.answer import Content
from service.estimator.degrees import Degrees
from service.estimator.numeric import Amount, Condition, both, maximum, where
from service.estimator.software.versions import at_least
from service.estimator.workload import Workload


def reduces_beside(workload: Workload, degrees: Degrees) -> Condition:
    """Whether the data group adds gradients up beside the backward pass.

    Formula: as the recipe says; else as the stack's operations do, from a ZeRO stage on
    Returns: whether it does
    Source: Overlap.hides_gradients, Overlap.hides_from_stage

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> reduces_beside(sample_workload(), sample_degrees(data=8))
    True
    """
    overlap, chosen = workload.implementation.overlap, workload.software.overlap_reduce
    if chosen is not None:
        return chosen
    return degrees.zero_stage >= overlap.hides_from_stage if overlap.hides_gradients else False


def gathers_beside(workload: Workload, degrees: Degrees) -> Condition:
    """Whether the data group gathers weights beside compute.

    Formula: as the recipe says; else where gradients are reduced so, from a ZeRO stage on
    Returns: whether it does
    Source: Overlap.gathers_from_stage

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> gathers_beside(sample_workload(), sample_degrees(data=8, zero_stage=1))
    True
    """
    chosen, first = workload.software.overlap_gather, workload.implementation.overlap.gathers_from_stage
    if chosen is not None:
        return chosen
    return both(reduces_beside(workload, degrees), degrees.zero_stage >= first)


def is_beside(workload: Workload, degrees: Degrees, content: Content) -> Condition:
    """Whether the data group sends some content beside compute."""
    return (gathers_beside if content.endswith("weights") else reduces_beside)(workload, degrees)


def reduce_bucket_numbers(workload: Workload, degrees: Degrees, *, is_first: Condition) -> Amount:
    """Gradients that fill a bucket, which one call reduces; infinitely many where one call reduces all.

    Formula:
        as the recipe says; else max(B, B_replica d c), or the stack's bytes over those of a weight; all where the stack
        has no buckets, or only for the overlap, and nothing overlaps or the stage is not the first
    Args:
        is_first: whether the stage has the embedding
    Returns: gradients of one bucket [1]
    Source: Stack.reduce_bucket_numbers, replica_bucket_numbers, reduce_bucket_bytes

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> reduce_bucket_numbers(sample_workload(), sample_degrees(data=64), is_first=True)
    64000000
    """
    stack, numbers = workload.stack, workload.software.reduce_bucket_numbers
    each: Amount
    if stack.bucket_stage is None:
        return inf
    if numbers is not None:
        each = numbers
    elif stack.reduce_bucket_bytes:
        each = stack.reduce_bucket_bytes / workload.state.weight_bytes
    else:
        each = maximum(stack.reduce_bucket_numbers, stack.replica_bucket_numbers * degrees.data * degrees.context)
    if not stack.buckets_serve_overlap:
        return each
    return where(both(is_first, reduces_beside(workload, degrees)), each, inf)


def gather_bucket_numbers(workload: Workload) -> int:
    """Weights that ZeRO-3 gathers in one call, as far as no single matrix has more; 0 where a call gathers a layer.

    Formula: as the recipe says; else as the stack has it
    Returns: weights of one bucket [1]
    Source: Stack.gather_bucket_numbers

    >>> from service.estimator.samples import sample_workload
    >>> gather_bucket_numbers(sample_workload())
    0
    """
    return workload.software.gather_bucket_numbers or workload.stack.gather_bucket_numbers


def gathers_ends_apart(workload: Workload) -> bool:
    """Whether embedding and head are gathered one by one, and not as one group."""
    since = workload.stack.ends_apart_since
    return since is not None and at_least(workload.versions.torchtitan, since)
