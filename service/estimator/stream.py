"""How large is the residual stream that ranks pass to each other?"""

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.numeric import Amount, where

WIDE_BYTES = 4.0
"""Bytes of one number in fp32. Source: IEEE 754, binary32."""


def stream_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes of the residual stream of one micro-batch on one context rank.

    Formula:
        s b h / c elements

    Args:
        job: the job
        degrees: the layout

    Returns:
        bytes of one micro-batch [byte]

    Source:
        definition

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> stream_bytes(sample_job(), sample_degrees())
    67108864.0
    """
    numbers = job.recipe.sequence_length * job.model.hidden_size
    return numbers * degrees.micro_batch / degrees.context * job.precision.element_bytes


def handed_stream_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes of the residual stream of one micro-batch as one layer hands it, or its gradient, to the next.

    Formula:
        that of one tensor rank; 4 bytes a number under autocast, which adds branches to an fp32 embedding

    Args:
        job: the job
        degrees: the layout

    Returns:
        bytes of one micro-batch [byte]

    Source:
        torch.amp (an addition has the wider format of what it adds); live bytes counted by torch 2.13's profiler

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> handed_stream_bytes(sample_job(), sample_degrees())
    67108864.0
    """
    is_wide = job.implementation.casts_each_input and job.precision.is_mixed
    return sequence_stream_bytes(job, degrees) * (WIDE_BYTES / job.precision.element_bytes if is_wide else 1.0)


def sequence_stream_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes of the residual stream of one micro-batch on one tensor rank.

    Formula:
        s b h / c elements, over t where sequence parallelism is on

    Args:
        job: the job
        degrees: the layout

    Returns:
        bytes of one micro-batch [byte]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> sequence_stream_bytes(sample_job(), sample_degrees(tensor=2, sequence_parallel=1))
    33554432.0
    """
    return stream_bytes(job, degrees) / where(degrees.sequence_parallel == 1, degrees.tensor, 1)
