"""How long does one optimizer step take, and what is the time spent on?"""

from dataclasses import dataclass

from service.estimator.degrees import Degrees
from service.estimator.efficiency import MEMORY_FRACTION
from service.estimator.exposed import ExposedSeconds, exposed_seconds, once_a_step_seconds
from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.kernels import ComputeSeconds, ops_compute, rates_of
from service.estimator.load import StageLoad
from service.estimator.logits import rank_logits
from service.estimator.memory import OFF_DEVICE
from service.estimator.numeric import Amount, maximum, where
from service.estimator.parallelism import pipeline
from service.estimator.question import Layout
from service.estimator.recompute import repeated_forwards, trained_layers
from service.estimator.stages import Stage
from service.estimator.update import offloaded_seconds, optimizer_seconds

OTHER_FRACTION = 0.02
"""Share of the step for data loading, logging and host work.
Source: an assumption; a round figure."""


@dataclass(slots=True, kw_only=True)
class StepSeconds:
    """Where the seconds of one step go on the slowest stage; the fields sum to the step."""

    gemm: Amount
    attention: Amount
    cast: Amount
    elementwise: Amount
    recompute: Amount
    loss: Amount
    exposed_tensor: Amount
    exposed_context: Amount
    exposed_expert: Amount
    exposed_data: Amount
    exposed_pipeline: Amount
    bubble: Amount
    optimizer: Amount
    other: Amount


def loss_seconds(job: Job, degrees: Degrees) -> Amount:
    """Seconds that the loss of one micro-batch streams its logits, forward and backward.

    Formula:
        2 x logits x bytes a logit / W

    Args:
        job: the job
        degrees: the layout

    Returns:
        seconds of one micro-batch [s]

    Source:
        the logits' bytes are written once and read once; efficiency.MEMORY_FRACTION

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> round(loss_seconds(sample_job(), sample_degrees()), 5)
    0.00433
    """
    live = job.cross_entropy.chunks * job.cross_entropy.logit_bytes(job.precision.element_bytes)
    losses = (1 + job.ledger.depths) * rank_logits(job, degrees)
    return 2 * losses * live / (job.gpu.memory_bytes_per_s * job.constants.memory_fraction)


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


def _stage_compute(job: Job, degrees: Degrees, stage: Stage) -> ComputeSeconds:
    """Seconds that one rank of a stage computes for one micro-batch."""
    rates = rates_of(job)
    total = ComputeSeconds()
    for count, ops in zip(stage.kind_counts, job.ledger.kinds, strict=True):
        total = total.plus(ops_compute(ops, job, degrees, rates), count)
    if job.recompute.granularity == "full":
        layers = trained_layers(job, stage.kind_counts)
        total.recompute = total.recompute * repeated_forwards(job.recompute, layers, degrees.virtual_pipeline)
    first = ops_compute(job.ledger.embedding, job, degrees, rates)
    last = ops_compute(job.ledger.head, job, degrees, rates)
    depth = ops_compute(job.ledger.depth, job, degrees, rates)
    first.recompute = last.recompute = depth.recompute = 0.0
    last.loss = loss_seconds(job, degrees)
    total = total.plus(first, where(stage.is_first, 1, 0)).plus(last, where(stage.is_last, 1, 0))
    return total.plus(depth, stage.depths)


@dataclass(slots=True)
class MicroBatch:
    compute: ComputeSeconds
    exposed: ExposedSeconds
    waiting: Amount

    @property
    def busy_seconds(self):
        return self.compute.total_seconds + self.exposed.total_seconds + self.waiting


def micro_batch_seconds(job, degrees, stage, load, layout):
    compute = _stage_compute(job, degrees, stage)
    traffic = (load.held.dense_trained + load.held.expert_trained) * (0.0 if job.software.gradient_fusion else 2 * (job.precision.element_bytes + min(4, job.state.gradient_bytes)))
    compute.elementwise = compute.elementwise + job.constants.weight_traffic * traffic / (job.gpu.memory_bytes_per_s * job.constants.memory_fraction)
    exposed = exposed_seconds(job, degrees, stage, load, layout, compute)
    sparse = sum(count for count, shape in zip(stage.kind_counts, job.ledger.shapes, strict=True) if shape.is_sparse)
    host = job.constants.host_seconds * stage.layers + job.constants.sparse_host_seconds * sparse
    return MicroBatch(compute, exposed, maximum(0.0, host - compute.total_seconds))


def step_seconds(job: Job, degrees: Degrees, load: StageLoad, layout: Layout, micro: MicroBatch, mean_seconds: Amount, stage) -> StepSeconds:
    compute, exposed, waiting = micro.compute, micro.exposed, micro.waiting
    once = once_a_step_seconds(job, degrees, load.held, maximum(0.0, exposed.free - compute.forward))
    idle = pipeline.bubble_micro_batches(filled(layout.schedule), degrees)
    bubble = idle * (mean_seconds + exposed.hidden_pipeline)
    away = bool(OFF_DEVICE[layout.offload])
    update = (offloaded_seconds if away else optimizer_seconds)(job, degrees, load.updated)
    m = degrees.accumulation
    busy = m * micro.busy_seconds + bubble + once + update
    import math
    scale = job.constants.stack_scales.get((job.software.name, job.software.implementation), 1.0) * (1 + job.constants.straggler_fraction * math.log2(max(1, degrees.gpus / job.cluster.gpus_per_node)))
    return StepSeconds(
        gemm=m * compute.gemm,
        attention=m * compute.attention,
        elementwise=m * compute.elementwise,
        cast=m * compute.cast,
        recompute=m * compute.recompute,
        loss=m * compute.loss,
        exposed_tensor=m * exposed.tensor,
        exposed_context=m * exposed.context,
        exposed_expert=m * exposed.expert,
        exposed_data=m * exposed.data + once,
        exposed_pipeline=m * exposed.pipeline,
        bubble=bubble,
        optimizer=update,
        other=other_seconds(busy) * scale + (scale - 1) * busy + m * waiting,
    )
