"""What does attention with separate key and value heads do (multi-head, grouped-query, multi-query)?"""

from dataclasses import replace

from service.estimator.core_attention import core_attention_ops
from service.estimator.ledger import Op, Ops, Saved, Split, Weight
from service.estimator.model import Model
from service.estimator.names import LayerType, MatrixName
from service.estimator.norm import norm_weights
from service.estimator.projection import attention_output_op
from service.estimator.setting import Setting

_NORMED: tuple[MatrixName, ...] = ("q_proj", "k_proj")
"""Projections whose results a norm on queries and keys takes."""


def attention_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Projections and core attention of one layer.

    Args:
        model: the model
        layer_type: full, sliding or chunked
        setting: how operations are carried out

    Returns:
        query/key/value projection, norms on them, core attention, output projection

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1; grouped heads: Ainslie et al. 2023, arXiv:2305.13245
    """
    width = model.head_width
    core = core_attention_ops(model, layer_type, setting, query_width=width, value_width=width)
    return (_projection(model, setting), *_query_key_norm(model, setting), *core, attention_output_op(model, setting))


def _projection(model: Model, setting: Setting) -> Op:
    hidden, queries = model.hidden_size, model.num_attention_heads * model.head_width
    key_values = 2 * model.key_value_heads * model.head_width
    weights = [
        Weight(hidden, queries, Split.TENSOR, matrices=("q_proj",)),
        Weight(hidden, key_values, Split.KEY_VALUE, matrices=("k_proj", "v_proj")),
    ]
    if model.attention_bias:
        weights += [Weight(1, queries, Split.TENSOR, role="vector")]
        weights += [Weight(1, key_values, Split.KEY_VALUE, role="vector")]
    tokens, element = setting.tokens, setting.element_bytes
    return Op(
        name="attention.qkv",
        kind="gemm",
        split=Split.TENSOR,
        weights=tuple(weights),
        flop=2 * tokens * hidden * (queries + key_values),
        moved_bytes=element * tokens * (queries + key_values),
        whole_bytes=element * tokens * hidden,
    )


def _query_key_norm(model: Model, setting: Setting) -> Ops:
    if model.qk_norm == "none":
        return ()
    widths = (model.num_attention_heads * model.head_width, model.key_value_heads * model.head_width)
    weights: tuple[Weight, ...] = ()
    if model.qk_norm == "per_head_dim":
        scale = norm_weights("rmsnorm", model.head_width)
        weights = tuple(replace(each, matrices=(name,)) for name in _NORMED for each in scale)
    elif model.qk_norm == "full":
        weights = tuple(
            Weight(1, width, Split.TENSOR, role="norm", matrices=(name,))
            for name, width in zip(_NORMED, widths, strict=True)
        )
    cast = 4 if not setting.fused_norm and setting.element_bytes < 4 else 0
    kept = (setting.element_bytes + cast) * setting.tokens
    saved = (Saved(kept * widths[0], Split.TENSOR), Saved(kept * widths[1], Split.KEY_VALUE))
    op = Op(
        name="attention.qk_norm",
        kind="elementwise",
        split=Split.TENSOR,
        weights=weights,
        saved=saved,
        moved_bytes=2 * kept * sum(widths),
    )
    return (op,)
