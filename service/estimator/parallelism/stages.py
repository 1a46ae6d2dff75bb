"""Layers and parameters of one rank of one pipeline stage, and the residual stream between ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate

from service.estimator.degrees import OPTIMIZER_STATES, WEIGHTS, Degrees, divisors, evaluated_once
from service.estimator.model.build import is_trained_wide
from service.estimator.model.ledger import WIDE_BYTES, Ops, Split, Weight
from service.estimator.numeric import Amount, Condition, ceil_div, maximum, minimum, summed, take, where
from service.estimator.parallelism.buckets import (
    gather_bucket_numbers,
    gathers_ends_apart,
    reduce_bucket_numbers,
)
from service.estimator.software.precision import state_numbers
from service.estimator.workload import Workload, quantizes_head


@dataclass(slots=True, kw_only=True)
class Stage:
    """One pipeline stage: its layers of each kind, and whether it has the embedding or the head."""

    index: Amount
    chunk_counts: tuple[tuple[Amount, ...], ...]
    """Layers of each kind of the ledger in each chunk, with those of multi-token-prediction depths."""
    depths: Amount
    """Multi-token-prediction depths, all on the last stage."""
    is_first: Condition
    """Whether it has the embedding."""
    is_last: Condition
    """Whether it has the head."""
    kind_counts: tuple[Amount, ...] = field(init=False)
    """Layers of each kind in all its chunks together."""

    def __post_init__(self) -> None:
        self.kind_counts = tuple(summed(counts) for counts in zip(*self.chunk_counts, strict=True))

    @property
    def layers(self) -> Amount:
        """Layers of the stage, with those of depths [1]."""
        return summed(self.kind_counts)

    @property
    def shape(self) -> tuple[Amount, ...]:
        """Quantities that determine its load and step: layers of each kind in each chunk, embedding and head."""
        layers = (count for chunk in self.chunk_counts for count in chunk)
        return (*layers, where(self.is_first, 1, 0), where(self.is_last, 1, 0))

    def each_chunk(self, amount_of: Callable[[tuple[Amount, ...]], Amount]) -> tuple[Amount, ...]:
        """An amount of each chunk, computed once for all chunks with the same layer counts."""
        alike = {id(counts): counts for counts in self.chunk_counts}
        amounts = {key: amount_of(counts) for key, counts in alike.items()}
        return tuple(amounts[id(counts)] for counts in self.chunk_counts)


@dataclass(slots=True, kw_only=True)
class RankParameters:
    """Parameters and optimizer numbers of one rank before any data-parallel sharding."""

    dense: Amount
    """Parameters outside the routed experts."""
    expert: Amount
    dense_trained: Amount
    expert_trained: Amount
    dense_states: Amount
    """Numbers of optimizer state outside the routed experts."""
    expert_states: Amount
    """Numbers of optimizer state of its routed experts."""
    dense_copied: Amount
    """Those of `dense_trained` whose frozen original is stored too."""
    expert_products: Amount
    """Those of `expert` that are matrices of layers, which low-precision recipes keep copies of."""
    dense_products: Amount
    """Those of `dense` that are matrices of layers, which low-precision recipes keep copies of."""
    dense_reductions: Amount
    """Calls in which the data group reduces the gradients of `dense_trained` once."""
    expert_reductions: Amount
    dense_gathers: Amount
    """Calls in which the data group gathers `dense` once."""
    expert_gathers: Amount
    kept: Amount
    """Those of `dense` that stay gathered from the forward to the backward pass of ZeRO-3."""
    kept_gathers: Amount
    """Calls that gather them."""

    def plus(self, other: "RankParameters") -> "RankParameters":
        """The sum with another rank's parameters."""
        return RankParameters(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )

    def less(self, other: "RankParameters") -> "RankParameters":
        """Those that are not another's, which are among them; each is part of a call that the others fill."""
        calls = {name: getattr(self, name) for name in _CALLS}
        numbers = [field.name for field in fields(self) if field.name not in _CALLS]
        return RankParameters(**calls, **{name: getattr(self, name) - getattr(other, name) for name in numbers})

    def over(self, ranks: Amount) -> "RankParameters":
        """The share of each of several ranks."""
        return RankParameters(**{field.name: getattr(self, field.name) / ranks for field in fields(self)})


_CALLS = ("dense_reductions", "expert_reductions", "dense_gathers", "expert_gathers", "kept_gathers")
"""Fields of `RankParameters` that count calls."""


def _counts_between(workload: Workload, first: Amount, last: Amount) -> tuple[Amount, ...]:
    """Layers of each kind between two layer boundaries."""
    ledger = workload.ledger
    if len(ledger.kinds) == 1:
        return (last - first,)
    counts = []
    for kind in range(len(ledger.kinds)):
        before = tuple(accumulate((int(each == kind) for each in ledger.layer_kinds), initial=0))
        counts.append(take(before, last) - take(before, first))
    return tuple(counts)


def stage_at(
    workload: Workload, degrees: Degrees, index: Amount, stage_layers: tuple[int, ...] | None, chunks: int
) -> Stage:
    """One stage of a layout: the model's chunks are assigned to stages round-robin."""
    is_last = index == degrees.pipeline - 1
    depths = where(is_last, workload.ledger.depths, 0)
    chunk_counts = []
    for chunk in range(chunks):
        present = where(degrees.virtual_pipeline > chunk, 1, 0)
        final = where(degrees.virtual_pipeline == chunk + 1, depths, 0)
        counts = _chunk_counts(workload, degrees, chunk * degrees.pipeline + index, stage_layers)
        copies = [count * present for count in counts]
        copies[workload.ledger.depth_kind] = copies[workload.ledger.depth_kind] + final
        chunk_counts.append(tuple(copies))
    return Stage(index=index, chunk_counts=tuple(chunk_counts), depths=depths, is_first=index == 0, is_last=is_last)


def _chunk_counts(
    workload: Workload, degrees: Degrees, chunk_index: Amount, stage_layers: tuple[int, ...] | None
) -> tuple[Amount, ...]:
    """Layers of each kind in one chunk of the model; meaningless, and unused, beyond the last chunk."""
    if stage_layers is not None:
        first = take(tuple(accumulate(stage_layers[:-1], initial=0)), chunk_index)
        return _counts_between(workload, first, first + take(stage_layers, chunk_index))
    size = workload.model.num_hidden_layers / (degrees.pipeline * degrees.virtual_pipeline)
    first = where(chunk_index < degrees.pipeline * degrees.virtual_pipeline, chunk_index * size, 0)
    return _counts_between(workload, first, first + size)


def stage_ops(workload: Workload, stage: Stage) -> tuple[tuple[Amount, Ops], ...]:
    """The operations of a stage and how often each group occurs."""
    ledger = workload.ledger
    return (
        (where(stage.is_first, 1, 0), ledger.embedding),
        *zip(stage.kind_counts, ledger.kinds, strict=True),
        (stage.depths, ledger.depth),
        (where(stage.is_last, 1, 0), ledger.head),
    )


def copies_on_rank(weight: Weight, degrees: Degrees) -> Amount:
    """Copies of a weight on a rank of its stage; a tied head counts only on another stage than the embedding.

    Formula: 1; of a tied weight 1 with a pipeline, else 0
    Returns: copies [1]
    Source: rank_parameters

    >>> from service.estimator.samples import sample_degrees
    >>> head = Weight(4096, 1000, tied=True)
    >>> copies_on_rank(head, sample_degrees()), copies_on_rank(head, sample_degrees(pipeline=2))
    (0, 1)
    """
    return where(degrees.pipeline > 1, 1, 0) if weight.tied else 1


def rank_parameters(
    workload: Workload, degrees: Degrees, stage: Stage, *, copies_alone: bool = False
) -> RankParameters:
    """Parameters of one rank of a stage before any data-parallel sharding.

    A tied head on another stage than the embedding is a second copy.

    Formula: sum over the stage's weights of rows x columns x copies / divisor of their split
    Args:
        copies_alone: whether to count second copies alone
    Returns: the parameters [1]
    Source: Megatron-LM theoretical_memory_usage.py and transformer layers (what tensor ranks hold whole)
    """
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    adapts = workload.method.name != "full"
    quantizes = quantizes_head(workload)
    sums: dict[str, Amount] = {each.name: 0 for each in fields(RankParameters)}
    groups = [
        (times, [weight for op in ops for weight in op.weights if weight.tied or not copies_alone])
        for times, ops in stage_ops(workload, stage)
    ]
    for times, weights in groups:
        for weight in weights:
            copies = times * copies_on_rank(weight, degrees) / split[weight.split]
            parameters, group = weight.parameters * copies, "expert" if weight.split is Split.EXPERT else "dense"
            added = {group: parameters, f"{group}_states": state_numbers(workload.optimizer, weight) * copies}
            if weight.trained:
                added[f"{group}_trained"] = parameters
            if weight.role == "matrix" or (quantizes and weight.role == "head" and not weight.trained):
                added[f"{group}_products"] = parameters
            if adapts and weight.trained and weight.role != "adapter" and group == "dense":
                added["dense_copied"] = parameters
            for name, amount in added.items():
                sums[name] = sums[name] + amount
    if workload.stack.keeps_root:
        sums |= _kept_at_root(workload, degrees, stage, split, copies_alone=copies_alone)
    return RankParameters(**sums if copies_alone else {**sums, **_data_calls(workload, degrees, stage, groups)})


ROUNDING = 1e-9
"""Part of a bucket that sums of shares may leave by rounding. Source: IEEE 754, binary64."""


def _whole_calls(filled: Amount) -> Amount:
    """Calls for so many buckets, the last of which need not be full."""
    return maximum(1, ceil_div(filled - ROUNDING, 1))


def _kept_at_root(
    workload: Workload, degrees: Degrees, stage: Stage, split: tuple[Amount, ...], *, copies_alone: bool
) -> dict[str, Amount]:
    """What the root unit of ZeRO-3 keeps gathered between the passes: the head, and the embedding if it is not apart.

    Source: torch distributed/fsdp (the root stays gathered after its forward pass); torchtitan 0.3.0
        distributed/fsdp.py (the head's unit does)
    """
    first = where(stage.is_first, 0 if gathers_ends_apart(workload) else 1, 0)
    last = where(stage.is_last, 1, 0)
    kept = summed(
        has_it * weight.parameters * copies_on_rank(weight, degrees) / split[weight.split]
        for has_it, ops in ((first, workload.ledger.embedding), (last, workload.ledger.head))
        for op in ops
        for weight in op.weights
        if weight.tied or not copies_alone
    )
    return {"kept": kept, "kept_gathers": maximum(first, last)}


def _data_calls(
    workload: Workload, degrees: Degrees, stage: Stage, groups: Sequence[tuple[Amount, Sequence[Weight]]]
) -> dict[str, Amount]:
    """Calls in which the data group reduces the gradients of one rank, and gathers its weights, once.

    A bucket is closed by the matrix that fills it, so a matrix that is larger has a call of its own; sums of shares
    count no fewer calls than are made. What is sharded layer by layer has a call for each layer and for the ends.

    Source:
        torch csrc/distributed/c10d/reducer.cpp compute_bucket_assignment_by_size; NVIDIA/Megatron-LM@d98e8a64
        core/distributed/param_and_grad_buffer.py; deepspeedai/DeepSpeed@edaa722 runtime/zero/stage_1_and_2.py,
        runtime/utils.py all_gather_dp_groups (one call for all), runtime/zero/partitioned_param_coordinator.py;
        torch distributed/fsdp (a call a unit)
    """
    stack, bucket = workload.stack, reduce_bucket_numbers(workload, degrees, is_first=stage.is_first)
    fetched, buckets, calls = gather_bucket_numbers(workload), stack.bucket_stage, dict[str, Amount]()
    apart = workload.implementation.runs_transformers  # others join queries, keys and values, and gate and up
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    for group in ("dense", "expert"):
        reduced: Amount = 0.0
        gathered: Amount = 0.0
        units: Amount = 0.0
        for times, weights in groups:
            own = [weight for weight in weights if (weight.split is Split.EXPERT) == (group == "expert")]
            for weight in own if fetched or buckets is not None else ():
                matrices = weight.copies * (len(weight.matrices) or 1 if apart else 1)
                on_rank = matrices / (degrees.expert if group == "expert" else 1)
                numbers = weight.parameters / split[weight.split] / on_rank
                count = times * on_rank * copies_on_rank(weight, degrees)
                if weight.trained and buckets is not None:
                    reduced = reduced + count * minimum(1, numbers / bucket)
                if fetched:
                    gathered = gathered + count * minimum(1, numbers / fetched)
            units = units + (times if own else 0)
        if group == "dense":
            first, last = where(stage.is_first, 1, 0), where(stage.is_last, 1, 0)
            units = stage.layers + (first + last if gathers_ends_apart(workload) else maximum(first, last))
        if stack.buckets_serve_overlap:  # chunks after the first have one bucket each
            reduced = reduced / degrees.virtual_pipeline
        units = maximum(1, units)  # a stage may be empty
        filled = _whole_calls(reduced) + (degrees.virtual_pipeline - 1 if stack.buckets_serve_overlap else 0)
        once = units if buckets is None else where(degrees.zero_stage <= buckets, filled, units)
        updated = where(degrees.zero_stage <= OPTIMIZER_STATES, once, 1) if stack.gathers_buckets else 1
        calls[f"{group}_reductions"] = once
        calls[f"{group}_gathers"] = where(
            degrees.zero_stage == WEIGHTS, _whole_calls(gathered) if fetched else units, updated
        )
    return calls


def stage_total(workload: Workload, degrees: Degrees, stage: Stage) -> int:
    """Parameters of one stage of a single layout, all its ranks together.

    Formula: sum of the stage's weights, a tied head away from the embedding counted again
    Returns: parameters [1]
    Source: definition: the ledger of operations, model/ledger.py

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage_total(sample_workload(), sample_degrees(), stage_at(sample_workload(), sample_degrees(), 0, None, 1))
    8030261248
    """
    weights = [(times, weight) for times, ops in stage_ops(workload, stage) for op in ops for weight in op.weights]
    return sum(int(times) * int(copies_on_rank(weight, degrees)) * weight.parameters for times, weight in weights)


@evaluated_once
def stream_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of the residual stream of one micro-batch on one context rank.

    Formula: s b h / c elements
    Returns: bytes of one micro-batch [byte]
    Source: definition

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stream_bytes(sample_workload(), sample_degrees())
    67108864.0
    """
    numbers = workload.recipe.sequence_length * workload.model.hidden_size
    return numbers * degrees.micro_batch / degrees.context * workload.precision.element_bytes


@evaluated_once
def handed_stream_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of the residual stream of one micro-batch as one layer passes it, or its gradient, to the next.

    Formula: that of one tensor rank; 4 bytes a number under autocast, which adds branches to a trained fp32 embedding
    Returns: bytes of one micro-batch [byte]
    Source: torch.amp (an addition has the wider format of what it adds); live bytes counted by torch 2.13's profiler

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> handed_stream_bytes(sample_workload(), sample_degrees())
    67108864.0
    """
    is_wide = workload.implementation.casts_each_input and workload.precision.is_mixed
    is_wide = is_wide and is_trained_wide("embedding", workload.method)
    return sequence_stream_bytes(workload, degrees) * (
        WIDE_BYTES / workload.precision.element_bytes if is_wide else 1.0
    )


@evaluated_once
def sequence_stream_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of the residual stream of one micro-batch on one tensor rank.

    Formula: s b h / c elements, over t where sequence parallelism is on
    Returns: bytes of one micro-batch [byte]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> sequence_stream_bytes(sample_workload(), sample_degrees(tensor=2, sequence_parallel=1))
    33554432.0
    """
    return stream_bytes(workload, degrees) / where(degrees.sequence_parallel == 1, degrees.tensor, 1)
