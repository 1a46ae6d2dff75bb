"""What does a step wait for beside its own work: the host, the slowest node, the other stages, and all the rest?"""

from dataclasses import dataclass

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.numeric import Amount, ceil_div, doublings
from service.estimator.stages import Stage

OTHER_FRACTION = 0.02
"""Share of the step for data loading, logging and host work.
Source: an assumption; a round figure."""


@dataclass(slots=True, kw_only=True)
class Waits:
    """What a stage waits for beside its own work."""

    stage_seconds: Amount
    """Mean seconds of one micro-batch on the stages, which the pipeline's ends pass through."""
    filled_fraction: Amount = 0.0
    """Reserved memory of the fullest device over what it has."""


def host_seconds(job: Job, stage: Stage) -> Amount:
    """Seconds that the host takes to launch the kernels of one micro-batch on one rank of a stage.

    Formula:
        layers x t_layer + layers of experts x t_sparse; 0 where they are launched as one graph

    Args:
        job: the job, with both times in its constants
        stage: the stage

    Returns:
        seconds of one micro-batch [s]

    Source:
        StepConstants.layer_host_seconds, sparse_layer_host_seconds

    >>> from service.estimator.samples import sample_job
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> host_seconds(sample_job(), stage) == 32 * sample_job().constants.layer_host_seconds
    True
    """
    if job.software.cuda_graphs:
        return 0.0
    sparse: Amount = 0
    for count, shape in zip(stage.kind_counts, job.ledger.shapes, strict=True):
        sparse = sparse + (count if shape.is_sparse else 0)
    return stage.layers * job.constants.layer_host_seconds + sparse * job.constants.sparse_layer_host_seconds


def straggler_seconds(busy_seconds: Amount, job: Job, degrees: Degrees) -> Amount:
    """Seconds that a step waits for its slowest node.

    Formula:
        j ceil(log2(nodes)) T

    Args:
        busy_seconds: seconds of the step on a usual node, T [s]
        job: the job, with j = StepConstants.straggler_fraction
        degrees: the layout

    Returns:
        seconds of one step [s]

    Source:
        the largest of n draws of a normal spread grows about as log n; j is fitted

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> straggler_seconds(100.0, sample_job(), sample_degrees())
    0.0
    """
    nodes = ceil_div(degrees.gpus, job.cluster.gpus_per_node)
    return job.constants.straggler_fraction * doublings(nodes) * busy_seconds


def other_seconds(busy_seconds: Amount) -> Amount:
    """Seconds of one step for data loading, logging and host work.

    Formula:
        x T / (1 - x),  x = OTHER_FRACTION

    Args:
        busy_seconds: all other seconds of the step, T [s]

    Returns:
        seconds of one step [s]

    Source:
        OTHER_FRACTION

    >>> round(other_seconds(98.0), 9)
    2.0
    """
    return busy_seconds * OTHER_FRACTION / (1 - OTHER_FRACTION)
