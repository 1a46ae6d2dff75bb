"""What does a stage hold of its neighbours, while it computes and between two steps?"""

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.numeric import Amount, where
from service.estimator.stages import Stage
from service.estimator.stream import sequence_stream_bytes


def received_bytes(job: Job, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes that a stage has received of its neighbours beside what it keeps, while it computes.

    Formula:
        the gradient of the micro-batch before, b s h / (c t) elements, after the first stage; two more with chunks

    Args:
        job: the job
        degrees: the layout
        stage: the stage

    Returns:
        bytes of one rank [byte]

    Source:
        NVIDIA/Megatron-LM@23e00ed0 core/pipeline_parallel/schedules.py (input_tensor_grad stays bound; with chunks the
        next input and gradient are received ahead)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> stage = Stage(index=1, chunk_counts=((8,),), depths=0, is_first=False, is_last=False)
    >>> received_bytes(sample_job(), sample_degrees(pipeline=4), stage)
    67108864.0
    """
    streams = where(stage.is_first, 0, 1) + where(degrees.virtual_pipeline > 1, 2, 0)
    return sequence_stream_bytes(job, degrees) * streams


def left_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes that a stage still holds of its neighbours between two steps.

    Formula:
        the last input and the last gradient of each chunk, 2 v b s h / (c t) elements, with a pipeline

    Args:
        job: the job
        degrees: the layout

    Returns:
        bytes of one rank [byte]

    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py; its functional tests log them after each step

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> left_bytes(sample_job(), sample_degrees(pipeline=4))
    134217728.0
    """
    return where(degrees.pipeline > 1, 2 * degrees.virtual_pipeline * sequence_stream_bytes(job, degrees), 0.0)
