"""Which models does a tool's formula not read? Each feature once, for every tool that it concerns."""

from service.estimator.build import layer_type, mlp_type
from service.estimator.methods.tool import Limit
from service.estimator.model import Model

_ATTENDING = ("full_attention", "sliding_attention", "chunked_attention")
"""Layers of attention, which all keep and hold the same."""


def _mixers(model: Model) -> list[str]:
    """Kinds of layers that are not attention alone."""
    kinds = dict.fromkeys(layer_type(model, layer) for layer in range(model.num_hidden_layers))
    return [kind for kind in kinds if kind not in _ATTENDING]


def _mlps(model: Model) -> list[str]:
    return list(dict.fromkeys(mlp_type(model, layer) for layer in range(model.num_hidden_layers)))


def _has_equal_experts(model: Model) -> bool:
    lone = not (model.shared_expert_intermediate_size or model.moe_latent_size)
    return not model.num_experts or (lone and _mlps(model) == ["sparse"])


DENSE = Limit(
    "method_counts_experts",
    "model.num_experts",
    lambda resolved: resolved.question.model.num_experts == 0,
    lambda tool, resolved: (
        f"{tool} has one MLP a layer, and the model has {resolved.question.model.num_experts} experts",
        "ask about a dense model",
    ),
)

EQUAL_EXPERTS = Limit(
    "method_counts_uneven_experts",
    "model.num_experts",
    lambda resolved: _has_equal_experts(resolved.question.model),
    lambda tool, _: (
        f"{tool} gives every layer the same routed experts and nothing beside them; this model has dense layers, "
        "shared experts or experts on a latent too",
        "ask about a model whose layers all have routed experts alone",
    ),
)

EXPERTS_AS_TENSORS = Limit(
    "method_splits_experts_as_tensors",
    "layout.expert_tensor",
    lambda resolved: (
        not resolved.question.model.num_experts
        or resolved.question.layout.expert_tensor == resolved.question.layout.tensor
    ),
    lambda tool, resolved: (
        f"{tool} divides experts by the tensor degree {resolved.question.layout.tensor} like all else, and here by "
        f"{resolved.question.layout.expert_tensor}",
        f"use expert_tensor {resolved.question.layout.tensor}",
    ),
)

HEADS = Limit(
    "method_counts_latent_attention",
    "model.kv_lora_rank",
    lambda resolved: resolved.question.model.kv_lora_rank is None,
    lambda tool, _: (
        f"{tool} counts projections of whole heads, and latent attention has none",
        "ask about a model with plain heads",
    ),
)

ATTENTION = Limit(
    "method_counts_the_mixers",
    "model.layer_types",
    lambda resolved: not _mixers(resolved.question.model),
    lambda tool, resolved: (
        f"{tool} gives every layer attention, and the model has {', '.join(_mixers(resolved.question.model))}",
        "ask about a model of attention layers",
    ),
)

ONE_MLP = Limit(
    "method_counts_one_mlp_a_layer",
    "model.mlp_layer_types",
    lambda resolved: set(_mlps(resolved.question.model)) <= {"dense", "sparse"},
    lambda tool, _: (
        f"{tool} gives every layer one MLP, dense or sparse, and some layers here have none or both",
        "ask about a model with one MLP a layer",
    ),
)

GATED = Limit(
    "method_counts_plain_mlps",
    "model.gated_mlp",
    lambda resolved: resolved.question.model.gated_mlp,
    lambda tool, _: (
        f"{tool} counts three matrices for each MLP, and this model has two",
        "ask about a model with gated MLPs",
    ),
)

NO_DEPTHS = Limit(
    "method_counts_prediction_depths",
    "model.num_nextn_predict_layers",
    lambda resolved: resolved.question.model.num_nextn_predict_layers == 0,
    lambda tool, resolved: (
        f"{tool} has no multi-token-prediction depths, and the model trains "
        f"{resolved.question.model.num_nextn_predict_layers}",
        "use num_nextn_predict_layers 0",
    ),
)

NORMS = Limit(
    "method_counts_the_norms",
    "model.normalization",
    lambda resolved: resolved.question.model.normalization in ("rmsnorm", "layernorm"),
    lambda tool, resolved: (
        f"{tool} has rmsnorm and layernorm, and the model {resolved.question.model.normalization}",
        "ask about a model with one of the two",
    ),
)

PLAIN_EMBEDDING = Limit(
    "method_counts_projected_embeddings",
    "model.word_embed_proj_dim",
    lambda resolved: resolved.question.model.word_embed_proj_dim is None,
    lambda tool, _: (
        f"{tool} counts an embedding as wide as the model, and here it is projected",
        "leave word_embed_proj_dim out",
    ),
)


def plain(*others: Limit) -> tuple[Limit, ...]:
    """The limits of a formula over the sizes of a plain decoder: attention, one MLP a layer, a plain embedding.

    Args:
        others: what it does not read beside

    Returns:
        the limits
    """
    return (ATTENTION, ONE_MLP, PLAIN_EMBEDDING, *others)
