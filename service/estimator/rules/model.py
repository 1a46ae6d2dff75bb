"""Rules of the model alone: complete fields that agree with each other."""

from dataclasses import MISSING, fields
from functools import lru_cache

from service.errors import Problem
from service.estimator.model.build import (
    LEDGERS_KEPT,
    MIXER_FIELDS,
    MIXERS,
    MLP_FIELDS,
    layer_shapes,
    layer_type,
    mixers_of,
    mlp_type,
)
from service.estimator.question import Model
from service.estimator.rule import Rule, divisors_of, problems_of

_DEFAULTS = {field.name: field.default for field in fields(Model)}
_NOTHING = (None, 0, (), False)
"""Values that describe nothing where a field has no default."""

_SHARED = (
    ("mamba_n_heads", "mamba_d_ssm"),
    ("mamba_n_groups", "mamba_n_heads"),
    ("linear_num_key_heads", "linear_num_value_heads"),
    ("num_attention_heads", "lru_width"),
)
"""Fields of which the first divides the second, where both are given."""


def _gives(model: Model, name: str) -> bool:
    """Whether a field describes something that its absence would not."""
    value = getattr(model, name)
    return value not in _NOTHING if _DEFAULTS[name] is MISSING else value != _DEFAULTS[name]


def _missing(model: Model) -> list[str]:
    needed = dict.fromkeys(name for mixer in mixers_of(model) for name in MIXERS[mixer].required_fields)
    return [name for name in needed if not getattr(model, name)]


def _unread(model: Model) -> list[str]:
    read = {
        name for mixer in mixers_of(model) for name in (*MIXERS[mixer].required_fields, *MIXERS[mixer].optional_fields)
    }
    return [name for name in MIXER_FIELDS if name not in read and _gives(model, name)]


def _has_mlp(model: Model) -> bool:
    shares = any(MIXERS[mixer].shares_block for mixer in mixers_of(model))
    return shares or any(mlp != "none" for mlp in model.mlp_layer_types or ("dense",))


def _without_mlp(model: Model) -> list[str]:
    return [name for name in MLP_FIELDS if _gives(model, name)]


def _sharing_layers(model: Model) -> int:
    return sum(MIXERS[shape.mixer].shares_block for shape in layer_shapes(model))


def _uneven(model: Model) -> list[tuple[str, int, str, int]]:
    """Pairs of fields that do not divide, each with its number."""
    pairs = ((few, getattr(model, few), many, getattr(model, many)) for few, many in _SHARED)
    return [pair for pair in pairs if pair[1] and pair[3] and pair[3] % pair[1]]


_LATENT_FIELDS = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _has_layer(model: Model, wanted: str) -> bool:
    span = range(min(model.num_hidden_layers, max(1, len(model.layer_types))))
    return any(layer_type(model, layer) == wanted for layer in span)


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


RULES: dict[str, Rule[Model, None]] = {
    "head_width_is_whole": Rule(
        "model.head_dim",
        lambda model, _: (
            model.kv_lora_rank is not None
            or model.head_dim is not None
            or model.hidden_size % max(1, model.num_attention_heads) == 0
        ),
        lambda model, _: (
            f"{model.num_attention_heads} heads do not divide the hidden size {model.hidden_size}, so the width of a "
            "head is unknown"
        ),
        "give head_dim",
    ),
    "key_value_heads_divide_heads": Rule(
        "model.num_key_value_heads",
        lambda model, _: model.num_attention_heads % model.key_value_heads == 0,
        lambda model, _: (
            f"{model.num_attention_heads} query heads do not share {model.key_value_heads} key-value heads"
        ),
        lambda model, _: f"use {divisors_of(model.num_attention_heads)}",
    ),
    "dense_layers_have_a_width": Rule(
        "model.intermediate_size",
        lambda model, _: (
            model.intermediate_size is not None
            or not any("dense" in mlp_type(model, layer) for layer in range(model.num_hidden_layers))
        ),
        "the model has dense layers, and the width of their MLP is unknown",
        "give intermediate_size",
    ),
    "latent_attention_is_complete": Rule(
        "model.kv_lora_rank",
        lambda model, _: _latent_fields_agree(model),
        "latent attention needs kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim together",
        "give all four (q_lora_rank is optional), or none",
    ),
    "latent_attention_replaces_heads": Rule(
        "model.kv_lora_rank",
        lambda model, _: model.kv_lora_rank is None or not _has_plain_heads(model),
        (
            "latent attention has head widths and norms of its own, so qk_norm, a gate and fewer key-value heads say "
            "nothing"
        ),
        "leave qk_norm and attention_gate out, and num_key_value_heads as many as num_attention_heads",
    ),
    "windows_have_a_length": Rule(
        "model.sliding_window",
        lambda model, _: model.sliding_window is not None or not _has_layer(model, "sliding_attention"),
        "layer_types names sliding_attention, and the window is unknown",
        "give sliding_window",
    ),
    "chunks_have_a_length": Rule(
        "model.attention_chunk_size",
        lambda model, _: (model.attention_chunk_size is not None) == _has_layer(model, "chunked_attention"),
        "chunked_attention in layer_types and attention_chunk_size belong together",
        "give both, or neither",
    ),
    "window_is_used": Rule(
        "model.sliding_window",
        lambda model, _: model.sliding_window is None or _has_layer(model, "sliding_attention"),
        "a sliding window is given, and no layer in layer_types uses it",
        "name sliding_attention layers",
    ),
    "experts_are_visited": Rule(
        "model.num_experts_per_tok",
        lambda model, _: min(1, model.num_experts) <= model.num_experts_per_tok <= model.num_experts,
        lambda model, _: f"a token visits {model.num_experts_per_tok} of {model.num_experts} experts",
        lambda model, _: f"use 1 to {model.num_experts}" if model.num_experts else "leave it out, or give num_experts",
    ),
    "experts_have_a_width": Rule(
        "model.moe_intermediate_size",
        lambda model, _: not model.num_experts or model.expert_width > 0,
        "the width of an expert is unknown",
        "give moe_intermediate_size",
    ),
    "sparse_fields_need_experts": Rule(
        "model.num_experts",
        lambda model, _: _sparse_fields_have_experts(model),
        "the model has fields of a mixture of experts, and no experts",
        "give num_experts",
    ),
    "shared_gate_needs_shared_expert": Rule(
        "model.shared_expert_gate",
        lambda model, _: not model.shared_expert_gate or model.shared_expert_intermediate_size > 0,
        "a gate on the shared expert, and no shared expert",
        "give shared_expert_intermediate_size",
    ),
    "dense_layers_are_in_the_model": Rule(
        "model.first_k_dense_replace",
        lambda model, _: model.first_k_dense_replace <= model.num_hidden_layers,
        lambda model, _: (
            f"{model.first_k_dense_replace} leading dense layers, and {model.num_hidden_layers} layers in all"
        ),
        lambda model, _: f"use at most {model.num_hidden_layers}",
    ),
    "mixer_is_complete": Rule(
        "model.layer_types",
        lambda model, _: not _missing(model),
        lambda model, _: (
            f"layers of {', '.join(mixers_of(model))} are not described without {', '.join(_missing(model))}"
        ),
        lambda model, _: f"give {', '.join(_missing(model))}",
    ),
    "mixer_fields_are_used": Rule(
        "model.layer_types",
        lambda model, _: not _unread(model),
        lambda model, _: f"{', '.join(_unread(model))}: no layer in layer_types reads them",
        "leave them out, or name the layers that they describe",
    ),
    "mlp_fields_have_an_mlp": Rule(
        "model.mlp_layer_types",
        lambda model, _: _has_mlp(model) or not _without_mlp(model),
        lambda model, _: f"{' and '.join(_without_mlp(model))} describe an MLP, and no layer has one",
        "leave them out, or name layers with an MLP in mlp_layer_types",
    ),
    "shared_blocks_are_held": Rule(
        "model.num_mem_blocks",
        lambda model, _: not model.num_mem_blocks or model.num_mem_blocks <= _sharing_layers(model),
        lambda model, _: (
            f"{model.num_mem_blocks} blocks are shared by {_sharing_layers(model)} layers, so some would have none"
        ),
        lambda model, _: f"use at most {_sharing_layers(model)}",
    ),
    "mixer_heads_share_evenly": Rule(
        "model.layer_types",
        lambda model, _: not _uneven(model),
        lambda model, _: "{} {} does not divide {} {}, so the heads would differ".format(*_uneven(model)[0]),
        lambda model, _: f"make {_uneven(model)[0][0]} {divisors_of(_uneven(model)[0][3])}",
    ),
    "adapters_have_a_rank": Rule(
        "model.adapter_rank",
        lambda model, _: not model.shared_attention_adapter or model.adapter_rank > 0,
        "adapters on the shared attention, and their rank is unknown",
        "give adapter_rank",
    ),
    "layers_mix_something": Rule(
        "model.layer_types",
        lambda model, _: (
            "none" not in model.layer_types or all(shape[:2] != ("none", "none") for shape in layer_shapes(model))
        ),
        "a layer mixes neither tokens nor channels, so it does nothing",
        "name another mixer in layer_types, or another MLP in mlp_layer_types",
    ),
}


@lru_cache(maxsize=LEDGERS_KEPT)
def problems_of_model(model: Model) -> tuple[Problem, ...]:
    """Problems of a model alone."""
    return problems_of(RULES, model, None)
