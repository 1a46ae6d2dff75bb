"""Collectives of one rank, axis by axis, and the part of them that no compute hides."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.estimator.complete import CompleteLayout
from service.estimator.degrees import Degrees, Transfer
from service.estimator.memory.activations import RankLoad, repeated_forwards, trained_layers
from service.estimator.memory.memory import OFFLOADED_ACTIVATIONS
from service.estimator.model.build import MIXERS
from service.estimator.numeric import Amount, maximum, minimum, summed, where
from service.estimator.parallelism import context, data, expert, pipeline, tensor
from service.estimator.parallelism.stages import RankParameters, Stage
from service.estimator.question import RecomputeModule
from service.estimator.time.collectives import Interconnect, interconnect_of, transfer_seconds
from service.estimator.time.kernels import HOST_LINK_FRACTION, ComputeSeconds
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
    grouped = expert.is_grouped(degrees)
    tensors = ((count, tensor.layer_branches(workload.model, shape, grouped=grouped)) for count, shape in shapes)
    return MicroBatchTransfers(
        tensor=tuple(
            Repeated(count, tensor.layer_transfers(workload, degrees, *all_layers, branches))
            for count, branches in tensors
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


def _passes(
    workload: Workload, degrees: Degrees, stage: Stage, modules: tuple[RecomputeModule, ...]
) -> tuple[Amount, Amount]:
    """Forward passes, those that recompute repeats counted, and backward passes of the mean layer of a stage."""
    trained = trained_layers(workload, stage.kind_counts)
    backwards = trained / maximum(stage.layers, 1)
    repeated = repeated_forwards(workload.recompute, trained, degrees.virtual_pipeline, modules)
    return 1 + repeated * backwards, backwards


TENSOR_OVERLAP_FRACTION = 0.4
"""Share of tensor-parallel communication that hides where ranks exchange in pieces beside their products.
Source: published pairs with and without: torchtitan's async TP on 64 and 256 H100 takes 7-14 % off steps of which TP
is a quarter to a third."""


def _interconnect(workload: Workload) -> Interconnect:
    """The links and the network of one GPU inside a step."""
    return interconnect_of(workload.cluster, workload.gpu, workload.constants.network_scale)


def _repeated_seconds(repeated: Repeated, interconnect: Interconnect) -> Amount:
    return repeated.layers * summed(transfer_seconds(one, interconnect) for one in repeated.transfers)


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

    @property
    def total_seconds(self) -> Amount:
        """All that is exposed [s]."""
        return self.tensor + self.context + self.expert + self.data + self.pipeline + self.offload


def _hidden_experts(workload: Workload, degrees: Degrees, layout: CompleteLayout, most: Amount) -> Amount:
    """Exchange of experts' tokens that runs beside another micro-batch, where there is one, less contention."""
    if layout.schedule == "dualpipe":
        return where(degrees.pipeline > 1, most, 0.0)
    if not workload.software.expert_overlap:
        return 0.0
    return where(degrees.accumulation > 1, (1 - workload.constants.contention_fraction) * most, 0.0)


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
    hides the exchange of experts; sends hide between interleaved chunks; sharded weights and gradients travel beside
    compute and slow it. Activations go to host memory and back beside all of that, on a wire of their own.

    Source:
        Narayanan et al. 2021, arXiv:2104.04473, section 3; DeepSeek-V3, arXiv:2412.19437, section 3.2.1
    """
    interconnect, method = _interconnect(workload), layout.context_method
    sent = micro_batch_transfers(workload, degrees, stage, load, layout)
    exchange, experts = _repeated_seconds(sent.context, interconnect), _repeated_seconds(sent.expert, interconnect)
    sends, sharded = _repeated_seconds(sent.pipeline, interconnect), _repeated_seconds(sent.data, interconnect)
    tensors = summed(_repeated_seconds(one, interconnect) for one in sent.tensor)
    away = offloaded_activation_seconds(workload, load) if layout.offload in OFFLOADED_ACTIVATIONS else 0.0
    hidden_exchange = minimum(exchange, compute.attention + compute.host) if method == "ring" else 0.0
    computing = compute.total_seconds
    free = computing - hidden_exchange
    overlaps = TENSOR_OVERLAP_FRACTION if workload.software.tensor_overlap else 0.0
    hidden_tensors = minimum(where(degrees.sequence_parallel == 1, overlaps, 0.0) * tensors, free)
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
        data=maximum(0.0, sharded - free) + workload.constants.contention_fraction * minimum(sharded, free),
        pipeline=sends - hidden_sends,
        offload=0.0,
        hidden_pipeline=hidden_sends,
        free=maximum(0.0, free - sharded),
    )
    if layout.offload in OFFLOADED_ACTIVATIONS:
        result.offload = maximum(0.0, away - computing - result.total_seconds)
        result.free = result.free + result.offload
    return result


def once_a_step_seconds(
    workload: Workload, degrees: Degrees, parameters: RankParameters, backward_seconds: Amount
) -> Amount:
    """Gradients and weights that the data group exchanges once a step, as far as no backward pass hides them.

    Formula:
        x T + max(0, (1 - x) T - t_backward), x = StepConstants.exposed_gradient_fraction; 1 where the stack sends
        them after the last backward pass
    Args:
        parameters: parameters of the rank before sharding
        backward_seconds: the last micro-batch's backward pass, as far as nothing hides under it, t_backward [s]
    Returns: seconds of one step [s]
    Source: StepConstants.exposed_gradient_fraction

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> once_a_step_seconds(sample_workload(), sample_degrees(), sample_rank_load().parameters, 1.0)
    0.0
    """
    once = _repeated_seconds(Repeated(1, data.step_transfers(workload, degrees, parameters)), _interconnect(workload))
    seen = workload.constants.exposed_gradient_fraction if workload.implementation.overlap.hides_gradients else 1.0
    return seen * once + maximum(0.0, (1 - seen) * once - backward_seconds)
