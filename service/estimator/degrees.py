"""Degrees of a layout, as numbers or as columns, and which ranks of a group share a fast-link domain.

Ranks are numbered along one axis after the other, and whole domains of them share the fast link. Tensor ranks are
neighbours, context ranks lie a tensor group apart, experts are placed inside data x context x tensor ranks; then
come replicas and then stages (tp-cp-ep-dp-pp), or stages and then replicas (tp-cp-ep-pp-dp).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from math import inf
from typing import Any, ParamSpec, TypeVar, get_args

from service.estimator.answer import CollectiveName, Content
from service.estimator.complete import CompleteLayout, CompleteRecipe
from service.estimator.numeric import (
    Amount,
    Condition,
    both,
    ceil_div,
    floor_div,
    maximum,
    minimum,
    where,
    where_needed,
)
from service.estimator.question import Model, RankOrder

P = ParamSpec("P")
T = TypeVar("T")


class _Results:
    __slots__ = ("results",)

    results: dict[tuple[object, ...], tuple[Any, tuple[object, ...]]]
    """What shared formulas gave, and their arguments, which stay alive as long."""

    def __post_init__(self) -> None:
        self.results = {}


@dataclass(slots=True, kw_only=True)
class Degrees(_Results):
    """The degrees of one layout and its batch, or of a column of them; every one is filled."""

    data: Amount
    tensor: Amount
    context: Amount
    pipeline: Amount
    virtual_pipeline: Amount
    virtual_group: Amount
    """Micro-batches that a stage runs through one chunk before the next, g."""
    expert: Amount
    expert_tensor: Amount
    zero_stage: Amount
    shard_group: Amount
    reshard_after_forward: Amount
    """1 where gathered weights are freed after the forward pass."""
    sequence_parallel: Amount
    """1 where norms are split along the sequence."""
    rank_order: Amount
    micro_batch: Amount
    accumulation: Amount
    """Micro-batches that one replica runs in one step, m."""

    @property
    def gpus(self) -> Amount:
        """GPUs in all [1]."""
        return self.data * self.tensor * self.context * self.pipeline

    @property
    def expert_data(self) -> Amount:
        """Ranks that hold the same experts [1]."""
        return self.data * self.context * self.tensor / (self.expert * self.expert_tensor)


def evaluated_once(formula: Callable[P, T]) -> Callable[P, T]:
    """A formula of degrees that is evaluated once for the same arguments, as long as the degrees live.

    Arguments are the same if they are one object, or equal floats. What such a formula gives is not to be changed.
    """

    @wraps(formula)
    def result(*args: P.args, **named: P.kwargs) -> T:
        degrees = next(one for one in args if isinstance(one, Degrees))
        key = (formula, *((one,) if type(one) is float else id(one) for one in args))
        if named:
            return formula(*args, **named)
        if key not in degrees.results:
            others = tuple(one for one in args if one is not degrees)  # no cycle, so that all is freed at once
            degrees.results[key] = formula(*args, **named), others
        found: T = degrees.results[key][0]
        return found

    return result


OPTIMIZER_STATES, GRADIENTS, WEIGHTS = 1, 2, 3
"""ZeRO stage from which each kind of tensor is sharded."""

ORDER_NUMBERS: dict[RankOrder, int] = {order: number for number, order in enumerate(get_args(RankOrder))}
"""Numbers by which columns of layouts name orders of ranks."""


def degrees_of(recipe: CompleteRecipe, layout: CompleteLayout) -> Degrees:
    """The degrees of one layout as plain numbers."""
    batch = {
        "rank_order": ORDER_NUMBERS[layout.rank_order],
        "micro_batch": recipe.micro_batch,
        "accumulation": recipe.global_batch // (recipe.micro_batch * layout.data),
    }
    axes = {one.name: int(getattr(layout, one.name)) for one in fields(Degrees) if one.name not in batch}
    return Degrees(**axes, **batch)


def padded_vocabulary(model: Model, multiple: int, tensor: Amount) -> Amount:
    """Rows of the vocabulary on all tensor ranks together, padded so that each gets the same whole number.

    Formula: ceil(V / (multiple t)) multiple t
    Args:
        model: the model, V its vocabulary
        multiple: what the stack pads to on each rank [1]
        tensor: tensor degree, t [1]
    Returns: padded rows [1]
    Source: Megatron-LM vocab_size_with_padding (make-vocab-size-divisible-by x tensor)

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> padded_vocabulary(LLAMA_3_8B, 128, 8)
    129024
    """
    return ceil_div(model.vocab_size, multiple * tensor) * multiple * tensor


@evaluated_once
def divisors(degrees: Degrees, model: Model, multiple: int) -> tuple[Amount, ...]:
    """By how much each `Split` divides an amount, in the order of `Split`.

    Formula: 1, t, min(t, g), t or 1, t V / V_padded, e e_t, t / e_t; infinite where there is none of it
    Args:
        multiple: padding of the vocabulary [1]
    Returns: one divisor a split [1]
    Source:
        Shoeybi et al. 2019, arXiv:1909.08053 (tensor); Korthikanti et al. 2022, arXiv:2205.05198 (sequence);
        Megatron-Core moe README (expert)

    >>> from service.estimator.model.ledger import Split
    >>> from service.estimator.samples import LLAMA_3_8B, sample_degrees
    >>> split = divisors(sample_degrees(tensor=4, data=2), LLAMA_3_8B, 1)
    >>> split[Split.TENSOR], split[Split.SEQUENCE]
    (4, 1)
    """
    tensor = degrees.tensor
    padding = padded_vocabulary(model, multiple, tensor) / model.vocab_size
    splits = degrees.sequence_parallel == 1
    return (
        1,  # Split.WHOLE
        tensor,  # Split.TENSOR
        minimum(tensor, model.key_value_heads),  # Split.KEY_VALUE
        where(splits, tensor, 1),  # Split.SEQUENCE
        tensor / padding,  # Split.VOCABULARY
        degrees.expert * degrees.expert_tensor,  # Split.EXPERT
        tensor / degrees.expert_tensor,  # Split.EXPERT_TOKENS
        where(both(splits, tensor > 1), 1, inf),  # Split.GATHERED
        where(degrees.micro_batch > 1, tensor, inf),  # Split.BATCHED
    )


STAGES_FIRST = ORDER_NUMBERS["tp-cp-ep-pp-dp"]
"""Number of the order in which the stages of a replica stand before the next replica."""


@dataclass(slots=True)
class Spacing:
    """Spacing of the ranks of a group: runs, between which ranks of other groups may lie."""

    stride: Amount
    """Distance in rank numbers between neighbours of a run, s."""
    run: Amount = 1
    """Ranks of a run, r."""
    gap: Amount = 1
    """Distance from the start of one run to that of the next, over the run's own length; 1 where nothing lies
    between them, g."""
    step: Amount = 1
    """Only every so many of these ranks belong to the group, z."""


@dataclass(slots=True)
class Transfer:
    """A collective that one rank takes part in."""

    collective: CollectiveName
    bytes: Amount
    """Bytes of the whole tensor (all_to_all, send: bytes that one rank holds)."""
    count: Amount
    """Times that it runs."""
    ranks: Amount
    spacing: Spacing
    content: Content = "activations"
    copies: Amount = 1.0
    """Equal rows of an all-to-all, of which each domain, and each rank in it, gets one and makes the others itself."""
    reach: float = inf
    """Most domains that they are meant for."""


NEXT_TO_EACH_OTHER = Spacing(1)
"""Tensor ranks, and those that share the matrices of an expert."""


def local_ranks(ranks: Amount, spacing: Spacing, domain: int) -> Amount:
    """Ranks of a group that share one fast-link domain.

    Formula:
        min(n, max(1, l // z)),  l = D // s where nothing stands between runs (g = 1), else
        l = r (D // P) + min(r, (D mod P) // s),  P = g r s the distance between runs
    Args:
        ranks: ranks of the group, n [1]
        spacing: how far apart they lie: s, r, g, z
        domain: GPUs that share the fast link, D [1]
    Returns: ranks of the group in one domain [1]
    Source: definition; a domain begins with the first rank of a group

    >>> local_ranks(16, Spacing(2), 8)
    4
    >>> local_ranks(16, Spacing(1, run=2, gap=2), 8), local_ranks(16, Spacing(1, run=2, gap=4), 6)
    (4, 2)
    """
    reached = where_needed(spacing.gap > 1, lambda: _reached(spacing, domain), floor_div(domain, spacing.stride))
    return minimum(ranks, maximum(1, floor_div(reached, spacing.step)))


def _reached(spacing: Spacing, domain: int) -> Amount:
    """Ranks that a domain reaches across the gaps between runs."""
    period = spacing.gap * spacing.run * spacing.stride
    runs = floor_div(domain, period)
    return runs * spacing.run + minimum(spacing.run, floor_div(domain - runs * period, spacing.stride))


def stages_are_first(degrees: Degrees) -> Condition:
    """Whether the stages of a replica are numbered before the next replica."""
    return degrees.rank_order == STAGES_FIRST


def stage_spacing(degrees: Degrees) -> Spacing:
    """Spacing of the stages of one replica; here a node of 8 holds one stage of it, or both where stages come first.

    >>> from service.estimator.samples import sample_degrees
    >>> four = {"tensor": 2, "data": 4, "pipeline": 2}
    >>> [local_ranks(2, stage_spacing(sample_degrees(**four, rank_order=order)), 8) for order in (0, 1)]
    [1, 2]
    """
    replica = degrees.tensor * degrees.context
    return Spacing(where(stages_are_first(degrees), replica, replica * degrees.data))


def replica_spacing(degrees: Degrees) -> Spacing:
    """Spacing of the ranks that hold the same dense parameters: context ranks, then replicas, or stages before them.

    >>> from service.estimator.samples import sample_degrees
    >>> four = {"tensor": 2, "data": 4, "pipeline": 2}
    >>> [local_ranks(4, replica_spacing(sample_degrees(**four, rank_order=order)), 8) for order in (0, 1)]
    [4, 2]
    """
    return Spacing(degrees.tensor, degrees.context, _stages_between(degrees))


def expert_replica_spacing(degrees: Degrees) -> Spacing:
    """Spacing of the ranks that hold the same experts; all stages lie between them where stages come first."""
    return Spacing(degrees.expert * degrees.expert_tensor, 1, _stages_between(degrees))


def _stages_between(degrees: Degrees) -> Amount:
    return where(stages_are_first(degrees), degrees.pipeline, 1)
