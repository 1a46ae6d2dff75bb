"""How is one model always written the same way, however its config says it?

Values that only repeat what a Model derives by itself are left out, patterns are cut to their shortest period:
so the same model has the same fields whether it comes from a config, from a preset or from another spelling.
"""

from typing import Any

from service.catalogue.huggingface.layer_patterns import CHUNKED, FULL, SLIDING, shortest_period
from service.estimator.model.build import MIXER_FIELDS, MIXERS
from service.estimator.names import LayerType

SPARSE_ONLY = (
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "shared_expert_gate",
    "router_bias",
    "first_k_dense_replace",
    "moe_latent_size",
    "zero_expert_num",
)


def canonical(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a Model without what goes without saying.

    Args:
        fields: fields of a Model, patterns with one item a layer

    Returns:
        the fields to keep
    """
    kept = _feed_forward(_attention({name: value for name, value in fields.items() if value is not None}))
    if kept.get("attention_out_bias") == kept.get("attention_bias", False):
        kept.pop("attention_out_bias", None)
    if kept.get("word_embed_proj_dim") == kept["hidden_size"]:
        del kept["word_embed_proj_dim"]
    return kept


def _attention(fields: dict[str, Any]) -> dict[str, Any]:
    heads = fields["num_attention_heads"]
    if fields.get("num_key_value_heads") == heads:
        del fields["num_key_value_heads"]
    if fields.get("head_dim", 0) * heads == fields["hidden_size"]:
        del fields["head_dim"]
    pattern = fields.pop("layer_types", None)
    if pattern is None:
        return fields
    period: tuple[LayerType, ...] = shortest_period(pattern)
    if SLIDING not in period:
        fields.pop("sliding_window", None)
    if CHUNKED not in period:
        fields.pop("attention_chunk_size", None)
    read = {name for mixer in period for name in (*MIXERS[mixer].needs, *MIXERS[mixer].takes)}
    kept = {name: value for name, value in fields.items() if name in read or name not in MIXER_FIELDS}
    kept.setdefault("num_attention_heads", 0)
    return kept if period in ((FULL,), (SLIDING,)) else {**kept, "layer_types": period}


def _feed_forward(fields: dict[str, Any]) -> dict[str, Any]:
    pattern = shortest_period(fields.pop("mlp_layer_types", ()) or ("sparse",))
    if not fields.get("num_experts") or not any("sparse" in mlp for mlp in pattern):
        dense = {name: value for name, value in fields.items() if name not in (*SPARSE_ONLY, "num_experts")}
        return {**dense, "mlp_layer_types": pattern} if "none" in pattern else dense
    if pattern != ("sparse",):
        fields["mlp_layer_types"] = pattern
    elif not fields.get("first_k_dense_replace"):
        fields.pop("intermediate_size", None)
    if fields.get("moe_intermediate_size") == fields.get("intermediate_size"):
        fields.pop("moe_intermediate_size", None)
    if not fields.get("shared_expert_intermediate_size"):
        fields.pop("shared_expert_gate", None)
    return fields
