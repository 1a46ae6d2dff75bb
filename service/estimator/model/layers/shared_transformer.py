"""A transformer block that several layers share (Zamba2)."""

from dataclasses import replace

from service.estimator.model.ledger import EVERYTHING, LAST_NORM, Op, Ops, Saved, SequenceSettings, Split, Weight
from service.estimator.model.operations import (
    attention_output_op,
    core_attention_op,
    feed_forward_ops,
    norm_op,
    product_op,
    query_key_value_op,
)
from service.estimator.question import LayerType, Model

SHARED = "block."
"""Beginning of the names of operations whose weights belong to the block, not to the layer."""


def shared_transformer_ops(model: Model, layer_type: LayerType, setting: SequenceSettings) -> Ops:
    """A block over the residual stream and the token embedding side by side, and what each layer adds to it.

    Attention reads both, 2h wide; the MLP reads the result of attention. A layer's own are adapters of low rank on
    the block's MLP (and its queries, keys and values), and the projection of the block's result.
    """
    # Source: Glorioso et al. 2024, arXiv:2411.15242, section 2; transformers modeling_zamba2
    width, both = model.head_width, 2 * model.hidden_size
    inner = model.intermediate_size or 0
    norm = norm_op("attention.norm", replace(model, hidden_size=both), setting)
    attention = (
        query_key_value_op(model, setting, inputs=both),
        core_attention_op(model, "full_attention", setting, query_width=width, value_width=width),
        attention_output_op(model, setting),
    )
    hidden, adapted = model.hidden_size, (model.hidden_size, (2 if model.gated_mlp else 1) * inner)
    projection = product_op(
        "block_projection",
        setting,
        Weight(hidden, hidden, Split.TENSOR),
        moved=hidden,
        whole=hidden,
        saved=(Saved(setting.tensor_bytes(hidden), Split.TENSOR, serves="own_weights"),),
        reads=(EVERYTHING,),
    )
    return (
        *_of_block(norm),
        *_adapters("attention", model, setting, (both, both), 3 if model.shared_attention_adapter else 0),
        *_of_block(*attention, norm_op("mlp.norm", model, setting)),
        *_adapters("mlp", model, setting, adapted, 1),
        *_of_block(*feed_forward_ops(model, setting, width=inner)),
        projection,
    )


def _of_block(*ops: Op) -> Ops:
    return tuple(replace(op, name=f"{SHARED}{op.name}") for op in ops)


def _adapters(part: str, model: Model, setting: SequenceSettings, shape: tuple[int, int], copies: int) -> Ops:
    """Adapters beside matrices of a part of the block, each a product of two thin ones; keeps what is between."""
    rank, (rows, columns) = model.adapter_rank, shape
    if not rank or not copies:
        return ()
    adapter = product_op(
        f"{part}.adapter",
        setting,
        Weight(rows, rank, copies=copies),
        Weight(rank, columns, Split.TENSOR, copies),
        moved=columns * copies,
        whole=(rows + 2 * rank) * copies,
        saved=(Saved(setting.tensor_bytes(rank * copies), Split.WHOLE, serves="own_weights"),),
        reads=(LAST_NORM,),
    )
    return (adapter,)
