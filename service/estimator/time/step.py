"""Seconds of one optimizer step, part by part, with host and straggler overhead and the interval."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from math import exp
from typing import Literal

from service.estimator.answer import Basis, Interval
from service.estimator.complete import CompleteLayout
from service.estimator.constants import calibration_of, measured_scale, own_spread_fraction, streaming_bytes_per_s
from service.estimator.degrees import Degrees
from service.estimator.memory.activations import RankLoad, rank_logits, repeated_forwards, trained_layers
from service.estimator.memory.memory import OFF_DEVICE
from service.estimator.numeric import Amount, ceil_div, doublings, maximum, minimum, summed_by_shape, where
from service.estimator.parallelism import pipeline
from service.estimator.parallelism.stages import Stage
from service.estimator.question import ContextMethod, Gpu, ImplementationName, StackName
from service.estimator.software.versions import generation
from service.estimator.time.communication import (
    ExposedSeconds,
    StepCommunication,
    Timed,
    exposed_once_seconds,
    exposed_seconds,
    once_a_step,
)
from service.estimator.time.host import host_seconds, update_host_seconds
from service.estimator.time.kernels import (
    ComputeSeconds,
    accumulation_seconds,
    ops_compute,
    rates_of,
    stack_scale,
    weight_cast_seconds,
)
from service.estimator.time.optimizer import (
    offloaded_seconds,
    optimizer_seconds,
    orthogonalization_of,
    orthogonalization_seconds,
    piece_copying_seconds,
)
from service.estimator.workload import Workload

StepClass = Literal["known stack", "other stack", "new GPU", "old GPU", "adapters", "MoE", "MoE, dispatcher unknown"]
"""What the error of a step depends on most: do several sources run its stack, is its GPU's generation fitted, are
adapters trained, are there experts, and does its recipe state how tokens reach them?"""

FITTED_GENERATIONS = ("Ampere", "Hopper")
"""Generations of GPUs whose published steps of dense models give constants; dense models on all others are predicted
from data sheets and benchmarks of kernels, on Blackwell with a rate of products inside a step of its own."""

OLD_GENERATIONS = ("Pascal", "Volta", "Turing")
"""Generations before those, which run the software of their time."""

Operations = tuple[StackName, ImplementationName | None]
"""A stack and whose operations it runs."""

KNOWN_STACKS: tuple[Operations, ...] = (("megatron-core", "transformer-engine"), ("megatron-core", "local"))
"""Stacks and operations that two sources or more of published steps on fitted GPUs run: of all others no source could
be judged by another one.
Source: the measurements that ship with service.calibration."""

RESIDUALS: dict[StepClass, float] = {
    "known stack": 0.028,
    "other stack": 0.066,
    "new GPU": 0.094,
    "old GPU": 0.105,
    "adapters": 0.083,
    "MoE": 0.126,
    "MoE, dispatcher unknown": 0.232,
}
"""80 % of published steps lie within exp(-s) and exp(s), s = max(LEAST_RESIDUAL, r x), of a prediction by constants
that never saw their source, by class, x = spread_scale; each source counts as the root of its steps, as in the fit.
Steps of an unknown dispatcher are those whose recipe states none, and all others predicted as if theirs did not.
Steps of adapters give no constants; each submitter of their whole runs is a source.
Source: service.calibration, published/held_out.toml against published/throughput.csv; adapters: mlperf_runs.csv."""

LEAST_RESIDUAL = 0.043
"""80 % of seven pairs of releases that ran one configuration differ by no more: one release is no better known by
another.
Source: NVIDIA/dgxc-benchmarking 25.02 to 25.05 (GPT-3 175B, Nemotron-4 15B and 340B, Llama 3.1 405B on H100);
NVIDIA-NeMo/Megatron-Bridge performance summaries: Llama 3.1 405B on H100, 311 and 328 tokens a second."""


def step_class_of(
    stack: Operations,
    gpu: Gpu,
    *,
    is_sparse: bool,
    states_dispatcher: bool = True,
    has_adapters: bool = False,
    known_stacks: Collection[Operations] = KNOWN_STACKS,
) -> StepClass:
    """The class of a step.

    >>> from service.estimator.samples import H100

    >>> step_class_of(("transformers", "eager"), H100, is_sparse=False)
    'other stack'

    >>> step_class_of(("fsdp1", "eager"), H100, is_sparse=True)
    'MoE'
    """
    if is_sparse:
        return "MoE" if states_dispatcher else "MoE, dispatcher unknown"
    if has_adapters:
        return "adapters"
    made = generation(gpu)
    if made not in FITTED_GENERATIONS:
        return "old GPU" if made in OLD_GENERATIONS else "new GPU"
    return "known stack" if stack in known_stacks else "other stack"


WAITING_WEIGHT = 5.0
"""How many times as uncertain as compute the waiting of a step is: for transfers, for other stages, for the host.
Source: of the weights 0 to 16, the least with which every source of 8 steps or more has 65 % of them inside intervals
that never saw it (service.calibration.steps)."""


def waiting_fraction(parts: Mapping[str, float]) -> float:
    """Share of a step in which a device waits: for transfers, for other stages, for the host.

    Formula: (exposed transfers + bubble + host) / T
    Args:
        parts: seconds of one step by kind, which sum to it [s]
    Returns: share of the step [1]
    Source: definition

    >>> waiting_fraction({"gemm": 6.0, "exposed_data": 1.0, "bubble": 1.0})
    0.25
    """
    waiting = sum(seconds for kind, seconds in parts.items() if kind.startswith("exposed_") or kind in _WAITING)
    return waiting / sum(parts.values())


_WAITING = ("bubble", "host")
"""Parts in which a device waits, beside exposed transfers."""


def spread_scale(waiting: float) -> float:
    """Spread of a step over that of one that never waits.

    Formula: 1 + WAITING_WEIGHT u
    Args:
        waiting: share of the step in which a device waits, u [1]
    Returns: the scale [1]
    Source: locally weighted conformal prediction: Lei et al. 2018, arXiv:1604.04173, section 5.2; WAITING_WEIGHT

    >>> spread_scale(0.5)
    3.5
    """
    return 1 + WAITING_WEIGHT * waiting


def class_of(workload: Workload) -> StepClass:
    """The class of a job's steps, whose held-out errors make the interval.

    >>> from service.estimator.samples import sample_workload
    >>> class_of(sample_workload())
    'known stack'
    """
    stack = (workload.software.name, workload.software.implementation)
    has_experts, states = bool(workload.model.num_experts), workload.requested.dispatcher is not None
    has_adapters = workload.method.name != "full"
    return step_class_of(
        stack, workload.gpu, is_sparse=has_experts, states_dispatcher=states, has_adapters=has_adapters
    )


def step_interval(workload: Workload, step_seconds: float, waiting: float) -> Interval:
    """The 80 % interval of one step, with the spread of published steps of its class and of the caller's own.

    Formula: t exp(-s) to t exp(s), s = max(LEAST_RESIDUAL, own_spread_fraction(r x)), x = spread_scale
    Args:
        step_seconds: predicted seconds of one step, t [s]
        waiting: share of the step in which a device waits, u [1]
    Returns: the interval [s]; basis calibrated where the caller measured steps or the GPU's kernels were, else analytic
    Source: RESIDUALS; constants.own_spread_fraction

    >>> from service.estimator.samples import sample_workload
    >>> step_interval(sample_workload(), 10.0, 0.0).value
    10.0
    """
    step_class = class_of(workload)
    usual = RESIDUALS[step_class] * spread_scale(waiting)
    measured = workload.cluster.measured_steps
    known = own_spread_fraction(workload.calibrated_steps, usual)
    spread = max(LEAST_RESIDUAL, own_spread_fraction(measured, known))
    calibration = calibration_of(workload.gpu)
    is_calibrated = bool(measured) or (calibration is not None and calibration.has_seconds)
    basis: Basis = "calibrated" if is_calibrated else "analytic"
    return Interval(step_seconds * exp(-spread), step_seconds, step_seconds * exp(spread), basis)


OTHER_FRACTION = 0.02
"""Share of the step for data loading, logging and host work.
Source: an assumption; a round figure."""


@dataclass(slots=True, kw_only=True)
class StepOverhead:
    """What a stage waits for beside its own work."""

    stage_seconds: Amount
    """Mean seconds of one micro-batch on the stages, which the pipeline's ends pass through."""
    filled_fraction: Amount = 0.0
    """Reserved memory of the fullest device over what it has."""


def straggler_seconds(busy_seconds: Amount, workload: Workload, degrees: Degrees) -> Amount:
    """Seconds that a step waits for its slowest node.

    Formula: j ceil(log2(nodes)) T
    Args:
        busy_seconds: seconds of the step on a usual node, T [s]
        workload: the workload, with j = StepConstants.straggler_fraction
    Returns: seconds of one step [s]
    Source: the largest of n draws of a normal spread grows about as log n; j is fitted

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> straggler_seconds(100.0, sample_workload(), sample_degrees())
    0.0
    """
    nodes = ceil_div(degrees.gpus, workload.cluster.gpus_per_node)
    return workload.constants.straggler_fraction * doublings(nodes) * busy_seconds


def other_seconds(busy_seconds: Amount) -> Amount:
    """Seconds of one step for data loading, logging and host work.

    Formula: x T / (1 - x),  x = OTHER_FRACTION
    Args:
        busy_seconds: all other seconds of the step, T [s]
    Returns: seconds of one step [s]
    Source: OTHER_FRACTION

    >>> round(other_seconds(98.0), 9)
    2.0
    """
    return busy_seconds * OTHER_FRACTION / (1 - OTHER_FRACTION)


CROWDED_FROM = 0.92
"""Share of the device's memory from which the allocator has to give cached blocks back and ask again.
Source: what RESERVED_SHARE and context_and_communicators of memory/device.py leave of it, 0.9 to 0.95 of 80 GB."""


def pressure_fraction(filled_fraction: Amount, full_fraction: float) -> Amount:
    """Share of a step that the allocator's retries add.

    Formula: x min(1, max(0, (u - 0.92) / (1 - 0.92)))
    Args:
        filled_fraction: reserved memory over usable memory, u [1]
        full_fraction: what a full device adds, x [1]
    Returns: share of the step's time [1]
    Source: CROWDED_FROM; StepConstants.pressure_fraction

    >>> pressure_fraction(0.5, 0.1), round(pressure_fraction(0.96, 0.1), 9), pressure_fraction(1.2, 0.1)
    (0.0, 0.05, 0.1)
    """
    return full_fraction * minimum(1.0, maximum(0.0, (filled_fraction - CROWDED_FROM) / (1 - CROWDED_FROM)))


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

    stage: Stage
    compute: ComputeSeconds
    accumulation: Amount
    """Gradients added to those of earlier micro-batches."""
    exposed: ExposedSeconds
    """Transfers that nothing hides."""
    total_seconds: Amount = field(init=False)

    def __post_init__(self) -> None:
        self.total_seconds = self.compute.total_seconds + self.accumulation + self.exposed.total_seconds

    @property
    def sent_seconds(self) -> Amount:
        """The same as another stage waits for it: with the sends that hide elsewhere [s]."""
        return self.total_seconds + self.exposed.hidden_pipeline


def loss_seconds(workload: Workload, degrees: Degrees) -> Amount:
    """Seconds that the loss of one micro-batch streams its logits, forward and backward.

    Formula: 2 x logits x bytes a logit / W
    Returns: seconds of one micro-batch [s]
    Source: the logits' bytes are written once and read once; StepConstants.memory_fraction

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> round(loss_seconds(sample_workload(), sample_degrees()), 3)
    0.005
    """
    live = workload.cross_entropy.whole_logit_bytes(workload.precision.element_bytes)
    losses = (1 + workload.ledger.depths) * rank_logits(workload, degrees)
    return 2 * losses * live / streaming_bytes_per_s(workload.gpu, workload.constants.memory_fraction)


@dataclass(frozen=True, slots=True)
class LedgerSeconds:
    """What one rank computes of each part of the ledger for one micro-batch, whatever stage it is on."""

    kinds: tuple[ComputeSeconds, ...]
    embedding: ComputeSeconds
    head: ComputeSeconds
    depth: ComputeSeconds


def ledger_seconds(workload: Workload, degrees: Degrees, method: ContextMethod) -> LedgerSeconds:
    """What one rank computes of each part of the ledger for one micro-batch; its stages only count how often."""
    rates, ledger = rates_of(workload), workload.ledger
    kinds = tuple(ops_compute(ops, workload, degrees, rates, method) for ops in ledger.kinds)
    ends = [ops_compute(ops, workload, degrees, rates, method) for ops in (ledger.embedding, ledger.head, ledger.depth)]
    for end in ends:
        end.recompute = 0.0
    embedding, head, depth = ends
    head.loss = loss_seconds(workload, degrees)
    return LedgerSeconds(kinds, embedding, head, depth)


def micro_batch_seconds(
    workload: Workload, degrees: Degrees, stage: Stage, load: RankLoad, layout: CompleteLayout, each: LedgerSeconds
) -> MicroBatchSeconds:
    """Seconds of one micro-batch on one rank of a stage."""
    total = ComputeSeconds()
    for count, layer in zip(stage.kind_counts, each.kinds, strict=True):
        total = total.plus(layer, count)
    if workload.recompute.granularity == "full":
        layers = trained_layers(workload, stage.kind_counts)
        total.recompute = total.recompute * repeated_forwards(workload.recompute, layers, degrees.virtual_pipeline)
    total = total.plus(each.embedding, where(stage.is_first, 1, 0)).plus(each.head, where(stage.is_last, 1, 0))
    compute = total.plus(each.depth, stage.depths)
    exposed = exposed_seconds(workload, degrees, stage, load, layout, compute)
    working = compute.total_seconds + exposed.total_seconds
    compute.host = maximum(0.0, host_seconds(workload, degrees, stage) - working)
    exposed.free = exposed.free + compute.host
    return MicroBatchSeconds(
        stage=stage,
        compute=compute,
        accumulation=accumulation_seconds(workload, degrees, load.parameters),
        exposed=exposed,
    )


COMPUTE_KINDS = ("gemm", "attention", "elementwise", "recompute", "loss", "host")
EXPOSED_AXES = ("tensor", "context", "expert", "pipeline", "offload")
"""Parts of a step that are those of its micro-batches."""


def step_seconds(
    workload: Workload, degrees: Degrees, micro: MicroBatchSeconds, busy: "BusySeconds", overhead: StepOverhead
) -> StepSeconds:
    """Seconds of one step of one stage, were it the slowest.

    Formula:
        x (m t + bubble + exposed gradients + optimizer + casts of weights + stragglers + retries + all else),
        t one micro-batch, x the scales of the stack and of measured steps
    Args:
        micro: what the stage does for one micro-batch
        busy: what it does in one step
        overhead: what it waits for
    Returns: the seconds by kind [s]
    Source: Narayanan et al. 2021, arXiv:2104.04473, section 3; definition: each part has a formula of its own
    """
    compute, exposed, m = micro.compute, micro.exposed, degrees.accumulation
    straggling, retries = _slowed(busy.total, workload, degrees, overhead)
    return StepSeconds(
        **{f"exposed_{axis}": m * getattr(exposed, axis) for axis in EXPOSED_AXES},
        **{kind: m * getattr(compute, kind) for kind in COMPUTE_KINDS},
        cast=m * compute.cast + busy.recast,
        accumulation=m * micro.accumulation,
        exposed_data=m * exposed.data + busy.once,
        bubble=busy.bubble,
        optimizer=busy.update,
        straggler=straggling,
        allocator=retries,
        other=other_seconds(busy.total + straggling + retries),
    ).scaled(_scale(workload))


@dataclass(slots=True, kw_only=True)
class BusySeconds:
    """Seconds of one stage in one step, on a usual node and with room on its device."""

    once: Amount
    """Gradients and weights that the data group exchanges, as far as nothing hides them."""
    sent_once: Timed
    """The same exchange, hidden or not."""
    recast: Amount
    """Weights cast once a step."""
    bubble: Amount
    update: Amount
    total: Amount
    """All of it, and the micro-batches."""


def free_backward_seconds(free_seconds: Amount, compute: ComputeSeconds) -> Amount:
    """Seconds of one micro-batch's backward pass under which nothing hides; what hides does so evenly in both passes.

    Formula: t_free (1 - t_forward / t)
    Args:
        free_seconds: compute of both passes under which nothing hides, t_free [s]
        compute: all of it, t, with its forward pass, t_forward
    Returns: seconds of one micro-batch [s]
    Source: definition

    >>> free_backward_seconds(2.0, ComputeSeconds(gemm=3.0, forward=1.0))
    1.3333333333333335
    """
    total_seconds = compute.total_seconds
    return free_seconds * (1 - compute.forward / where(total_seconds > 0, total_seconds, 1.0))


def busy_seconds(
    workload: Workload,
    degrees: Degrees,
    load: RankLoad,
    layout: CompleteLayout,
    micro: MicroBatchSeconds,
    overhead: StepOverhead,
) -> BusySeconds:
    """Seconds of one stage in one step, beside its micro-batches and with them."""
    backward = free_backward_seconds(micro.exposed.free, micro.compute)
    sent_once = once_a_step(workload, degrees, load.parameters, micro.exposed.interconnect)
    once = exposed_once_seconds(workload, degrees, sent_once.beside_seconds, sent_once.waiting_seconds, backward)
    bubble = pipeline.bubble_micro_batches(layout.schedule, degrees) * overhead.stage_seconds
    update = (offloaded_seconds if OFF_DEVICE[layout.offload] else optimizer_seconds)(workload, degrees, load.updated)
    update = update + orthogonalization_seconds(orthogonalization_of(workload, degrees, micro.stage), degrees)
    update = maximum(update, update_host_seconds(workload, degrees, micro.stage))
    update = update + piece_copying_seconds(workload, degrees, micro.stage)
    recast = weight_cast_seconds(workload, load.parameters)
    total = summed_by_shape((degrees.accumulation * micro.total_seconds, bubble, once, update, recast))
    return BusySeconds(once=once, sent_once=sent_once, recast=recast, bubble=bubble, update=update, total=total)


def step_communication(
    workload: Workload, degrees: Degrees, micro: MicroBatchSeconds, busy: BusySeconds
) -> StepCommunication:
    """What one rank of a stage sends in one step of one layout."""
    return StepCommunication(
        micro_batches=float(degrees.accumulation),
        exposed=micro.exposed,
        once=busy.sent_once,
        exposed_once_seconds=float(busy.once),
        scale=_scale(workload),
    )


def whole_step_seconds(busy: Amount, workload: Workload, degrees: Degrees, overhead: StepOverhead) -> Amount:
    """Seconds of one step from the busy seconds of its slowest stage, without its parts.

    Formula: the sum of the parts of step_seconds
    Args:
        busy: what the busiest stage does [s]
        overhead: what it waits for
    Returns: seconds of one step [s]
    Source: step_seconds

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> workload = sample_workload()
    >>> seconds = whole_step_seconds(98.0, workload, sample_degrees(), StepOverhead(stage_seconds=0.0))
    >>> round(seconds / _scale(workload), 9)
    100.0
    """
    straggling, retries = _slowed(busy, workload, degrees, overhead)
    lasting = busy + straggling + retries
    return _scale(workload) * (lasting + other_seconds(lasting))


def _slowed(busy: Amount, workload: Workload, degrees: Degrees, overhead: StepOverhead) -> tuple[Amount, Amount]:
    """Seconds that a busy stage waits for the slowest node, and for its allocator."""
    pressure = pressure_fraction(overhead.filled_fraction, workload.constants.pressure_fraction)
    return straggler_seconds(busy, workload, degrees), pressure * busy


def _scale(workload: Workload) -> float:
    return stack_scale(workload) * measured_scale(workload.cluster.measured_steps, workload.calibrated_steps)
