"""Parameters and activations of one micro-batch that one rank of a stage holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from service.estimator.degrees import Degrees, divisors
from service.estimator.memory.activations import (
    kept_bytes,
    kept_logits_bytes,
    largest_kind_bytes,
    layer_buffer_bytes,
    logits_bytes,
    stage_activations,
)
from service.estimator.model.ledger import Op, Ops, Split, Weight, WeightRole
from service.estimator.numeric import Amount, Condition, maximum, where
from service.estimator.parallelism.data import OPTIMIZER_STATES
from service.estimator.parallelism.stages import RankParameters, Stage, rank_parameters
from service.estimator.software.stacks import version_of
from service.estimator.software.versions import at_least
from service.estimator.workload import Workload

CACHED_SINCE = "2.3"
GROUPED_CACHED_SINCE = "2.10"
"""Transformer Engine keeps the empty gradients of its linear layers, and of grouped ones, from these versions on.
Source: NVIDIA/TransformerEngine@ba5dc5dd and @d2945c6a."""

HEAD_CACHED_SINCE = "0.14"
"""Megatron-Core keeps that of the head from this version on. Source: NVIDIA/Megatron-LM@e7c55de9."""

GRADIENT_BYTES = 2.0
"""Bytes of one number of an empty gradient: the weights' 16-bit format, for fp8 weights too.
Source: NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py get_dummy_wgrad."""


def placeholder_bytes(workload: Workload, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes of the empty gradients that one rank of a stage keeps once its first backward pass has run.

    Products of weight gradients add to the accumulated gradients themselves; what autograd is handed instead is an
    empty tensor of the weight's shape, one for all weights of that shape.

    Formula:
        2 x sum over distinct shapes of matrices, of one expert where they are grouped, and of the head

    Returns:
        bytes of one rank [byte]

    Source:
        NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py get_dummy_wgrad; NVIDIA/Megatron-LM@e7c55de9
        core/tensor_parallel/layers.py

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> placeholder_bytes(sample_workload(), sample_degrees(), stage) == 2 * (218_103_808 + 128_256 * 4096)
    True
    """
    if not workload.software.gradient_fusion or not workload.implementation.uses_transformer_engine:
        return 0.0
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    cached = _cached(workload)
    shapes: dict[tuple[int, int], Amount] = {}
    groups: list[tuple[Condition, Ops]] = [
        (stage.is_last, workload.ledger.head),
        (stage.depths > 0, workload.ledger.depth),
    ]
    groups += [(count > 0, ops) for count, ops in zip(stage.kind_counts, workload.ledger.kinds, strict=True)]
    for is_held, ops in groups:
        for op in ops:
            shape, numbers = _matrix(op, cached, degrees, split)
            if shape is not None:
                each = where(is_held, GRADIENT_BYTES * numbers, 0.0)
                shapes[shape] = maximum(shapes.get(shape, 0.0), each)
    return sum(shapes.values(), 0.0)


def _cached(workload: Workload) -> set[tuple[WeightRole, bool]]:
    """Roles of weights that have an empty gradient, with whether they are of experts."""
    engine, core = version_of(workload.software, "transformer_engine"), version_of(workload.software, "megatron_core")
    if not at_least(engine, CACHED_SINCE):
        return set()
    cached: set[tuple[WeightRole, bool]] = {("matrix", False)}
    if at_least(core, HEAD_CACHED_SINCE):
        cached.add(("head", False))
    if not workload.software.grouped_experts or at_least(engine, GROUPED_CACHED_SINCE):
        cached.add(("matrix", True))
    return cached


def _matrix(
    op: Op, cached: set[tuple[WeightRole, bool]], degrees: Degrees, split: tuple[Amount, ...]
) -> tuple[tuple[int, int] | None, Amount]:
    """The undivided shape of the one matrix that an operation's weights form side by side, and a rank's part of it."""
    results = [
        weight for weight in op.weights if weight.trained and (weight.role, weight.split is Split.EXPERT) in cached
    ]
    if not results or op.name == "moe.router":
        return None, 0.0
    numbers: Amount = 0.0
    for weight in results:
        numbers = numbers + weight.rows * weight.columns / _divisor(weight, degrees, split)
    return (results[0].rows, sum(weight.columns for weight in results)), numbers


def _divisor(weight: Weight, degrees: Degrees, split: tuple[Amount, ...]) -> Amount:
    """By how much tensor ranks divide one matrix; of experts, one is meant."""
    return split[weight.split] / degrees.expert if weight.split is Split.EXPERT else split[weight.split]


@dataclass(slots=True, kw_only=True)
class RankLoad:
    """The load of one rank of one stage; equal stages have equal loads."""

    held: RankParameters
    """Parameters it holds weights of, and of the trained ones gradients."""
    updated: RankParameters
    """Parameters it updates."""
    kept_bytes: tuple[Amount, ...]
    """Activations that one micro-batch keeps in each chunk."""
    largest_kept_bytes: Amount
    """Activations that its largest layer keeps of one micro-batch."""
    recomputed_bytes: Amount
    """Activations that live once while layers are computed again."""
    layer_buffer_bytes: Amount
    """What lives once while a layer runs backward."""
    placeholder_bytes: Amount
    """Empty gradients that the libraries keep."""
    largest_layer: Amount
    """Parameters of its largest layer."""
    largest_trained_layer: Amount
    """Most trained parameters of a layer."""
    gathered_ends: Amount
    """Parameters of what is gathered with the head: the head, and where the stack's root holds both the embedding."""
    largest_trained_end: Amount
    """Most trained parameters of either."""
    layers: Amount
    """Layers of the stage."""
    largest_activation_bytes: Amount
    """The largest result of a matrix product of one micro-batch."""
    embedding_table: Amount
    """Trained parameters of its embedding's matrix; 0 where it has none."""
    largest_table: Amount
    """Trained parameters of its embedding's or its head's matrix, whichever is larger; 0 where it has neither."""
    logits_bytes: Amount
    """Logits and losses of one micro-batch; 0 where it has no head."""
    kept_logits_bytes: Amount
    """What the loss of one micro-batch keeps for its backward pass."""


def rank_load_of(workload: Workload, degrees: Degrees, stage: Stage) -> RankLoad:
    """The load of one rank of one stage."""
    parameters = rank_parameters(workload, degrees, stage)
    activations = stage_activations(workload, degrees, stage)
    ends = end_activation_bytes(workload, degrees, stage)
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    layers = [(count > 0, ops) for count, ops in zip(stage.kind_counts, workload.ledger.kinds, strict=True)]
    layer, trained_layer = _largest(layers, split)
    end, trained_end = _largest(
        [(stage.is_first, workload.ledger.embedding), (stage.is_last, workload.ledger.head)], split
    )
    return RankLoad(
        held=parameters,
        updated=parameters,
        kept_bytes=tuple(saved_bytes + end for saved_bytes, end in zip(activations.kept_bytes, ends, strict=True)),
        largest_kept_bytes=activations.largest_bytes,
        recomputed_bytes=activations.again_bytes,
        layer_buffer_bytes=layer_buffer_bytes(workload, degrees, stage),
        placeholder_bytes=placeholder_bytes(workload, degrees, stage),
        largest_layer=layer,
        largest_trained_layer=trained_layer,
        gathered_ends=_gathered_ends(workload, stage, split, end),
        largest_trained_end=trained_end,
        layers=stage.layers,
        largest_activation_bytes=_largest_tensor(workload, stage, split) * degrees.micro_batch / degrees.context,
        embedding_table=_largest_table(((stage.is_first, workload.ledger.embedding),), split),
        largest_table=_largest_table(
            ((stage.is_first, workload.ledger.embedding), (stage.is_last, workload.ledger.head)), split
        ),
        logits_bytes=where(stage.is_last, logits_bytes(workload, degrees), 0.0),
        kept_logits_bytes=where(stage.is_last, kept_logits_bytes(workload, degrees), 0.0),
    )


def _largest_tensor(workload: Workload, stage: Stage, split: tuple[Amount, ...]) -> Amount:
    """Bytes of one sequence of the largest result of a matrix product in any layer of a stage."""
    by_kind: list[Amount] = []
    for ops in workload.ledger.kinds:
        largest: Amount = 0.0
        for weight in (weight for op in ops for weight in op.weights if weight.matrices):
            largest = maximum(largest, weight.columns / split[weight.split])
        by_kind.append(largest * workload.recipe.sequence_length * workload.precision.element_bytes)
    return largest_kind_bytes(stage, by_kind)


def _largest_table(groups: Sequence[tuple[Condition, Ops]], split: tuple[Amount, ...]) -> Amount:
    largest: Amount = 0.0
    for is_held, ops in groups:
        for weight in (weight for op in ops for weight in op.weights if weight.trained and weight.rows > 1):
            largest = maximum(largest, where(is_held, weight.parameters / split[weight.split], 0.0))
    return largest


def _gathered_ends(workload: Workload, stage: Stage, split: tuple[Amount, ...], largest: Amount) -> Amount:
    """Embedding and head together where the root of the model is one group, else the larger of them."""
    apart = workload.stack.ends_apart_since
    if apart is not None and at_least(version_of(workload.software, "torchtitan"), apart):
        return largest
    first = where(stage.is_first, _parameters(workload.ledger.embedding, split)[0], 0.0)
    return first + where(stage.is_last, _parameters(workload.ledger.head, split)[0], 0.0)


def _largest(groups: Sequence[tuple[Condition, Ops]], split: tuple[Amount, ...]) -> tuple[Amount, Amount]:
    """Most parameters, and most trained ones, of a group of operations, among the groups that the stage has."""
    counts = [(has_it, *_parameters(ops, split)) for has_it, ops in groups]
    return (
        reduce(maximum, [where(has_it, every, 0.0) for has_it, every, _ in counts]),
        reduce(maximum, [where(has_it, trained, 0.0) for has_it, _, trained in counts]),
    )


def _parameters(ops: Ops, split: tuple[Amount, ...]) -> tuple[Amount, Amount]:
    """All parameters of some operations on one rank, and the trained ones."""
    every: Amount = 0.0
    trained: Amount = 0.0
    for op in ops:
        for weight in op.weights:
            parameters = weight.parameters / split[weight.split]
            every = every + parameters
            trained = trained + parameters if weight.trained else trained
    return every, trained


def mirrored(one: RankLoad, other: RankLoad, degrees: Degrees) -> RankLoad:
    """The load of a DualPipe rank, which serves a stage from either end of the pipeline.

    It holds both stages' weights and gradients; each stage's optimizer is shared by its two holders; half of its
    micro-batches come from either end.

    Without ZeRO both holders keep the whole optimizer.

    Source:
        DeepSeek-V3, arXiv:2412.19437, section 3.2.1 and table 2
    """
    return RankLoad(
        held=one.held.plus(other.held),
        updated=one.updated.plus(other.updated).over(where(degrees.zero_stage >= OPTIMIZER_STATES, 2, 1)),
        kept_bytes=tuple(
            (saved_bytes + far) / 2 for saved_bytes, far in zip(one.kept_bytes, other.kept_bytes, strict=True)
        ),
        largest_kept_bytes=maximum(one.largest_kept_bytes, other.largest_kept_bytes),
        recomputed_bytes=maximum(one.recomputed_bytes, other.recomputed_bytes),
        layer_buffer_bytes=maximum(one.layer_buffer_bytes, other.layer_buffer_bytes),
        placeholder_bytes=maximum(one.placeholder_bytes, other.placeholder_bytes),
        largest_layer=maximum(one.largest_layer, other.largest_layer),
        largest_trained_layer=maximum(one.largest_trained_layer, other.largest_trained_layer),
        gathered_ends=maximum(one.gathered_ends, other.gathered_ends),
        largest_trained_end=maximum(one.largest_trained_end, other.largest_trained_end),
        layers=one.layers + other.layers,
        largest_activation_bytes=maximum(one.largest_activation_bytes, other.largest_activation_bytes),
        embedding_table=maximum(one.embedding_table, other.embedding_table),
        largest_table=maximum(one.largest_table, other.largest_table),
        logits_bytes=maximum(one.logits_bytes, other.logits_bytes),
        kept_logits_bytes=maximum(one.kept_logits_bytes, other.kept_logits_bytes),
    )


def end_activation_bytes(workload: Workload, degrees: Degrees, stage: Stage) -> tuple[Amount, ...]:
    """Bytes that embedding, head and depths keep of one micro-batch on one rank of a stage, their layers apart.

    Formula:
        sum of what their operations keep: the embedding's in the first chunk of the first stage, the others' in the
        last chunk of the last

    Returns:
        bytes of one micro-batch in each chunk [byte]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.3

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> end_activation_bytes(sample_workload(), sample_degrees(), stage) == (2 * (2 * 8192 * 4096),)
    True
    """
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    first = where(stage.is_first, kept_bytes(workload.ledger.embedding, workload.recompute, split), 0.0)
    head = where(stage.is_last, kept_bytes(workload.ledger.head, workload.recompute, split), 0.0)
    last = head + stage.depths * kept_bytes(workload.ledger.depth, workload.recompute, split)
    chunks = range(len(stage.chunk_counts))
    if stage.is_last is False:
        return tuple(0.0 if chunk else first * scale for chunk in chunks)
    ends = [where(degrees.virtual_pipeline == chunk + 1, last, 0.0) for chunk in chunks]
    return tuple((end + (0.0 if chunk else first)) * scale for chunk, end in enumerate(ends))
