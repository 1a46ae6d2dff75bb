"""How long does one optimizer step take, and what is the time spent on?"""

from dataclasses import dataclass

from service.estimator.collectives import Transfer, Wires, transfer_seconds, wires_of
from service.estimator.degrees import Degrees
from service.estimator.efficiency import MEMORY_FRACTION
from service.estimator.job import Job
from service.estimator.kernels import ComputeSeconds, ops_compute, rates_of
from service.estimator.logits import logits_bytes
from service.estimator.memory import sharded_bytes, state_number_bytes
from service.estimator.numeric import Amount, maximum, minimum, where
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
        2 (1 + depths) x logits bytes / W

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
    times = 1 + job.model.num_nextn_predict_layers
    return 2 * times * logits_bytes(job, degrees) / (job.gpu.memory_bytes_per_s * MEMORY_FRACTION)


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

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> held = RankParameters(dense=1e9, expert=0, dense_states=2e9, expert_states=0)
    >>> round(optimizer_seconds(sample_job(), sample_degrees(), held, offloaded=False), 5)
    0.01029
    """
    state = job.state
    states = state_number_bytes(held, degrees, moment_bytes(job.optimizer, job.precision))
    master = state.master_bytes or state.weight_bytes
    updated = 2 * (states + sharded_bytes(held, degrees, master, OPTIMIZER_STATES))
    read = sharded_bytes(held, degrees, state.gradient_bytes + state.weight_bytes, OPTIMIZER_STATES)
    rate = job.gpu.host_bytes_per_s if offloaded else job.gpu.memory_bytes_per_s
    return (updated + read) / (rate * MEMORY_FRACTION)


def _stage_compute(job: Job, degrees: Degrees, stage: Stage) -> ComputeSeconds:
    """Seconds that one rank of a stage computes for one micro-batch."""
    rates = rates_of(job)
    total = ComputeSeconds()
    for count, ops in zip(stage.kind_counts, job.ledger.kinds, strict=True):
        total = total.plus(ops_compute(ops, job, degrees, rates), count)
    share = recomputed_layers(job.recompute, stage.layers) / maximum(stage.layers, 1)
    total.recompute = total.recompute * (share if job.recompute.granularity == "full" else 1)
    first = ops_compute(job.ledger.embedding, job, degrees, rates)
    last = ops_compute(job.ledger.head, job, degrees, rates)
    depth = ops_compute(job.ledger.depth, job, degrees, rates)
    first.recompute = last.recompute = depth.recompute = 0.0
    last.loss = loss_seconds(job, degrees)
    total = total.plus(first, where(stage.is_first, 1, 0)).plus(last, where(stage.is_last, 1, 0))
    return total.plus(depth, stage.depths)


def _sparse_layers(job: Job, stage: Stage) -> Amount:
    sparse: Amount = 0
    for count, ops in zip(stage.kind_counts, job.ledger.kinds, strict=True):
        if any(op.name == "moe.router" for op in ops):
            sparse = sparse + count
    return sparse


@dataclass(slots=True, kw_only=True)
class ExposedSeconds:
    """Communication of one micro-batch that nothing hides, by axis."""

    tensor: Amount
    context: Amount
    expert: Amount
    data: Amount
    pipeline: Amount
    hidden_pipeline: Amount
    """Sends between stages that hide under compute, except in the bubble."""
    free: Amount
    """Compute under which nothing hides yet."""

    @property
    def total_seconds(self) -> Amount:
        """All that is exposed [s]."""
        return self.tensor + self.context + self.expert + self.data + self.pipeline


def exposed_seconds(
    job: Job, degrees: Degrees, stage: Stage, layout: Layout, compute: ComputeSeconds
) -> ExposedSeconds:
    """Communication of one micro-batch that nothing hides.

    Compute hides each second of communication once. Tensor ranks wait but for the stack's overlapped share; context
    ranks hide their exchange under attention; DualPipe hides the exchange of experts; sharded weights and gradients
    travel beside compute and slow it; sends hide but for interleaved chunks.

    Args:
        job: the job
        degrees: the layout's degrees
        stage: the stage
        layout: the layout's choices
        compute: seconds that the stage computes for one micro-batch

    Returns:
        the seconds by axis [s]

    Source:
        Narayanan et al. 2021, arXiv:2104.04473, section 3; DeepSeek-V3, arXiv:2412.19437, section 3.2.1
    """
    wires = wires_of(job.cluster, job.gpu)
    visible = 1 - job.stack.tensor_overlap_fraction
    ring = stage.layers * _seconds(context.layer_transfers(job, degrees, layout.context_method), wires)
    experts = _sparse_layers(job, stage) * _seconds(expert.layer_transfers(job, degrees), wires)
    sends = _seconds(pipeline.micro_batch_transfers(job, degrees), wires)
    held = rank_parameters(job, degrees, stage)
    sharded = _seconds(data.micro_batch_transfers(job, degrees, held), wires)

    free = compute.total_seconds - minimum(ring, compute.attention)
    hidden_experts = minimum(experts, free) if layout.schedule == "dualpipe" else 0.0
    free = free - hidden_experts
    hidden_sends = where(degrees.virtual_pipeline > 1, 0.0, sends)
    return ExposedSeconds(
        tensor=stage.layers * _seconds(tensor.layer_transfers(job, degrees), wires) * visible,
        context=maximum(0.0, ring - compute.attention),
        expert=experts - hidden_experts,
        data=maximum(0.0, sharded - free) + CONTENTION_FRACTION * minimum(sharded, free),
        pipeline=sends - hidden_sends,
        hidden_pipeline=hidden_sends,
        free=maximum(0.0, free - sharded),
    )


def once_a_step_seconds(job: Job, degrees: Degrees, held: RankParameters, backward_seconds: Amount) -> Amount:
    """Gradients and weights that the data group exchanges once a step, as far as no backward pass hides them.

    Formula:
        x T + max(0, (1 - x) T - t_backward),  x = 0.25

    Args:
        job: the job
        degrees: the layout's degrees
        held: parameters of the rank before sharding
        backward_seconds: the last micro-batch's backward pass, as far as nothing hides under it, t_backward [s]

    Returns:
        seconds of one step [s]

    Source:
        EXPOSED_GRADIENT_SHARE

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> held = RankParameters(dense=1e9, expert=0, dense_states=0, expert_states=0)
    >>> once_a_step_seconds(sample_job(), sample_degrees(), held, 1.0)
    0.0
    """
    once = _seconds(data.step_transfers(job, degrees, held), wires_of(job.cluster, job.gpu))
    seen = EXPOSED_GRADIENT_SHARE
    return seen * once + maximum(0.0, (1 - seen) * once - backward_seconds)


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
    held, compute = rank_parameters(job, degrees, stage), _stage_compute(job, degrees, stage)
    exposed = exposed_seconds(job, degrees, stage, layout, compute)
    once = once_a_step_seconds(job, degrees, held, maximum(0.0, exposed.free - compute.forward))
    micro_batch = compute.total_seconds + exposed.total_seconds
    idle = pipeline.bubble_micro_batches(layout.schedule or "1f1b", degrees)
    bubble = idle * (micro_batch + exposed.hidden_pipeline)
    update = optimizer_seconds(job, degrees, held, offloaded=layout.offload == "optimizer")
    m = degrees.accumulation
    busy = m * micro_batch + bubble + once + update
    return StepSeconds(
        gemm=m * compute.gemm,
        attention=m * compute.attention,
        elementwise=m * compute.elementwise,
        recompute=m * compute.recompute,
        loss=m * compute.loss,
        exposed_tensor=m * exposed.tensor,
        exposed_context=m * exposed.context,
        exposed_expert=m * exposed.expert,
        exposed_data=m * exposed.data + once,
        exposed_pipeline=m * exposed.pipeline,
        bubble=bubble,
        optimizer=update,
        other=busy * OTHER_FRACTION / (1 - OTHER_FRACTION),
    )
