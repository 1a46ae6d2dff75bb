"""Latent attention (MLA: DeepSeek-V2, DeepSeek-V3, Kimi-K2)."""

from service.estimator.model.ledger import LAST_NORM, Op, Ops, Saved, Setting, Split, Weight
from service.estimator.model.operations import (
    attention_output_op,
    bias_of,
    core_attention_ops,
    norm_weights,
    product_op,
)
from service.estimator.question import LayerType, MatrixName, Model


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
