"""How long does one optimizer step take, and what is the time spent on?"""

from dataclasses import dataclass

from service.estimator.collectives import Transfer, Wires, transfer_seconds, wires_of
from service.estimator.degrees import Degrees
from service.estimator.efficiency import MEMORY_FRACTION
from service.estimator.job import Job
from service.estimator.kernels import Compute, ops_compute, rates_of
from service.estimator.logits import logits_bytes
from service.estimator.memory import sharded_bytes, state_number_bytes
from service.estimator.numeric import Amount, maximum, where
from service.estimator.optimizers import moment_bytes
from service.estimator.parallelism import context, data, expert, pipeline, tensor
from service.estimator.parallelism.data import OPTIMIZER_STATES
from service.estimator.question import Layout
from service.estimator.recompute import recomputed_layers
from service.estimator.stages import RankParameters, Stage, rank_parameters

EXPOSED_GRADIENT_SHARE = 0.25
"""Share of the once-a-step gradient traffic that no backward pass hides: the last bucket and the weights' gather.
Source: fitted by others on published H100 steps; Megatron-LM overlap-grad-reduce."""

CONTENTION_FRACTION = 0.4
"""How much of the shorter of two overlapped streams is lost to their contention (FSDP).
Source: fitted on published FSDP steps: 0.38 (A100) and 0.6 (H100); the lower is taken with today's software."""

OTHER_FRACTION = 0.02
"""Share of the step for data loading, logging and host work.
Source: published per-step traces; a round figure."""


@dataclass(slots=True, kw_only=True)
class StepSeconds:
    """Where the seconds of one step go on the slowest stage; the fields sum to the step."""

    gemm: Amount
    attention: Amount
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


def _seconds(transfers: tuple[Transfer, ...], wires: Wires) -> Amount:
    total: Amount = 0.0
    for transfer in transfers:
        total = total + transfer_seconds(transfer, wires)
    return total


def loss_seconds(job: Job, degrees: Degrees) -> Amount:
    """Seconds that the loss of one micro-batch streams its logits, forward and backward.

    Formula:
        2 x logits bytes / W

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
    return 2 * logits_bytes(job, degrees) / (job.gpu.memory_bytes_per_s * MEMORY_FRACTION)


def optimizer_seconds(job: Job, degrees: Degrees, held: RankParameters, *, offloaded: bool) -> Amount:
    """Seconds of the optimizer's update on one rank: it reads and writes its shard once.

    Formula:
        (2 (master + moments) + gradients + weights) bytes / W; over the host link where offloaded

    Args:
        job: the job
        degrees: the layout
        held: parameters of the rank before sharding
        offloaded: states live in host memory

    Returns:
        seconds of one step [s]

    Source:
        definition; efficiency.MEMORY_FRACTION

    """
    state = job.state
    states = state_number_bytes(held, degrees, moment_bytes(job.optimizer, job.precision))
    master = state.master_bytes or state.weight_bytes
    updated = 2 * (states + sharded_bytes(held, degrees, master, OPTIMIZER_STATES))
    read = sharded_bytes(held, degrees, state.gradient_bytes + state.weight_bytes, OPTIMIZER_STATES)
    rate = job.gpu.host_bytes_per_s if offloaded else job.gpu.memory_bytes_per_s
    return (updated + read) / (rate * MEMORY_FRACTION)


def _stage_compute(job: Job, degrees: Degrees, stage: Stage) -> Compute:
    """Seconds that one rank of a stage computes for one micro-batch."""
    rates = rates_of(job)
    total = Compute()
    for count, ops in zip(stage.kind_counts, job.ledger.kinds, strict=True):
        total = total.plus(ops_compute(ops, job, degrees, rates), count)
    share = recomputed_layers(job.recompute, stage.layers) / maximum(stage.layers, 1)
    total.recompute = total.recompute * (share if job.recompute.granularity == "full" else 1)
    first = ops_compute(job.ledger.embedding, job, degrees, rates)
    last = ops_compute(job.ledger.multi_token + job.ledger.head, job, degrees, rates)
    first.recompute = last.recompute = 0.0
    return total.plus(first, where(stage.is_first, 1, 0)).plus(last, where(stage.is_last, 1, 0))


def _sparse_layers(job: Job, stage: Stage) -> Amount:
    sparse: Amount = 0
    for count, ops in zip(stage.kind_counts, job.ledger.kinds, strict=True):
        if any(op.name == "moe.router" for op in ops):
            sparse = sparse + count
    return sparse


def step_seconds(job: Job, degrees: Degrees, stage: Stage, layout: Layout) -> StepSeconds:
    """Seconds of one step as one stage lives it, were it the slowest.

    Formula:
        m (compute + exposed communication of a micro-batch) + bubble + exposed gradients + optimizer + other

    Args:
        job: the job
        degrees: the layout's degrees
        stage: the stage
        layout: the layout's choices: schedule, context method, offload

    Returns:
        the seconds by kind [s]

    Source:
        Narayanan et al. 2021, arXiv:2104.04473, section 3; each part's own function
    """
    schedule = layout.schedule or "1f1b"
    wires, held = wires_of(job.cluster, job.gpu), rank_parameters(job, degrees, stage)
    compute = _stage_compute(job, degrees, stage)
    loss = where(stage.is_last, loss_seconds(job, degrees), 0.0)
    computing = compute.total + loss

    visible = 1 - job.stack.tensor_overlap_fraction
    in_tensor = stage.layers * _seconds(tensor.layer_transfers(job, degrees), wires) * visible
    in_context = stage.layers * _seconds(context.layer_transfers(job, degrees, layout.context_method), wires)
    in_context = maximum(0.0, in_context - compute.attention)
    in_expert = _sparse_layers(job, stage) * _seconds(expert.layer_transfers(job, degrees), wires)
    in_pipeline = _seconds(pipeline.micro_batch_transfers(job, degrees), wires)
    hidden = where(degrees.virtual_pipeline > 1, 0.0, in_pipeline)
    sharded = _seconds(data.micro_batch_transfers(job, degrees, held), wires)
    overlapped = where(sharded < computing, sharded, computing)
    in_data = maximum(0.0, sharded - computing) + CONTENTION_FRACTION * overlapped

    micro_batch = computing + in_tensor + in_context + in_expert + in_data + (in_pipeline - hidden)
    once = _seconds(data.step_transfers(job, degrees, held), wires)
    backward = computing - compute.forward
    once = EXPOSED_GRADIENT_SHARE * once + maximum(0.0, (1 - EXPOSED_GRADIENT_SHARE) * once - backward)
    bubble = pipeline.bubble_micro_batches(schedule, degrees) * (micro_batch + in_pipeline)
    update = optimizer_seconds(job, degrees, held, offloaded=layout.offload == "optimizer")
    m = degrees.accumulation
    busy = m * micro_batch + bubble + once + update
    return StepSeconds(
        gemm=m * compute.gemm,
        attention=m * compute.attention,
        elementwise=m * compute.elementwise,
        recompute=m * compute.recompute,
        loss=m * loss,
        exposed_tensor=m * in_tensor,
        exposed_context=m * in_context,
        exposed_expert=m * in_expert,
        exposed_data=m * in_data + once,
        exposed_pipeline=m * (in_pipeline - hidden),
        bubble=bubble,
        optimizer=update,
        other=busy * OTHER_FRACTION / (1 - OTHER_FRACTION),
    )
