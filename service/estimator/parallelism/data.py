"""Data parallelism: shards of ZeRO or FSDP over the replicas, and their transfers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from service.estimator.answer import Content
from service.estimator.degrees import (
    GRADIENTS,
    OPTIMIZER_STATES,
    WEIGHTS,
    Degrees,
    Spacing,
    Transfer,
    evaluated_once,
    expert_replica_spacing,
    replica_spacing,
)
from service.estimator.numeric import (
    Amount,
    Condition,
    both,
    divides,
    either,
    implies,
    is_nothing,
    minimum,
    where,
)
from service.estimator.parallelism.stages import RankParameters
from service.estimator.rule import LayoutRule, Rule, divisors_of
from service.estimator.software.precision import DTYPE_BYTES
from service.estimator.workload import Workload

RULES: dict[str, LayoutRule] = {
    "degrees_fill_cluster": Rule(lambda w, d: d.gpus == w.cluster.gpus),
    "shard_group_divides_data": Rule(
        lambda _, d: divides(d.shard_group, d.data * d.context),
        lambda _, d: {"divisors": divisors_of(int(d.data * d.context))},
    ),
    "shard_group_divides_experts": Rule(
        lambda w, d: implies(
            d.shard_group < d.data * d.context,
            either(divides(d.shard_group, d.expert_data), w.model.num_experts == 0),
        )
    ),
    "shard_group_needs_sharding": Rule(lambda _, d: implies(d.zero_stage == 0, d.shard_group == d.data * d.context)),
}

UPDATE_BYTES = 4.0
"""Bytes of one number of a momentum on its way to the rank that owns its matrix, and of an update on its way back.
Source: pytorch/torchtitan@0.3.0 distributed/flex_shard/dist_muon.py (in the parameter's format)."""


@evaluated_once
def shards(degrees: Degrees, kind: int) -> Amount:
    """Ranks over which the data group spreads one kind of tensor of the dense part.

    Formula: the shard group where zero_stage reaches the kind, else 1
    Args:
        kind: OPTIMIZER_STATES, GRADIENTS or WEIGHTS [1]
    Returns: ranks [1]
    Source: Rajbhandari et al. 2020, arXiv:1910.02054, figure 1; context ranks join the data group (Megatron-Core)

    >>> from service.estimator.samples import sample_degrees
    >>> zero = sample_degrees(data=8, zero_stage=1)
    >>> shards(zero, OPTIMIZER_STATES), shards(zero, WEIGHTS)
    (8, 1)
    """
    return where(degrees.zero_stage >= kind, degrees.shard_group, 1)


@evaluated_once
def expert_shards(degrees: Degrees, kind: int) -> Amount:
    """Ranks over which the data group spreads one kind of tensor of the experts.

    Formula: d c t / (e e_t), or a smaller shard group where one is given, where zero_stage reaches the kind; else 1
    Args:
        kind: OPTIMIZER_STATES, GRADIENTS or WEIGHTS [1]
    Returns: ranks [1]
    Source: Megatron-Core moe README (expert data parallelism)

    >>> from service.estimator.samples import sample_degrees
    >>> expert_shards(sample_degrees(data=8, expert=4, zero_stage=1), OPTIMIZER_STATES)
    2.0
    """
    return where(degrees.zero_stage >= kind, _expert_group(degrees), 1)


def _expert_group(degrees: Degrees) -> Amount:
    """Ranks that shard one expert: all that hold it, or fewer where the shard group of the dense part is smaller."""
    is_smaller = degrees.shard_group < degrees.data * degrees.context
    return where(is_smaller, minimum(degrees.shard_group, degrees.expert_data), degrees.expert_data)


@dataclass(slots=True)
class _Group:
    """The dense part or the experts: parameters of a rank, and the ranks that hold the same ones."""

    parameters: Amount
    """Parameters of the rank before sharding."""
    trained: Amount
    """The trained ones among them."""
    reductions: Amount
    """Calls in which their gradients are reduced once."""
    gathers: Amount
    """Calls in which they are gathered once."""
    kept: Amount
    """Those of the parameters that stay gathered between forward and backward."""
    kept_gathers: Amount
    """Calls that gather those."""
    shard: Amount
    """Ranks over which sharded tensors are spread."""
    ranks: Amount
    """Ranks that hold the same parameters."""
    spacing: Spacing
    matrices: Amount
    """The trained matrices of layers among those."""
    weights: Content = "weights"
    gradients: Content = "gradients"
    updates: Content = "updates"


def _groups(degrees: Degrees, parameters: RankParameters) -> Iterator[_Group]:
    ranks = degrees.data * degrees.context
    shard = minimum(degrees.shard_group, ranks)
    trained, matrices = parameters.dense_trained, parameters.dense_products
    calls = parameters.dense_reductions, parameters.dense_gathers, parameters.kept, parameters.kept_gathers
    yield _Group(parameters.dense, trained, *calls, shard, ranks, replica_spacing(degrees), minimum(matrices, trained))
    if not is_nothing(parameters.expert):
        ranks, shard = degrees.expert_data, _expert_group(degrees)
        spacing = expert_replica_spacing(degrees)
        trained, products = parameters.expert_trained, parameters.expert_products
        calls = parameters.expert_reductions, parameters.expert_gathers, 0.0, 0.0
        own = _Group(parameters.expert, trained, *calls, shard, ranks, spacing, minimum(products, trained))
        yield replace(own, weights="expert_weights", gradients="expert_gradients", updates="expert_updates")


@evaluated_once
def waits_for_last(workload: Workload, degrees: Degrees) -> Condition:
    """Whether ZeRO-3's gradients stay whole until the last micro-batch of a pipeline has run backward.

    Formula: a pipeline, where weights stay gathered or the stack delays its reductions
    Returns: whether they stay whole
    Source:
        torch 2.13 distributed/pipelining/stage.py backward_maybe_with_nosync (reshards and reduces once, after the
        last backward pass); NVIDIA/Megatron-LM@00caa53a core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py
        (reduces gradients on every backward pass, and frees a layer's weights after either pass)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> waits_for_last(sample_workload(), sample_degrees(pipeline=2, zero_stage=3, reshard_after_forward=1))
    False
    """
    delays = either(workload.stack.delays_reductions, degrees.reshard_after_forward == 0)
    return both(both(degrees.zero_stage >= WEIGHTS, degrees.pipeline > 1), delays)


def reduced_group(workload: Workload, degrees: Degrees) -> Amount:
    """Micro-batches whose gradients a stage adds up before it reduces them, where ZeRO shards gradients.

    Formula:
        1; with grouped reductions, those that a chunk runs one after another, N; all of a step where ZeRO-3's gradients
        stay whole
    Returns: micro-batches [1]
    Source:
        Llama 3, arXiv:2407.21783, section 3.3.2 (FSDP shards gradients; N contiguous micro-batches of a stage); torch
        2.13 distributed/fsdp/_fully_shard (set_requires_gradient_sync: gradients stay whole until the last one)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> reduced_group(sample_workload(), sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4))
    1
    """
    if workload.implementation.accumulates_whole:
        return where(degrees.zero_stage >= WEIGHTS, degrees.accumulation, 1)
    if not workload.software.grouped_reductions:
        return 1
    return where(both(degrees.zero_stage == GRADIENTS, degrees.virtual_pipeline > 1), degrees.virtual_group, 1)


def micro_batch_transfers(
    workload: Workload, degrees: Degrees, parameters: RankParameters, backwards: Amount
) -> tuple[Transfer, ...]:
    """What one rank sends for every micro-batch, call by call: only where weights or gradients are sharded.

    Formula:
        zero 3: gather weights forward, and r times backward where resharded, but not forward where they stay whole
        since the backward pass before, nor backward where their unit stays whole since the forward pass; zero 2 and 3:
        reduce-scatter gradients of what is trained, but none that wait for the last micro-batch, and those of a group
        of micro-batches once
    Args:
        parameters: parameters of the rank before sharding
        backwards: backward passes of the mean layer, r [1]
    Returns: the transfers
    Source:
        Rajbhandari et al. 2020, arXiv:1910.02054, section 7; Zhao et al. 2023, arXiv:2304.11277, section 3.2.1 (each
        unit pays the latency of its own collectives)
    """
    transfers: list[Transfer] = []
    freed = degrees.reshard_after_forward
    waits = waits_for_last(workload, degrees)
    resharding = where(degrees.zero_stage >= WEIGHTS, freed, 0)
    first = where(waits, 0, 1)
    kept = where(degrees.zero_stage == WEIGHTS, where(waits, 0, freed), 1)
    reduces = where(degrees.zero_stage >= GRADIENTS, kept, 0)
    if workload.software.grouped_reductions or workload.implementation.accumulates_whole:
        reduces = reduces / reduced_group(workload, degrees)
    for group in _groups(degrees, parameters):
        ranks, reduced = (group.shard, group.spacing), group.reductions
        gradients = group.trained * reduced_bytes(workload)
        gathers = (first + backwards) * group.gathers - first * backwards * group.kept_gathers
        numbers = (first + backwards) * group.parameters - first * backwards * group.kept
        weights = numbers * workload.state.gathered_bytes / where(gathers > 0, gathers, 1)
        transfers.append(Transfer("all_gather", weights, resharding * gathers, *ranks, group.weights))
        transfers.append(Transfer("reduce_scatter", gradients / reduced, reduces * reduced, *ranks, group.gradients))
    return tuple(transfers)


def step_transfers(workload: Workload, degrees: Degrees, parameters: RankParameters) -> tuple[Transfer, ...]:
    """What one rank sends once a step: gradients, updated weights, and between the replicas of a shard group.

    Formula:
        zero 0: all-reduce gradients; zero 1: reduce-scatter gradients, all-gather weights; zero 2: all-gather
        weights; zero 3 kept gathered, or with gradients that wait for the last micro-batch: reduce-scatter gradients,
        all-gather weights, frozen ones too; replicas: all-reduce of a shard; else only of what is trained; zero 3
        with whole matrices in the optimizer: an all-to-all of their momentum to their owners, and of updates back
    Args:
        parameters: parameters of the rank before sharding
    Returns: the transfers
    Source:
        Rajbhandari et al. 2020, arXiv:1910.02054, section 7; replicas: Zhao et al. 2023, arXiv:2304.11277, section 3.2;
        owners: pytorch/torchtitan@0.3.0 distributed/flex_shard/dist_muon.py
    """
    transfers: list[Transfer] = []
    waits = where(waits_for_last(workload, degrees), 1, 1 - degrees.reshard_after_forward)
    whole = where(degrees.zero_stage >= WEIGHTS, waits, 0)
    stage_one = where(degrees.zero_stage == OPTIMIZER_STATES, 1, 0)
    stage_two = where(degrees.zero_stage == GRADIENTS, 1, 0)
    for group in _groups(degrees, parameters):
        gradients, spacing = group.trained * reduced_bytes(workload), group.spacing
        weights = sent_weight_bytes(workload, where(whole == 1, group.parameters, group.trained), group.matrices)
        sharded = where(degrees.zero_stage >= OPTIMIZER_STATES, group.shard, 1)
        gathers, ranks = stage_one + stage_two + whole, (group.shard, spacing)
        reduced, gathered = group.reductions, group.gathers
        reduce_calls, gather_calls = (stage_one + whole) * reduced, gathers * gathered
        transfers.append(Transfer("reduce_scatter", gradients / reduced, reduce_calls, *ranks, group.gradients))
        transfers.append(Transfer("all_gather", weights / gathered, gather_calls, *ranks, group.weights))
        replicas, same_shard = group.ranks / sharded, replace(spacing, step=sharded)
        shard_bytes = gradients / sharded / reduced
        transfers.append(Transfer("all_reduce", shard_bytes, reduced, replicas, same_shard, group.gradients))
        if workload.optimizer.needs_whole_matrices:
            updates, calls = group.matrices * UPDATE_BYTES / group.shard, where(degrees.zero_stage >= WEIGHTS, 2, 0)
            transfers.append(Transfer("all_to_all", updates, calls, *ranks, group.updates))
    return tuple(transfers)


def narrow_weights(workload: Workload) -> bool:
    """Whether the replicas gather the matrices of layers in fp8, once a step."""
    return workload.recipe.fp8_weights and workload.recipe.precision in ("fp8-tensorwise", "fp8-blockwise")


def sent_weight_bytes(workload: Workload, numbers: Amount, matrices: Amount) -> Amount:
    """Bytes of the weights that the replicas gather once a step.

    Formula: N b; (N - M) b + M where matrices are kept in fp8, but for MXFP8, which is made of gathered weights
    Args:
        numbers: weights, N [1]
        matrices: those of layers' matrices among them, M [1]
    Returns: bytes of all of them [byte]
    Source:
        b = StateBytes.gathered_bytes; NVIDIA/Megatron-LM@d98e8a64 core/distributed/param_and_grad_buffer.py (fp8
        parameters have a buffer of bytes; mxfp8_param_buffer)

    >>> from service.estimator.samples import sample_workload
    >>> sent_weight_bytes(sample_workload(), 8.0, 4.0)
    16.0
    """
    each = workload.state.gathered_bytes
    return numbers * each - (matrices * (each - 1) if narrow_weights(workload) else 0.0)


def reduced_bytes(workload: Workload) -> float:
    """Bytes of one gradient in a reduction: in the accumulated format, or in the compute format of some stacks.

    Formula: min(4, bytes of an accumulated gradient); bytes of the compute format where the stack reduces it
    Returns: bytes of one number [byte]
    Source: the stacks' code: Overlap.reduces_half

    >>> from service.estimator.samples import sample_workload
    >>> reduced_bytes(sample_workload())
    4.0
    """
    if workload.implementation.overlap.reduces_half:
        return float(workload.precision.element_bytes)
    return min(workload.state.gradient_bytes, DTYPE_BYTES["fp32"])
