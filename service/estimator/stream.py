"""How large is the residual stream that ranks pass to each other?"""

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.numeric import Amount, where


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
