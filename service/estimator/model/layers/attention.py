"""Attention, plain and latent (MLA: DeepSeek-V2, DeepSeek-V3, Kimi-K2)."""

from dataclasses import replace

from service.estimator.model.ledger import LAST_NORM, Op, Ops, Saved, Setting, Split, Weight
from service.estimator.model.operations import (
    attention_output_op,
    bias_of,
    core_attention_ops,
    norm_weights,
    product_op,
    query_key_value_op,
)
from service.estimator.question import LayerType, MatrixName, Model, QkNorm

_UNFUSED: dict[QkNorm, int] = {"none": 0, "per_head_dim": 4, "per_head_dim_biased": 0, "full": 4, "l2": 4}
"""Bytes of each number that a norm on queries and keys keeps beside one activation of it, where it is not one kernel.
Source: transformers modeling_qwen3.Qwen3RMSNorm; torch.nn.LayerNorm is one kernel."""

_NORMED: tuple[MatrixName, ...] = ("q_proj", "k_proj")
"""Projections whose results a norm on queries and keys takes."""


def attention_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Projections and core attention of one layer.

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1; grouped heads: Ainslie et al. 2023, arXiv:2305.13245;
        gate: Qiu et al. 2025, arXiv:2505.06708
    """
    width = model.head_width
    core = core_attention_ops(model, layer_type, setting, query_width=width, value_width=width)
    return (
        query_key_value_op(model, setting, inputs=model.hidden_size, gates=_gates(model)),
        *_query_key_norm(model, setting),
        *core,
        *_gated(model, setting),
        attention_output_op(model, setting),
    )


def _gates(model: Model) -> int:
    """Numbers of the gate on one token's output."""
    numbers = {"none": 0, "per_head": 1, "elementwise": model.head_width}
    return model.num_attention_heads * numbers[model.attention_gate]


def _gated(model: Model, setting: Setting) -> Ops:
    """The gate's product with what the heads found: keeps both, and the output projection keeps the product."""
    gates, width = _gates(model), model.num_attention_heads * model.head_width
    if not gates:
        return ()
    op = Op(
        name="attention.gate",
        kind="elementwise",
        split=Split.TENSOR,
        saved=(Saved(setting.tensor_bytes(gates + width), Split.TENSOR),),
        moved_bytes=setting.tensor_bytes(gates + 2 * width),
        reads=("attention.core", "q_proj"),
    )
    return (op,)


def _each_normed(one: tuple[Weight, ...]) -> tuple[Weight, ...]:
    """The weights of a norm on queries and of another on keys."""
    return tuple(replace(weight, matrices=(name,)) for name in _NORMED for weight in one)


def _query_key_norm(model: Model, setting: Setting) -> Ops:
    if model.qk_norm == "none":
        return ()
    widths = (model.num_attention_heads * model.head_width, model.key_value_heads * model.head_width)
    weights: tuple[Weight, ...] = ()
    if model.qk_norm == "per_head_dim":
        weights = _each_normed(norm_weights("rmsnorm", model.head_width))
    elif model.qk_norm == "per_head_dim_biased":
        weights = _each_normed(norm_weights("layernorm", model.head_width))
    elif model.qk_norm == "full":
        weights = tuple(
            Weight(1, width, Split.TENSOR, role="norm", matrices=(name,))
            for name, width in zip(_NORMED, widths, strict=True)
        )
    tensor_bytes = (setting.element_bytes + (0 if setting.fused_norm else _UNFUSED[model.qk_norm])) * setting.tokens
    saved = (Saved(tensor_bytes * widths[0], Split.TENSOR), Saved(tensor_bytes * widths[1], Split.KEY_VALUE))
    op = Op(
        name="attention.qk_norm",
        kind="elementwise",
        split=Split.TENSOR,
        weights=weights,
        saved=saved,
        moved_bytes=2 * tensor_bytes * sum(widths),
    )
    return (op,)


def latent_attention_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Down- and up-projections of queries and keys/values, core attention and output projection of one layer.

    The down-projections and the norms of the latents are held whole by every tensor rank; attention_bias gives
    the down-projections a bias.

    Source:
        DeepSeek-V2, arXiv:2405.04434, section 2.1 and appendix C; Megatron-LM multi_latent_attention.py
    """
    core = core_attention_ops(
        model,
        layer_type,
        setting,
        query_width=model.query_width,
        value_width=model.value_width,
        input_modules=("mla_up_proj",),
    )
    latents = (*_query(model, setting), *_key_value(model, setting))
    return (*latents, *core, attention_output_op(model, setting))


def _down(matrix: MatrixName, name: str, model: Model, setting: Setting, latent: int, rotary: int) -> Op:
    """A down-projection to a latent (and rotary keys) with its norm: keeps the latent before and after the norm."""
    fed = setting.product_input_bytes(setting.tokens * latent)
    return product_op(
        name,
        setting,
        Weight(model.hidden_size, latent + rotary, matrices=(matrix,)),
        *bias_of(latent + rotary, given=model.attention_bias),
        *norm_weights("rmsnorm", latent),
        moved=model.hidden_size + 3 * latent + rotary,
        split=Split.SEQUENCE,
        saved=(
            Saved(setting.tensor_bytes(latent + rotary), Split.SEQUENCE),
            Saved(fed, Split.SEQUENCE, ("mla_up_proj",), "next_weights"),
            *((Saved(setting.tensor_bytes(rotary), Split.GATHERED),) if rotary else ()),
        ),
        reads=(LAST_NORM,),
    )


def _up(matrix: MatrixName, name: str, setting: Setting, latent: int, outputs: int) -> Op:
    weight = Weight(latent, outputs, Split.TENSOR, matrices=(matrix,))
    return product_op(name, setting, weight, moved=outputs, whole=latent, modules=("mla_up_proj",))


def _query(model: Model, setting: Setting) -> Ops:
    queries = model.num_attention_heads * model.query_width
    if model.q_lora_rank is None:
        direct = _up("q_proj", "attention.query", setting, model.hidden_size, queries)
        return (direct,)
    down = _down("q_a_proj", "attention.query_down", model, setting, model.q_lora_rank, 0)
    return (down, _up("q_b_proj", "attention.query_up", setting, model.q_lora_rank, queries))


def _key_value(model: Model, setting: Setting) -> Ops:
    latent = model.kv_lora_rank or 0
    outputs = model.num_attention_heads * ((model.qk_nope_head_dim or 0) + model.value_width)
    down = _down("kv_a_proj_with_mqa", "attention.key_value_down", model, setting, latent, model.qk_rope_head_dim or 0)
    return (down, _up("kv_b_proj", "attention.key_value_up", setting, latent, outputs))
