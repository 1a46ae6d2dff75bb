"""Does the model make sense by itself: are its fields complete, and do they agree?"""

from functools import lru_cache

from service.errors import Problem
from service.estimator import mixer_demands
from service.estimator.build import LEDGERS_KEPT, layer_type, mlp_type
from service.estimator.model import Model
from service.estimator.question import Layout
from service.estimator.rules import Demand, divisors_of, unmet

_LATENT_FIELDS = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _has_layer(model: Model, wanted: str) -> bool:
    span = range(min(model.num_hidden_layers, max(1, len(model.layer_types))))
    return any(layer_type(model, layer) == wanted for layer in span)


def _has_dense_layer(model: Model) -> bool:
    return any("dense" in mlp_type(model, layer) for layer in range(model.num_hidden_layers))


def _head_width_is_known(model: Model) -> bool:
    latent = model.kv_lora_rank is not None
    heads = max(1, model.num_attention_heads)
    return latent or model.head_dim is not None or model.hidden_size % heads == 0


def _experts_are_visited(model: Model) -> bool:
    if not model.num_experts:
        return model.num_experts_per_tok == 0
    return 1 <= model.num_experts_per_tok <= model.num_experts


def _latent_fields_agree(model: Model) -> bool:
    given = [getattr(model, name) is not None for name in _LATENT_FIELDS]
    return all(given) if model.kv_lora_rank is not None else not any([*given, model.q_lora_rank])


def _has_plain_heads(model: Model) -> bool:
    own = (model.qk_norm, model.attention_gate) != ("none", "none")
    return own or model.key_value_heads != model.num_attention_heads


def _sparse_fields_have_experts(model: Model) -> bool:
    sparse_only = (
        model.moe_intermediate_size,
        model.shared_expert_intermediate_size,
        model.shared_expert_gate,
        model.router_bias,
        model.first_k_dense_replace,
        model.moe_latent_size,
        model.zero_expert_num,
        any("sparse" in mlp for mlp in model.mlp_layer_types),
    )
    return model.num_experts > 0 or not any(sparse_only)


DEMANDS: tuple[Demand[Model], ...] = (
    Demand(
        "head_width_is_whole",
        "model.head_dim",
        lambda model, _: _head_width_is_known(model),
        lambda model, _: (
            f"{model.num_attention_heads} heads do not divide the hidden size {model.hidden_size}, "
            "so the width of a head is unknown",
            "give head_dim",
        ),
    ),
    Demand(
        "key_value_heads_divide_heads",
        "model.num_key_value_heads",
        lambda model, _: model.num_attention_heads % model.key_value_heads == 0,
        lambda model, _: (
            f"{model.num_attention_heads} query heads do not share {model.key_value_heads} key-value heads",
            f"use {divisors_of(model.num_attention_heads)}",
        ),
    ),
    Demand(
        "dense_layers_have_a_width",
        "model.intermediate_size",
        lambda model, _: model.intermediate_size is not None or not _has_dense_layer(model),
        lambda _, __: ("the model has dense layers, and the width of their MLP is unknown", "give intermediate_size"),
    ),
    Demand(
        "latent_attention_is_complete",
        "model.kv_lora_rank",
        lambda model, _: _latent_fields_agree(model),
        lambda _, __: (
            "latent attention needs kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim together",
            "give all four (q_lora_rank is optional), or none",
        ),
    ),
    Demand(
        "latent_attention_replaces_heads",
        "model.kv_lora_rank",
        lambda model, _: model.kv_lora_rank is None or not _has_plain_heads(model),
        lambda _, __: (
            "latent attention has head widths and norms of its own, so qk_norm, a gate and fewer key-value heads say "
            "nothing",
            "leave qk_norm and attention_gate out, and num_key_value_heads as many as num_attention_heads",
        ),
    ),
    Demand(
        "windows_have_a_length",
        "model.sliding_window",
        lambda model, _: model.sliding_window is not None or not _has_layer(model, "sliding_attention"),
        lambda _, __: (
            "layer_types names sliding_attention, and the window is unknown",
            "give sliding_window",
        ),
    ),
    Demand(
        "chunks_have_a_length",
        "model.attention_chunk_size",
        lambda model, _: (model.attention_chunk_size is not None) == _has_layer(model, "chunked_attention"),
        lambda _, __: (
            "chunked_attention in layer_types and attention_chunk_size belong together",
            "give both, or neither",
        ),
    ),
    Demand(
        "window_is_used",
        "model.sliding_window",
        lambda model, _: model.sliding_window is None or _has_layer(model, "sliding_attention"),
        lambda _, __: (
            "a sliding window is given, and no layer in layer_types uses it",
            "name sliding_attention layers",
        ),
    ),
    Demand(
        "experts_are_visited",
        "model.num_experts_per_tok",
        lambda model, _: _experts_are_visited(model),
        lambda model, _: (
            f"a token visits {model.num_experts_per_tok} of {model.num_experts} experts",
            f"use 1 to {model.num_experts}" if model.num_experts else "leave it out, or give num_experts",
        ),
    ),
    Demand(
        "experts_have_a_width",
        "model.moe_intermediate_size",
        lambda model, _: not model.num_experts or model.expert_width > 0,
        lambda _, __: ("the width of an expert is unknown", "give moe_intermediate_size"),
    ),
    Demand(
        "sparse_fields_need_experts",
        "model.num_experts",
        lambda model, _: _sparse_fields_have_experts(model),
        lambda _, __: ("the model has fields of a mixture of experts, and no experts", "give num_experts"),
    ),
    Demand(
        "shared_gate_needs_shared_expert",
        "model.shared_expert_gate",
        lambda model, _: not model.shared_expert_gate or model.shared_expert_intermediate_size > 0,
        lambda _, __: ("a gate on the shared expert, and no shared expert", "give shared_expert_intermediate_size"),
    ),
    Demand(
        "dense_layers_are_in_the_model",
        "model.first_k_dense_replace",
        lambda model, _: model.first_k_dense_replace <= model.num_hidden_layers,
        lambda model, _: (
            f"{model.first_k_dense_replace} leading dense layers, and {model.num_hidden_layers} layers in all",
            f"use at most {model.num_hidden_layers}",
        ),
    ),
)


_EVERY = (*DEMANDS, *mixer_demands.DEMANDS)
_ANY_LAYOUT = Layout()
"""Demands on a model read no layout."""


@lru_cache(maxsize=LEDGERS_KEPT)
def problems_of(model: Model) -> tuple[Problem, ...]:
    """What is wrong with a model by itself.

    Args:
        model: the model

    Returns:
        one problem for each demand that it does not meet
    """
    return unmet(_EVERY, model, _ANY_LAYOUT)
