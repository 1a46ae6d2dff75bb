"""Which model do the arguments of Megatron-LM describe, where they say it all?

Source: NVIDIA/Megatron-LM@d98e8a64 (core 0.20.0) megatron/training/arguments.py, its defaults included.
"""

import re
from typing import Any

from service.exports.back.draft import Draft, Form, number, text, truth, whole

_SIZES = {
    "num-layers": "num_hidden_layers",
    "hidden-size": "hidden_size",
    "num-attention-heads": "num_attention_heads",
    "vocab-size": "vocab_size",
}
"""Options without which there is no model, each with its field."""

_OPTIONAL = {
    "kv-channels": "head_dim",
    "kv-lora-rank": "kv_lora_rank",
    "q-lora-rank": "q_lora_rank",
    "qk-head-dim": "qk_nope_head_dim",
    "qk-pos-emb-head-dim": "qk_rope_head_dim",
    "v-head-dim": "v_head_dim",
    "num-experts": "num_experts",
    "moe-ffn-hidden-size": "moe_intermediate_size",
    "moe-shared-expert-intermediate-size": "shared_expert_intermediate_size",
    "moe-latent-size": "moe_latent_size",
    "mtp-num-layers": "num_nextn_predict_layers",
    "linear-conv-kernel-dim": "conv_kernel",
    "linear-num-key-heads": "linear_num_key_heads",
    "linear-num-value-heads": "linear_num_value_heads",
    "linear-key-head-dim": "linear_key_head_dim",
    "linear-value-head-dim": "linear_value_head_dim",
}
"""Whole numbers with a field of their own."""

_SWITCHES = ("group-query-attention", "swiglu", "untie-embeddings-and-output-weights", "disable-bias-linear")
_MORE_SWITCHES = ("add-qkv-bias", "qk-layernorm", "qk-l2-norm", "attention-output-gate", "multi-latent-attention")

MODEL_FORMS: dict[str, Form] = {
    **dict.fromkeys((*_SIZES, *_OPTIONAL), whole),
    **dict.fromkeys(("ffn-hidden-size", "num-query-groups", "max-position-embeddings", "moe-router-topk"), whole),
    **dict.fromkeys(("linear-attention-freq", "window-attn-skip-freq"), whole),
    **dict.fromkeys((*_SWITCHES, *_MORE_SWITCHES, "moe-shared-expert-gate"), truth),
    **dict.fromkeys(("use-rotary-position-embeddings",), truth),
    **dict.fromkeys(("normalization", "position-embedding-type", "softmax-type", "window-size"), text),
    **dict.fromkeys(("moe-layer-freq", "experimental-attention-variant"), text),
    "norm-epsilon": number,
}
"""Options of the model that are read."""

_FREQUENCY = re.compile(r"\(?(?:\[[01]\]\*\d{1,4}\+?){1,64}\)?")
_RUN = re.compile(r"\[([01])\]\*(\d{1,4})")

MOST_LAYERS = 2048
"""Layers of a model."""


def put_model(draft: Draft) -> bool:
    """Put the model into the draft, where the arguments say it.

    Args:
        draft: the options

    Returns:
        whether it has experts

    Raises:
        Refused: an option's value is none that is understood
    """
    sparse = bool(draft.get("num-experts"))
    missing = [option for option in _SIZES if option not in draft.settings]
    if missing:
        draft.assumptions.append(f"no model: the arguments do not say {', '.join(missing)}")
        return sparse
    model: dict[str, Any] = {field: draft.get(option) for option, field in _SIZES.items()}
    model |= {field: draft.get(option) for option, field in _OPTIONAL.items() if draft.get(option)}
    model["intermediate_size"] = draft.get("ffn-hidden-size", 4 * model["hidden_size"])
    if draft.get("group-query-attention"):
        model["num_key_value_heads"] = draft.get("num-query-groups", 1)
    model["gated_mlp"] = bool(draft.get("swiglu"))
    model["tie_word_embeddings"] = not draft.get("untie-embeddings-and-output-weights")
    biased = not draft.get("disable-bias-linear")
    model |= {"attention_bias": biased or bool(draft.get("add-qkv-bias"))}
    model |= {"attention_out_bias": biased, "mlp_bias": biased}
    model["normalization"] = draft.chosen(
        "normalization", {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}, "LayerNorm"
    )
    _put_attention(draft, model)
    if sparse:
        model["num_experts_per_tok"] = draft.get("moe-router-topk", 2)
        model["shared_expert_gate"] = bool(draft.get("moe-shared-expert-gate"))
        model["mlp_layer_types"] = _mlps(draft)
    draft.model = model
    return sparse


def _put_attention(draft: Draft, model: dict[str, Any]) -> None:
    kind = draft.get("position-embedding-type", "learned_absolute")
    rows = draft.get("max-position-embeddings", draft.get("seq-length", 0))
    learned = kind == "learned_absolute" and not draft.get("use-rotary-position-embeddings")
    model["position_embedding_rows"] = rows if learned else 0
    if not learned and rows:
        model["max_position_embeddings"] = rows
    if draft.get("qk-layernorm") and not draft.get("multi-latent-attention"):
        model["qk_norm"] = "per_head_dim" if model["normalization"] == "rmsnorm" else "per_head_dim_biased"
    if draft.get("qk-l2-norm"):
        model["qk_norm"] = "l2"
    model["attention_gate"] = "elementwise" if draft.get("attention-output-gate") else "none"
    sinks = {"vanilla": False, "off-by-one": False, "learnable": True}
    model["attention_sinks"] = draft.chosen("softmax-type", sinks, "vanilla")
    every = draft.get("window-attn-skip-freq", 1)
    if "window-size" in draft.settings:
        model["sliding_window"] = _window(draft)
        skipped = ["full_attention"] * (every > 1)
        model["layer_types"] = ["sliding_attention"] * max(1, min(every, MOST_LAYERS) - 1) + skipped
    if draft.get("experimental-attention-variant") == "gated_delta_net":
        nets = min(draft.get("linear-attention-freq", 1), MOST_LAYERS) - 1
        model["layer_types"] = ["gated_delta_net"] * nets + ["full_attention"]
    elif "experimental-attention-variant" in draft.settings:
        raise draft.wrong("experimental-attention-variant", "not_a_choice", "is not understood", "use gated_delta_net")


def _window(draft: Draft) -> int:
    first = draft.get("window-size").strip("()").split(",")[0].strip()
    if not (first.isascii() and first.isdecimal() and len(first) < 10):
        raise draft.wrong("window-size", "not_a_window", "is no window", "give two numbers, such as 4095,0")
    return int(first) + 1


def _mlps(draft: Draft) -> list[str]:
    written = draft.get("moe-layer-freq", "1").replace(" ", "")
    if written.isascii() and written.isdecimal() and 0 < int(written[:6]) <= MOST_LAYERS:
        return ["sparse"] + ["dense"] * (int(written[:6]) - 1)
    runs = _RUN.findall(written) if _FREQUENCY.fullmatch(written) else []
    kinds = ["sparse" if kind == "1" else "dense" for kind, count in runs for _ in range(int(count))]
    if not 0 < len(kinds) <= MOST_LAYERS:
        fix = "give a number, or a list such as ([0]*3+[1]*29)"
        raise draft.wrong("moe-layer-freq", "not_a_pattern", "is no pattern of layers", fix)
    return kinds
