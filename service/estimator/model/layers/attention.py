"""Attention, plain and latent (MLA: DeepSeek-V2, DeepSeek-V3, Kimi-K2)."""

from dataclasses import replace

from service.estimator.model.ledger import LAST_NORM, WIDE_BYTES, Op, Ops, Saved, SequenceSettings, Split, Weight
from service.estimator.model.operations import (
    attention_output_op,
    bias_of,
    core_attention_op,
    elementwise_op,
    norm_weights,
    product_op,
    query_key_value_op,
    unfused_norm,
)
from service.estimator.question import LayerType, MatrixName, Model, QkNorm

_UNFUSED: tuple[QkNorm, ...] = ("per_head_dim", "full")
"""Weighted norms on queries and keys that run in single operations where norms are not one kernel.
Source: transformers modeling_qwen3.Qwen3RMSNorm; torch.nn.LayerNorm is one kernel."""

_NORMED_MATRICES: tuple[MatrixName, ...] = ("q_proj", "k_proj")
"""Projections whose results a norm on queries and keys normalizes."""


def attention_ops(model: Model, layer_type: LayerType, setting: SequenceSettings) -> Ops:
    """Projections and core attention of one layer: latent attention where the model has a kv_lora_rank."""
    # Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1; grouped heads: Ainslie et al. 2023,
    # arXiv:2305.13245; gate: Qiu et al. 2025, arXiv:2505.06708
    if model.kv_lora_rank is not None:
        return _latent_attention_ops(model, layer_type, setting, model.kv_lora_rank)
    width, heads = model.head_width, model.num_attention_heads
    gates = heads * {"none": 0, "per_head": 1, "elementwise": width}[model.attention_gate]
    gate = elementwise_op(  # saves the gate and the result of the heads; the output projection saves their product
        "attention.gate",
        setting,
        saved=gates + heads * width,
        moved=gates + 2 * heads * width,
        reads=("attention.core", "q_proj"),
    )
    return (
        query_key_value_op(model, setting, inputs=model.hidden_size, gates=gates),
        *((_query_key_norm_op(model, setting),) if model.qk_norm != "none" else ()),
        *((_rotary_op(model, setting),) if setting.rotary_bytes else ()),
        core_attention_op(model, layer_type, setting, query_width=width, value_width=width),
        *((gate,) if gates else ()),
        attention_output_op(model, setting),
    )


def _rotary_op(model: Model, setting: SequenceSettings) -> Op:
    """Rotation of queries and keys in kernels of its own, and copies of keys and values for the heads of a group."""
    numbers = (model.num_attention_heads + model.key_value_heads) * model.head_width
    copies = setting.repeats_key_values and model.key_value_heads < model.num_attention_heads
    return Op(
        name="attention.rotary",
        kind="elementwise",
        split=Split.TENSOR,
        moved_bytes=int(setting.rotary_bytes * setting.tokens) * numbers
        + (setting.tensor_bytes(2 * numbers) if copies else 0),
        reads=("q_proj", "k_proj"),
    )


def _query_key_norm_op(model: Model, setting: SequenceSettings) -> Op:
    widths = (model.num_attention_heads * model.head_width, model.key_value_heads * model.head_width)
    weights: tuple[Weight, ...] = ()
    if model.qk_norm in ("per_head_dim", "per_head_dim_biased"):
        one = norm_weights("rmsnorm" if model.qk_norm == "per_head_dim" else "layernorm", model.head_width)
        weights = tuple(replace(weight, matrices=(name,)) for name in _NORMED_MATRICES for weight in one)
    elif model.qk_norm == "full":
        weights = tuple(
            Weight(1, width, Split.TENSOR, role="norm", matrices=(name,))
            for name, width in zip(_NORMED_MATRICES, widths, strict=True)
        )
    is_unfused = not setting.fused_norm and model.qk_norm in _UNFUSED
    cast = WIDE_BYTES if model.qk_norm == "l2" and not setting.fused_norm else 0
    tensor_bytes = (setting.element_bytes + cast) * setting.tokens
    saved: tuple[Saved, ...] = (
        Saved(tensor_bytes * widths[0], Split.TENSOR), Saved(tensor_bytes * widths[1], Split.KEY_VALUE)
    )  # fmt: skip
    if is_unfused:
        heads = (model.num_attention_heads, model.key_value_heads) if model.qk_norm == "per_head_dim" else (1, 1)
        sizes = zip(widths, heads, (Split.TENSOR, Split.KEY_VALUE), strict=True)
        is_wide = model.normalization == "rmsnorm_1p"
        each = (
            unfused_norm(setting, setting.tokens * width, setting.tokens * rows, by, is_wide=is_wide)
            for width, rows, by in sizes
        )
        saved = tuple(one for pair in each for one in pair)
    return Op(
        name="attention.qk_norm",
        kind="elementwise",
        split=Split.TENSOR,
        weights=weights,
        saved=saved,
        moved_bytes=2 * tensor_bytes * sum(widths),
    )


def _latent_attention_ops(model: Model, layer_type: LayerType, setting: SequenceSettings, latent: int) -> Ops:
    """Down- and up-projections of queries and keys/values, core attention and output projection of one layer.

    Tensor ranks replicate the down-projections and the norms of the latents; attention_bias adds a bias to the
    down-projections.
    """
    # Source: DeepSeek-V2, arXiv:2405.04434, section 2.1 and appendix C; Megatron-LM multi_latent_attention.py
    heads, query_width, value_width = model.num_attention_heads, model.query_width, model.value_width
    rotary, key_values = model.qk_rope_head_dim or 0, heads * ((model.qk_nope_head_dim or 0) + value_width)
    query: Ops = (_up("q_proj", "attention.query", setting, model.hidden_size, heads * query_width),)
    if model.q_lora_rank is not None:
        query = (
            _down("q_a_proj", "attention.query_down", model, setting, model.q_lora_rank, 0),
            _up("q_b_proj", "attention.query_up", setting, model.q_lora_rank, heads * query_width),
        )
    return (
        *query,
        _down("kv_a_proj_with_mqa", "attention.key_value_down", model, setting, latent, rotary),
        _up("kv_b_proj", "attention.key_value_up", setting, latent, key_values),
        core_attention_op(
            model,
            layer_type,
            setting,
            query_width=query_width,
            value_width=value_width,
            input_modules=("mla_up_proj",),
        ),
        attention_output_op(model, setting),
    )


def _down(matrix: MatrixName, name: str, model: Model, setting: SequenceSettings, latent: int, rotary: int) -> Op:
    """A down-projection to a latent (and rotary keys) with its norm: saves the latent before and after the norm."""
    input_bytes = setting.product_input_bytes(setting.tokens * latent)
    before: tuple[Saved, ...] = (Saved(setting.tensor_bytes(latent + rotary), Split.SEQUENCE),)
    if not setting.fused_norm:  # an fp32 latent is a view of the whole result, any other is copied
        held = latent + rotary if setting.element_bytes == WIDE_BYTES else latent
        _, weighed = unfused_norm(setting, setting.tokens * latent, setting.tokens, Split.SEQUENCE)
        before = (Saved(WIDE_BYTES * setting.tokens * (held + 1), Split.SEQUENCE), weighed)
    return product_op(
        name,
        setting,
        Weight(model.hidden_size, latent + rotary, matrices=(matrix,)),
        *bias_of(latent + rotary, given=model.attention_bias),
        *norm_weights("rmsnorm", latent),
        moved=model.hidden_size + 3 * latent + rotary,
        split=Split.SEQUENCE,
        saved=(
            *before,
            Saved(input_bytes, Split.SEQUENCE, ("mla_up_proj",), "next_weights"),
            *((Saved(setting.tensor_bytes(rotary), Split.GATHERED),) if rotary else ()),
        ),
        reads=(LAST_NORM,),
    )


def _up(matrix: MatrixName, name: str, setting: SequenceSettings, latent: int, outputs: int) -> Op:
    weight = Weight(latent, outputs, Split.TENSOR, matrices=(matrix,))
    return product_op(name, setting, weight, moved=outputs, whole=latent, modules=("mla_up_proj",))
