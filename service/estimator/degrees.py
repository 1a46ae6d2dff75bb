"""What does a formula read of a layout? One number for each degree, or one column of numbers for many layouts."""

from dataclasses import dataclass
from math import inf
from typing import get_args

from service.estimator.filled import filled
from service.estimator.model import Model
from service.estimator.names import RankOrder
from service.estimator.numeric import Amount, both, ceil_div, minimum, where
from service.estimator.question import Layout, Recipe


@dataclass(slots=True, kw_only=True)
class Degrees:
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
    """Number of the order of ranks, `order_number`."""
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


def order_number(order: RankOrder) -> int:
    """The number by which a column of layouts knows an order of ranks.

    Formula:
        its place among the names, from 0

    Args:
        order: the order

    Returns:
        the number [1]

    Source:
        definition

    >>> order_number("tp-cp-ep-dp-pp")
    0
    """
    return get_args(RankOrder).index(order)


def degrees_of(recipe: Recipe, layout: Layout) -> Degrees:
    """The degrees of one resolved layout as plain numbers.

    Args:
        recipe: the recipe, resolved
        layout: the layout, resolved

    Returns:
        its degrees
    """
    data = filled(layout.data)
    return Degrees(
        data=data,
        tensor=layout.tensor,
        context=layout.context,
        pipeline=layout.pipeline,
        virtual_pipeline=layout.virtual_pipeline,
        virtual_group=filled(layout.virtual_group),
        expert=layout.expert,
        expert_tensor=filled(layout.expert_tensor),
        zero_stage=filled(layout.zero_stage),
        shard_group=filled(layout.shard_group),
        reshard_after_forward=1 if filled(layout.reshard_after_forward) else 0,
        sequence_parallel=1 if filled(layout.sequence_parallel) else 0,
        rank_order=order_number(filled(layout.rank_order)),
        micro_batch=recipe.micro_batch,
        accumulation=filled(recipe.global_batch) // (recipe.micro_batch * data),
    )


def padded_vocabulary(model: Model, multiple: int, tensor: Amount) -> Amount:
    """Rows of the vocabulary on all tensor ranks together, padded so that each gets the same whole number.

    Formula:
        ceil(V / (multiple t)) multiple t

    Args:
        model: the model, V its vocabulary
        multiple: what the stack pads to on each rank [1]
        tensor: tensor degree, t [1]

    Returns:
        padded rows [1]

    Source:
        Megatron-LM vocab_size_with_padding (make-vocab-size-divisible-by x tensor)

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> padded_vocabulary(LLAMA_3_8B, 128, 8)
    129024
    """
    return ceil_div(model.vocab_size, multiple * tensor) * multiple * tensor


def divisors(degrees: Degrees, model: Model, multiple: int) -> tuple[Amount, ...]:
    """By how much each `Split` divides an amount, in the order of `Split`.

    Formula:
        1, t, min(t, g), t or 1, t V / V_padded, e e_t, t / e_t; infinite where there is none of it

    Args:
        degrees: the layout
        model: the model
        multiple: padding of the vocabulary [1]

    Returns:
        one divisor a split [1]

    Source:
        Shoeybi et al. 2019, arXiv:1909.08053 (tensor); Korthikanti et al. 2022, arXiv:2205.05198 (sequence);
        Megatron-Core moe README (expert)

    >>> from service.estimator.ledger import Split
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
