"""How long does one optimizer step take, and what is the time spent on?"""

from dataclasses import dataclass, field, fields

from service.estimator.cast import weight_cast_seconds
from service.estimator.degrees import Degrees
from service.estimator.device_calibration import streaming_bytes_per_s
from service.estimator.exposed import ExposedSeconds, exposed_seconds, once_a_step_seconds
from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.kernels import ComputeSeconds, ops_compute
from service.estimator.load import StageLoad
from service.estimator.logits import rank_logits
from service.estimator.memory import OFF_DEVICE
from service.estimator.numeric import Amount, maximum, where
from service.estimator.own_steps import measured_scale
from service.estimator.parallelism import pipeline
from service.estimator.pressure import pressure_fraction
from service.estimator.question import Layout
from service.estimator.rates import rates_of, stack_scale
from service.estimator.recompute import repeated_forwards, trained_layers
from service.estimator.stages import Stage
from service.estimator.update import accumulation_seconds, offloaded_seconds, optimizer_seconds
from service.estimator.waiting import Waits, host_seconds, other_seconds, straggler_seconds


@dataclass(slots=True, kw_only=True)
class StepSeconds:
    """Where the seconds of one step go on the slowest stage; the fields sum to the step."""

    gemm: Amount
    attention: Amount
    elementwise: Amount
    cast: Amount
    accumulation: Amount
    recompute: Amount
    loss: Amount
    host: Amount
    exposed_tensor: Amount
    exposed_context: Amount
    exposed_expert: Amount
    exposed_data: Amount
    exposed_pipeline: Amount
    exposed_offload: Amount
    bubble: Amount
    optimizer: Amount
    straggler: Amount
    allocator: Amount
    other: Amount

    def scaled(self, scale: Amount) -> "StepSeconds":
        """All of them, times one number."""
        return StepSeconds(**{one.name: scale * getattr(self, one.name) for one in fields(StepSeconds)})


@dataclass(slots=True, kw_only=True)
class MicroBatchSeconds:
    """What one rank of a stage does for one micro-batch, forward and backward."""

    compute: ComputeSeconds
    """Its kernels."""
    accumulation: Amount
    """Gradients added to those of earlier micro-batches."""
    exposed: ExposedSeconds
    """Transfers that nothing hides."""
    total_seconds: Amount = field(init=False)
    """All of it."""

    def __post_init__(self) -> None:
        self.total_seconds = self.compute.total_seconds + self.accumulation + self.exposed.total_seconds

    @property
    def sent_seconds(self) -> Amount:
        """The same as another stage waits for it: with the sends that hide elsewhere [s]."""
        return self.total_seconds + self.exposed.hidden_pipeline


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
        the logits' bytes are written once and read once; StepConstants.memory_fraction

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> round(loss_seconds(sample_job(), sample_degrees()), 3)
    0.005
    """
    live = job.cross_entropy.chunks * job.cross_entropy.logit_bytes(job.precision.element_bytes)
    losses = (1 + job.ledger.depths) * rank_logits(job, degrees)
    return 2 * losses * live / streaming_bytes_per_s(job.gpu, job.constants.memory_fraction)


@dataclass(frozen=True, slots=True)
class LedgerSeconds:
    """What one rank computes of each part of the ledger for one micro-batch, whatever stage it is on."""

    kinds: tuple[ComputeSeconds, ...]
    """One layer of each kind."""
    embedding: ComputeSeconds
    head: ComputeSeconds
    depth: ComputeSeconds


def ledger_seconds(job: Job, degrees: Degrees) -> LedgerSeconds:
    """What one rank computes of each part of the ledger for one micro-batch; its stages only count how often.

    Args:
        job: the job
        degrees: the layout's degrees

    Returns:
        the seconds [s]
    """
    rates, ledger = rates_of(job), job.ledger
    kinds = tuple(ops_compute(ops, job, degrees, rates) for ops in ledger.kinds)
    ends = [ops_compute(ops, job, degrees, rates) for ops in (ledger.embedding, ledger.head, ledger.depth)]
    for end in ends:
        end.recompute = 0.0
    embedding, head, depth = ends
    head.loss = loss_seconds(job, degrees)
    return LedgerSeconds(kinds, embedding, head, depth)


def _stage_compute(job: Job, degrees: Degrees, stage: Stage, each: LedgerSeconds) -> ComputeSeconds:
    """Seconds that one rank of a stage computes for one micro-batch."""
    total = ComputeSeconds()
    for count, layer in zip(stage.kind_counts, each.kinds, strict=True):
        total = total.plus(layer, count)
    if job.recompute.granularity == "full":
        layers = trained_layers(job, stage.kind_counts)
        total.recompute = total.recompute * repeated_forwards(job.recompute, layers, degrees.virtual_pipeline)
    total = total.plus(each.embedding, where(stage.is_first, 1, 0)).plus(each.head, where(stage.is_last, 1, 0))
    return total.plus(each.depth, stage.depths)


def micro_batch_seconds(
    job: Job, degrees: Degrees, stage: Stage, load: StageLoad, layout: Layout, each: LedgerSeconds
) -> MicroBatchSeconds:
    """What one rank of a stage does for one micro-batch.

    Args:
        job: the job
        degrees: the layout's degrees
        stage: the stage
        load: its load
        layout: the layout's choices: context method, offload
        each: what each part of the ledger takes

    Returns:
        the seconds [s]

    Source:
        each part's own function
    """
    compute = _stage_compute(job, degrees, stage, each)
    compute.host = maximum(0.0, host_seconds(job, stage) - compute.total_seconds)
    return MicroBatchSeconds(
        compute=compute,
        accumulation=accumulation_seconds(job, degrees, load.held),
        exposed=exposed_seconds(job, degrees, stage, load, layout, compute),
    )


def step_seconds(
    job: Job, degrees: Degrees, load: StageLoad, layout: Layout, micro: MicroBatchSeconds, waits: Waits
) -> StepSeconds:
    """Seconds of one step as one stage lives it, were it the slowest.

    Formula:
        x (m t + bubble + exposed gradients + optimizer + casts of weights + stragglers + retries + all else),
        t one micro-batch, x the scales of the stack and of measured steps

    Args:
        job: the job
        degrees: the layout's degrees
        load: the stage's load
        layout: the layout's choices: schedule, offload
        micro: what the stage does for one micro-batch
        waits: what it waits for

    Returns:
        the seconds by kind [s]

    Source:
        Narayanan et al. 2021, arXiv:2104.04473, section 3; each part's own function
    """
    compute, exposed, m = micro.compute, micro.exposed, degrees.accumulation
    found = busy_seconds(job, degrees, load, layout, micro, waits)
    straggling, retries = _slowed(found.total, job, degrees, waits)
    return StepSeconds(
        gemm=m * compute.gemm,
        attention=m * compute.attention,
        elementwise=m * compute.elementwise,
        cast=m * compute.cast + found.recast,
        accumulation=m * micro.accumulation,
        recompute=m * compute.recompute,
        loss=m * compute.loss,
        host=m * compute.host,
        exposed_tensor=m * exposed.tensor,
        exposed_context=m * exposed.context,
        exposed_expert=m * exposed.expert,
        exposed_data=m * exposed.data + found.once,
        exposed_pipeline=m * exposed.pipeline,
        exposed_offload=m * exposed.offload,
        bubble=found.bubble,
        optimizer=found.update,
        straggler=straggling,
        allocator=retries,
        other=other_seconds(found.total + straggling + retries),
    ).scaled(_scale(job))


@dataclass(slots=True, kw_only=True)
class BusySeconds:
    """What one stage does in one step, on a usual node and with room on its device."""

    once: Amount
    """Gradients and weights that the data group exchanges, as far as nothing hides them."""
    recast: Amount
    """Weights cast once a step."""
    bubble: Amount
    update: Amount
    """The optimizer."""
    total: Amount
    """All of it, and the micro-batches."""


def busy_seconds(
    job: Job, degrees: Degrees, load: StageLoad, layout: Layout, micro: MicroBatchSeconds, waits: Waits
) -> BusySeconds:
    """What one stage does in one step, beside its micro-batches and with them.

    Args:
        job: the job
        degrees: the layout's degrees
        load: the stage's load
        layout: the layout's choices: schedule, offload
        micro: what the stage does for one micro-batch
        waits: what it waits for

    Returns:
        the seconds [s]

    Source:
        each part's own function
    """
    once = once_a_step_seconds(job, degrees, load.held, maximum(0.0, micro.exposed.free - micro.compute.forward))
    bubble = pipeline.bubble_micro_batches(filled(layout.schedule), degrees) * waits.stage_seconds
    update = (offloaded_seconds if OFF_DEVICE[layout.offload] else optimizer_seconds)(job, degrees, load.updated)
    recast = weight_cast_seconds(job, load.held)
    total = degrees.accumulation * micro.total_seconds + bubble + once + update + recast
    return BusySeconds(once=once, recast=recast, bubble=bubble, update=update, total=total)


def whole_step_seconds(busy: Amount, job: Job, degrees: Degrees, waits: Waits) -> Amount:
    """Seconds of one step, its parts left unsaid; of its stages it reads what the busiest one does.

    Formula:
        the sum of the parts of step_seconds

    Args:
        busy: what the busiest stage does [s]
        job: the job
        degrees: the layout's degrees
        waits: what it waits for

    Returns:
        seconds of one step [s]

    Source:
        step_seconds

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> job = sample_job()
    >>> round(whole_step_seconds(98.0, job, sample_degrees(), Waits(stage_seconds=0.0)) / _scale(job), 9)
    100.0
    """
    straggling, retries = _slowed(busy, job, degrees, waits)
    lasting = busy + straggling + retries
    return _scale(job) * (lasting + other_seconds(lasting))


def _slowed(busy: Amount, job: Job, degrees: Degrees, waits: Waits) -> tuple[Amount, Amount]:
    """Seconds that a busy stage waits for the slowest node, and for its allocator."""
    pressure = pressure_fraction(waits.filled_fraction, job.constants.pressure_fraction)
    return straggler_seconds(busy, job, degrees), pressure * busy


def _scale(job: Job) -> float:
    return stack_scale(job) * measured_scale(job.cluster.measured_steps, job.calibrated_steps)
