"""Collectives of one rank, axis by axis, the part of them that no compute hides, and both as rows of the answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from service.estimator.answer import Communication, CommunicationAxis
from service.estimator.complete import CompleteLayout
from service.estimator.degrees import Degrees, Transfer, evaluated_once
from service.estimator.memory.activations import RankLoad, repeated_forwards, trained_layers
from service.estimator.memory.memory import OFFLOADED_ACTIVATIONS
from service.estimator.model.build import MIXERS
from service.estimator.numeric import (
    Amount,
    Condition,
    maximum,
    minimum,
    number_or_column,
    summed,
    summed_by_shape,
    where,
)
from service.estimator.parallelism import context, data, expert, pipeline, tensor
from service.estimator.parallelism.buckets import is_beside
from service.estimator.parallelism.stages import RankParameters, Stage
from service.estimator.question import RecomputeModule
from service.estimator.time.collectives import (
    SWITCHED_GPUS,
    Interconnect,
    group_of,
    interconnect_of,
    sent_bytes,
    transfer_seconds,
)
from service.estimator.time.kernels import HOST_LINK_FRACTION, ComputeSeconds
from service.estimator.time.rates import generation_rates
from service.estimator.workload import Workload


@dataclass(slots=True)
class Repeated:
    """What each of some layers sends."""

    layers: Amount
    transfers: tuple[Transfer, ...]
    """What one sends for one micro-batch."""


@dataclass(slots=True, kw_only=True)
class MicroBatchTransfers:
    """What one rank of a stage sends for one micro-batch."""

    tensor: tuple[Repeated, ...]
    """Tensor ranks, each kind of layer by its branches."""
    context: Repeated
    """Context ranks, keys and values of the layers that attend."""
    expert: Repeated
    """Expert ranks, tokens of the sparse layers."""
    pipeline: Repeated
    """Stages, activations and their gradients."""
    data: Repeated
    """Replicas that shard weights or gradients."""

    def each(self) -> Iterator[Repeated]:
        """All of it, axis by axis."""
        yield from self.tensor
        yield from (self.context, self.expert, self.pipeline, self.data)


def micro_batch_transfers(
    workload: Workload, degrees: Degrees, stage: Stage, load: RankLoad, layout: CompleteLayout
) -> MicroBatchTransfers:
    """What one rank of a stage sends for one micro-batch. Those of a group of one, or of no bytes, take no time.

    Source:
        each axis's own file
    """
    attending, routing, all_layers = (
        _passes(workload, degrees, stage, modules) for modules in (("core_attn",), ("moe",), ())
    )
    shapes = list(zip(stage.kind_counts, workload.ledger.shapes, strict=True))
    return MicroBatchTransfers(
        tensor=tuple(
            Repeated(count, tensor.layer_transfers(workload, degrees, *all_layers, branches))
            for count, branches in zip(stage.kind_counts, _branches(workload, degrees), strict=True)
        ),
        context=Repeated(
            summed(count for count, shape in shapes if MIXERS[shape.mixer].attends),
            context.layer_transfers(workload, degrees, layout.context_method, *attending),
        ),
        expert=Repeated(
            summed(count for count, shape in shapes if shape.is_sparse),
            expert.layer_transfers(workload, degrees, *routing) if workload.model.num_experts else (),
        ),
        pipeline=Repeated(1, pipeline.micro_batch_transfers(workload, degrees)),
        data=Repeated(1, data.micro_batch_transfers(workload, degrees, load.parameters, attending[1])),
    )


@evaluated_once
def _branches(workload: Workload, degrees: Degrees) -> list[Amount]:
    """Branches of a layer of each kind that tensor ranks split."""
    grouped = expert.is_grouped(degrees)
    return [tensor.layer_branches(workload.model, shape, grouped=grouped) for shape in workload.ledger.shapes]


def _passes(
    workload: Workload, degrees: Degrees, stage: Stage, modules: tuple[RecomputeModule, ...]
) -> tuple[Amount, Amount]:
    """Forward passes, those that recompute repeats counted, and backward passes of the mean layer of a stage."""
    trained = trained_layers(workload, stage.kind_counts)
    backwards = number_or_column(trained / maximum(stage.layers, 1))
    repeated = repeated_forwards(workload.recompute, trained, degrees.virtual_pipeline, modules)
    return 1 + number_or_column(repeated) * backwards, backwards


TENSOR_OVERLAP_FRACTION = 0.4
"""Share of tensor-parallel communication that torch hides where ranks exchange in pieces beside their products.
Source: published pairs with and without: torchtitan's async TP on 64 and 256 H100 takes 7-14 % off steps of which TP
is a quarter to a third; nanotron runs two of five transfers beside a product."""


def tensor_overlap_fraction(workload: Workload) -> float:
    """Share of tensor-parallel communication that hides beside products, where ranks split the sequence.

    Formula: 0 where the recipe overlaps nothing; x with user buffers, else TENSOR_OVERLAP_FRACTION
    Args:
        workload: the workload, with x = StepConstants.user_buffer_fraction
    Returns: share of the seconds [1]
    Source: NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py (initialize_ub); TENSOR_OVERLAP_FRACTION

    >>> from service.estimator.samples import sample_workload
    >>> tensor_overlap_fraction(sample_workload()) == sample_workload().constants.user_buffer_fraction
    True
    """
    if not workload.software.tensor_overlap:
        return 0.0
    has_buffers = workload.implementation.uses_transformer_engine
    return workload.constants.user_buffer_fraction if has_buffers else TENSOR_OVERLAP_FRACTION


@dataclass(slots=True)
class Timed:
    """Transfers of some layers, with their seconds."""

    axis: CommunicationAxis
    repeated: Repeated
    each_seconds: list[Amount]
    """Seconds of each transfer of one layer [s]."""
    total_seconds: Amount
    """Seconds of all of them, of all layers [s]."""
    beside: tuple[Condition, ...] = ()
    """Whether each runs beside compute at all; empty where all may."""
    waiting_seconds: Amount = 0.0
    """Seconds of those that do not [s]."""

    @property
    def beside_seconds(self) -> Amount:
        """Seconds of those that do [s]."""
        return self.total_seconds - self.waiting_seconds


def _timed(axis: CommunicationAxis, degrees: Degrees, repeated: Repeated, interconnect: Interconnect) -> Timed:
    each = _each_seconds(degrees, repeated.transfers, interconnect)
    return Timed(axis, repeated, each, repeated.layers * summed(each))


@evaluated_once
def _each_seconds(_: Degrees, transfers: tuple[Transfer, ...], interconnect: Interconnect) -> list[Amount]:
    return [transfer_seconds(one, interconnect) for one in transfers]


@evaluated_once
def _interconnect(workload: Workload, _: Degrees) -> Interconnect:
    return interconnect_of(workload.cluster, workload.gpu, workload.constants.network_scale)


def _replicas(workload: Workload, degrees: Degrees, repeated: Repeated, interconnect: Interconnect) -> Timed:
    """Transfers of the data group, some of which may wait for compute to end."""
    timed = _timed("data", degrees, repeated, interconnect)
    timed.beside = tuple(is_beside(workload, degrees, one.content) for one in repeated.transfers)
    waits = (where(beside, 0.0, each) for beside, each in zip(timed.beside, timed.each_seconds, strict=True))
    timed.waiting_seconds = repeated.layers * summed(waits)
    return timed


@dataclass(slots=True, kw_only=True)
class ExposedSeconds:
    """Communication of one micro-batch that nothing hides, by axis."""

    tensor: Amount
    context: Amount
    expert: Amount
    data: Amount
    pipeline: Amount
    offload: Amount
    """Activations that go to host memory and come back."""
    hidden_pipeline: Amount
    """Sends between stages that hide under compute, except in the bubble."""
    free: Amount
    """Compute, and waits for host memory, under which nothing hides yet."""
    sent: tuple[Timed, ...]
    """All transfers, hidden or not."""
    interconnect: Interconnect
    away: Amount
    """Seconds of activations on their way to host memory and back, hidden or not."""

    @property
    def total_seconds(self) -> Amount:
        """All that is exposed [s]."""
        return summed_by_shape((self.tensor, self.context, self.expert, self.data, self.pipeline, self.offload))


EXCHANGING_PROCESSORS = 20
"""Processors that kernels of exchange take from the compute beside them, inside nodes of up to 8 GPUs.
Source: DeepSeek-V3, arXiv:2412.19437, section 3.2.2; NVIDIA/Megatron-LM@d98e8a64 core/transformer/
transformer_config.py: moe_deepep_num_sms."""

RACK_EXCHANGING_PROCESSORS = 32
"""The same in larger domains. Source: NVIDIA-NeMo/Megatron-Bridge@067f987 perf_recipes/_common.py:
moe_hybridep_num_sms on GB200 and GB300."""

USUAL_PROCESSORS = 132
"""Processors of a GPU of which none are known. Source: NVIDIA H100."""


def lost_fraction(workload: Workload) -> float:
    """Share of the time of exchanges beside compute that compute loses to them.

    Formula: n / N where kernels of exchange have processors of their own; else x
    Args:
        workload: the workload, with x = StepConstants.contention_fraction
    Returns: share of the hidden seconds [1]
    Source: n = EXCHANGING_PROCESSORS, RACK_EXCHANGING_PROCESSORS; N: GenerationRates.processors

    >>> from service.estimator.samples import sample_workload
    >>> lost_fraction(sample_workload()) == sample_workload().constants.contention_fraction
    True
    """
    if workload.software.dispatcher != "flex":
        return workload.constants.contention_fraction
    own = RACK_EXCHANGING_PROCESSORS if workload.cluster.scale_up_gpus > SWITCHED_GPUS else EXCHANGING_PROCESSORS
    return own / (generation_rates(workload.gpu).processors or USUAL_PROCESSORS)


def paired_fraction(degrees: Degrees) -> Amount:
    """Share of a stage's micro-batches whose forward pass runs beside the backward pass of another one.

    Formula: max(0, 1 - (w + 1) / (m v)), w = 2 (p - 1) + (v - 1) p chunks before the first pair, 0 without chunks
    Args:
        degrees: the degrees, with p stages of v chunks and m micro-batches
    Returns: share of the passes [1]
    Source: NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py get_pp_rank_microbatches, one chunk more
        with overlap_moe_expert_parallel_comm; combined_1f1b.py; the first stage

    >>> from service.estimator.samples import sample_degrees
    >>> paired_fraction(sample_degrees(pipeline=1)) == 1 - 1 / sample_degrees(pipeline=1).accumulation
    True
    """
    p, v = degrees.pipeline, degrees.virtual_pipeline
    before = where(v > 1, 2 * (p - 1) + (v - 1) * p, 0)
    return maximum(0.0, 1 - (before + 1) / (degrees.accumulation * v))


def _hidden_experts(workload: Workload, degrees: Degrees, layout: CompleteLayout, most: Amount) -> Amount:
    """Exchange of experts' tokens that hides beside another micro-batch, where there is one, less contention."""
    if layout.schedule == "dualpipe":
        own = EXCHANGING_PROCESSORS / (generation_rates(workload.gpu).processors or USUAL_PROCESSORS)
        return where(degrees.pipeline > 1, (1 - own) * most, 0.0)
    if not workload.software.expert_overlap:
        return 0.0
    return paired_fraction(degrees) * (1 - lost_fraction(workload)) * most


def offloaded_activation_seconds(workload: Workload, load: RankLoad) -> Amount:
    """Seconds that one micro-batch's activations take to host memory and back, beside compute.

    Formula: 2 x bytes kept / W_host
    Returns: seconds of one micro-batch [s]
    Source: definition; kernels.HOST_LINK_FRACTION

    >>> from service.estimator.samples import sample_workload, sample_rank_load
    >>> round(offloaded_activation_seconds(sample_workload(), sample_rank_load()), 2)
    1.32
    """
    return 2 * summed(load.kept_bytes) / (workload.gpu.host_bytes_per_s * HOST_LINK_FRACTION)


def exposed_seconds(
    workload: Workload, degrees: Degrees, stage: Stage, load: RankLoad, layout: CompleteLayout, compute: ComputeSeconds
) -> ExposedSeconds:
    """Communication of one micro-batch that nothing hides.

    Compute hides each second of communication once, and never more than it lasts. A ring of context ranks hides under
    attention, their other exchanges do not; tensor ranks that split the sequence hide the overlapped share; DualPipe
    hides the exchange of experts, but for the processors that exchange; sends hide between interleaved chunks; sharded
    weights and gradients travel beside compute and slow it, or wait where their overlap is off. Activations go to host
    memory and back beside all of that, on a wire of their own.

    Source:
        Narayanan et al. 2021, arXiv:2104.04473, section 3; DeepSeek-V3, arXiv:2412.19437, section 3.2.1
    """
    interconnect = _interconnect(workload, degrees)
    method = layout.context_method
    sent = micro_batch_transfers(workload, degrees, stage, load, layout)
    by_kind = [_timed("tensor", degrees, one, interconnect) for one in sent.tensor]
    contexts, to_experts = (
        _timed("context", degrees, sent.context, interconnect),
        _timed("expert", degrees, sent.expert, interconnect),
    )
    to_stages = _timed("pipeline", degrees, sent.pipeline, interconnect)
    to_replicas = _replicas(workload, degrees, sent.data, interconnect)
    exchange, experts = contexts.total_seconds, to_experts.total_seconds
    sends, sharded, waits = to_stages.total_seconds, to_replicas.beside_seconds, to_replicas.waiting_seconds
    tensors = summed(one.total_seconds for one in by_kind)
    away = offloaded_activation_seconds(workload, load) if layout.offload in OFFLOADED_ACTIVATIONS else 0.0
    hidden_exchange = minimum(exchange, compute.attention) if method == "ring" else 0.0
    computing = compute.total_seconds
    free = computing - hidden_exchange
    overlaps = where(degrees.sequence_parallel == 1, tensor_overlap_fraction(workload), 0.0)
    hidden_tensors = minimum(overlaps * tensors, free)
    free = free - hidden_tensors
    hidden_experts = _hidden_experts(workload, degrees, layout, minimum(experts, free))
    free = free - hidden_experts
    hides_sends = where(degrees.virtual_pipeline > 1, 1.0, 0.0) if workload.implementation.overlap.hides_sends else 0.0
    hidden_sends = hides_sends * minimum(sends, free)
    free = free - hidden_sends
    result = ExposedSeconds(
        tensor=tensors - hidden_tensors,
        context=exchange - hidden_exchange,
        expert=experts - hidden_experts,
        data=waits + maximum(0.0, sharded - free) + workload.constants.contention_fraction * minimum(sharded, free),
        pipeline=sends - hidden_sends,
        offload=0.0,
        hidden_pipeline=hidden_sends,
        free=maximum(0.0, free - to_replicas.total_seconds),
        sent=(*by_kind, contexts, to_experts, to_replicas, to_stages),
        interconnect=interconnect,
        away=away,
    )
    if layout.offload in OFFLOADED_ACTIVATIONS:
        result.offload = maximum(0.0, away - computing - result.total_seconds)
        result.free = result.free + result.offload
    return result


@evaluated_once
def once_a_step(workload: Workload, degrees: Degrees, parameters: RankParameters, interconnect: Interconnect) -> Timed:
    """Gradients and weights that the data group exchanges once a step."""
    sent = Repeated(1, data.step_transfers(workload, degrees, parameters))
    return _replicas(workload, degrees, sent, interconnect)


def exposed_once_seconds(
    workload: Workload, degrees: Degrees, beside_seconds: Amount, waiting_seconds: Amount, backward_seconds: Amount
) -> Amount:
    """Gradients and weights that the data group exchanges once a step, as far as no backward pass hides them.

    A stage of an interleaved pipeline exchanges chunk by chunk: one that has run its last micro-batch backward sends
    beside the g micro-batches of each chunk that is still to come, and only the first chunk's end is seen.

    Formula:
        T_waiting + y T + max(0, (1 - y) T - (g (v - 1) + 1) / v t_backward), y = x / v,
        x = StepConstants.exposed_gradient_fraction
    Args:
        degrees: the layout: v chunks, groups of g micro-batches
        beside_seconds: seconds of what is exchanged beside compute, T [s]
        waiting_seconds: seconds of what is exchanged after the last backward pass, T_waiting [s]
        backward_seconds: one micro-batch's backward pass, as far as nothing hides under it, t_backward [s]
    Returns: seconds of one step [s]
    Source:
        StepConstants.exposed_gradient_fraction; NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py
        (forward_backward_pipelining_with_interleaving: grad_sync_func and param_sync_func, chunk by chunk)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> exposed_once_seconds(sample_workload(), sample_degrees(), 0.0, 2.0, 1.0)
    2.0
    """
    chunks = degrees.virtual_pipeline
    seen = workload.constants.exposed_gradient_fraction / chunks
    hiding = (degrees.virtual_group * (chunks - 1) + 1) / chunks * backward_seconds
    return waiting_seconds + seen * beside_seconds + maximum(0.0, (1 - seen) * beside_seconds - hiding)


@dataclass(slots=True, kw_only=True)
class StepCommunication:
    """What one rank of a stage sends in one step."""

    micro_batches: float
    exposed: ExposedSeconds
    """Transfers of one micro-batch."""
    once: Timed
    """Transfers once a step."""
    exposed_once_seconds: float
    """Seconds of those that nothing hides [s]."""
    scale: float
    """By how much the stack and measured steps scale all seconds [1]."""


def sending_seconds(calls: float, call_seconds: float) -> float:
    """Seconds that the calls of one collective take in one step, hidden or not.

    Formula: n t
    Args:
        calls: calls in one step, n [1]
        call_seconds: seconds of one call, t [s]
    Returns: seconds of one step [s]
    Source: definition

    >>> sending_seconds(16, 0.5)
    8.0
    """
    return calls * call_seconds


def waiting_seconds(seconds: float, exposed_fraction: float) -> float:
    """Seconds of one collective that lengthen the step, which all collectives of its axis share by their seconds.

    Compute hides each second of communication once, and never more than it lasts. A ring of context ranks hides under
    attention, their other exchanges do not; tensor ranks that split the sequence hide the overlapped share; sends hide
    between interleaved chunks; sharded weights and gradients travel beside compute and slow it.

    Formula: x T
    Args:
        seconds: seconds of all calls, T [s]
        exposed_fraction: share of the axis's seconds that nothing hides, x [1]
    Returns: seconds of one step [s]
    Source:
        Narayanan et al. 2021, arXiv:2104.04473, section 3; DeepSeek-V3, arXiv:2412.19437, section 3.2.1

    >>> waiting_seconds(8.0, 0.25)
    2.0
    """
    return seconds * exposed_fraction


def hidden_seconds(seconds: float, exposed_seconds: float) -> float:
    """Seconds of one collective that run beside compute and cost no time.

    Formula: T - T_exposed
    Args:
        seconds: seconds of all calls, T [s]
        exposed_seconds: those that lengthen the step, T_exposed [s]
    Returns: seconds of one step [s]
    Source: definition

    >>> hidden_seconds(8.0, 2.0)
    6.0
    """
    return seconds - exposed_seconds


def communication_rows(load: RankLoad, sent: StepCommunication) -> tuple[Communication, ...]:
    """What one rank sends in one step, a row for each axis and collective, layers of all kinds together."""
    exposed = sent.exposed
    interconnect = exposed.interconnect
    rows: dict[str, Communication] = {}
    for timed in exposed.sent:
        same_axis = [one for one in exposed.sent if one.axis == timed.axis]
        fraction = _beside_fraction(same_axis, float(getattr(exposed, timed.axis)))
        _add_rows(rows, timed, _Recurring("micro_batch", sent.micro_batches, sent.scale, fraction), interconnect)
    fraction = _beside_fraction([sent.once], sent.exposed_once_seconds)
    _add_rows(rows, sent.once, _Recurring("step", 1, sent.scale, fraction), interconnect)
    if exposed.away:
        rows["offload"] = _offload_row(float(summed(load.kept_bytes)), sent)
    return tuple(rows.values())


def _beside_fraction(timed: list[Timed], exposed_seconds: float) -> float:
    """Share of the seconds beside compute that nothing hides, of transfers that share what hides them."""
    waiting = sum(float(one.waiting_seconds) for one in timed)
    beside = sum(float(one.beside_seconds) for one in timed)
    return min(1.0, max(0.0, exposed_seconds - waiting) / beside) if beside > 0 else 1.0


@dataclass(slots=True)
class _Recurring:
    """How often transfers recur in a step, and how their seconds count."""

    every: Literal["micro_batch", "step"]
    times: float
    scale: float
    exposed_fraction: float
    """Share of the seconds beside compute that nothing hides."""


def _add_rows(rows: dict[str, Communication], timed: Timed, recurring: _Recurring, interconnect: Interconnect) -> None:
    times = recurring.times * float(timed.repeated.layers)
    sharing = timed.beside or (True,) * len(timed.each_seconds)
    for transfer, alone, beside in zip(timed.repeated.transfers, timed.each_seconds, sharing, strict=True):
        calls = times * float(transfer.count)
        if not calls or not alone:
            continue
        kind = f"{timed.axis}_{transfer.collective}_{transfer.content}"
        same = rows.get(kind)
        if same is not None and same.every != recurring.every:
            kind, same = f"{kind}_once", None
        if same is not None:
            calls += same.calls
        each = recurring.scale * float(alone) / float(transfer.count)
        seconds = sending_seconds(calls, each)
        exposed = waiting_seconds(seconds, recurring.exposed_fraction if beside else 1.0)
        group = group_of(transfer.ranks, transfer.spacing, interconnect)
        within: Literal["scale_up", "host_bus"] = "host_bus" if interconnect.uses_host_bus else "scale_up"
        rows[kind] = Communication(
            kind=kind,
            axis=timed.axis,
            collective=transfer.collective,
            content=transfer.content,
            every=recurring.every,
            calls=calls,
            ranks=int(group.ranks),
            local_ranks=int(group.local),
            link="network" if group.domains > 1 else within,
            tensor_bytes=float(transfer.bytes),
            sent_bytes=float(sent_bytes(transfer.collective, transfer.bytes, transfer.ranks)),
            call_seconds=each,
            seconds=seconds,
            hidden_seconds=hidden_seconds(seconds, exposed),
            exposed_seconds=exposed,
        )


def _offload_row(kept_bytes: float, sent: StepCommunication) -> Communication:
    """Activations on their way to host memory and back."""
    calls, away = 2 * sent.micro_batches, float(sent.exposed.away)
    each = sent.scale * away / 2
    seconds = sending_seconds(calls, each)
    exposed = waiting_seconds(seconds, float(sent.exposed.offload) / away)
    return Communication(
        kind="offload_copy_activations",
        axis="offload",
        collective="copy",
        content="activations",
        every="micro_batch",
        calls=calls,
        ranks=1,
        local_ranks=1,
        link="host",
        tensor_bytes=kept_bytes,
        sent_bytes=kept_bytes,
        call_seconds=each,
        seconds=seconds,
        hidden_seconds=hidden_seconds(seconds, exposed),
        exposed_seconds=exposed,
    )
