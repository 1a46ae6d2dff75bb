"""Which options of Megatron-LM spell a model? One rule for each field of Model.

Source: NVIDIA/Megatron-LM@d98e8a64 (core 0.20.0) megatron/training/arguments.py,
megatron/core/transformer/transformer_config.py, megatron/training/config/training_config.py.
"""

from dataclasses import fields
from itertools import groupby
from typing import Any

from service.estimator.question import Model, Question, filled
from service.exports.said import NOTHING, Rule, Rules, Said, Silent, chooses, lacking, takes_only, writes

_OWN_LAYER = "write the layer in a spec of your own and name it by --spec"


def lists_layers(kinds: list[int]) -> str:
    """A list of 0 and 1, one a layer, as --moe-layer-freq takes it.

    Args:
        kinds: 1 for a layer with experts

    Returns:
        the expression

    >>> lists_layers([0, 1, 1])
    '([0]*1+[1]*2)'
    """
    return f"({'+'.join(f'[{kind}]*{len(list(run))}' for kind, run in groupby(kinds))})"


def _switch(option: str) -> Rule:
    """An option that is given where the field is true."""
    return writes(option, lambda value, _: True if value else None)


def _unwritten(name: str) -> Rule:
    """A field that no option says: only what a model has where it says nothing of it can be had."""
    default = next(field.default for field in fields(Model) if field.name == name)
    return takes_only((default,), "Megatron-LM has no option for this part of the model", _OWN_LAYER)


def _of_attention(option: str) -> Rule:
    """An option of latent attention."""
    return writes(option, lambda value, q: value if q.model.kv_lora_rank is not None else None)


def _groups(value: Any, question: Question) -> Said:
    if value is None or question.model.kv_lora_rank is not None or value == question.model.num_attention_heads:
        return NOTHING
    return Said((("--group-query-attention", True), ("--num-query-groups", value)))


def _head_width(value: Any, question: Question) -> Said:
    model = question.model
    usual = model.num_attention_heads and model.num_attention_heads * (value or 0) == model.hidden_size
    return NOTHING if value is None or usual or model.kv_lora_rank is not None else Said((("--kv-channels", value),))


def _feed_forward(value: Any, question: Question) -> int:
    return int(value or question.model.expert_width)


def _biases(value: Any, question: Question) -> Said:
    """Biases of the MLP and of the attention's output come together; those of queries, keys and values may be alone."""
    model = question.model
    attends = model.num_attention_heads > 0
    if attends and model.out_bias != value:
        why = "biases of the MLP and of the attention's output are one option, and the model has one of them"
        return lacking(why, _OWN_LAYER)
    if not value:
        alone: tuple[tuple[str, Any], ...] = (("--add-qkv-bias", True),) if model.attention_bias else ()
        return Said((("--disable-bias-linear", True), *alone))
    if attends and not model.attention_bias:
        return lacking("biases of all products are one option, and the model has none on queries", _OWN_LAYER)
    return NOTHING


def _positions(value: Any, question: Question) -> Said:
    longest = max(question.recipe.sequence_length, question.model.max_position_embeddings or 0)
    if value:
        return Said((("--position-embedding-type", "learned_absolute"), ("--max-position-embeddings", value)))
    told = "the model's positions are taken to be rotary; say --position-embedding-type none where it has none"
    settings = (("--position-embedding-type", "rope"), ("--max-position-embeddings", longest))
    return Said(settings, assumptions=(told,))


def _layer_types(value: Any, question: Question) -> Said:
    """Windows that come again, gated delta nets between full attention, or nothing but full attention."""
    model = question.model
    kinds = value or (("sliding_attention",) if model.sliding_window else ("full_attention",))
    alike = {*kinds}
    every = len(kinds)
    ends_full = kinds[-1] == "full_attention" and len({*kinds[:-1]}) == 1
    if alike == {"full_attention"}:
        return NOTHING
    if alike == {"sliding_attention"}:
        return Said((("--window-size", f"{(model.sliding_window or 1) - 1},0"),))
    if alike == {"sliding_attention", "full_attention"} and ends_full:
        window = ("--window-size", f"{(model.sliding_window or 1) - 1},0")
        return Said((window, ("--window-attn-skip-freq", every)))
    if alike == {"gated_delta_net", "full_attention"} and ends_full:
        return Said((("--experimental-attention-variant", "gated_delta_net"), ("--linear-attention-freq", every)))
    return lacking("options give such layers no place; they are written as a pattern or as a spec", _OWN_LAYER)


def _of_delta_net(option: str) -> Rule:
    def rule(value: Any, question: Question) -> Said:
        if value is None or "gated_delta_net" in question.model.layer_types:
            return NOTHING if value is None else Said(((option, value),))
        return lacking("options give such layers no place; they are written as a pattern or as a spec", _OWN_LAYER)

    return rule


def _experts(option: str) -> Rule:
    return writes(option, lambda value, q: value if value and q.model.num_experts else None)


def sparse_layers(model: Model) -> list[int]:
    """Which layers have experts.

    Args:
        model: the model

    Returns:
        1 or 0 for each layer
    """
    types = model.mlp_layer_types or ("sparse",)
    named = [types[layer % len(types)] for layer in range(model.num_hidden_layers)]
    return [int(kind == "sparse" and layer >= model.first_k_dense_replace) for layer, kind in enumerate(named)]


def _sparse(value: Any, question: Question) -> Said:
    model = question.model
    if not model.num_experts:
        odd = [kind for kind in model.mlp_layer_types if kind != "dense"]
        return lacking("layers without an MLP are written as a pattern", _OWN_LAYER) if odd else NOTHING
    if {*model.mlp_layer_types} - {"dense", "sparse"}:
        return lacking("a layer has experts or a dense MLP, not both and not neither", _OWN_LAYER)
    kinds = sparse_layers(model)
    return NOTHING if all(kinds) else Said((("--moe-layer-freq", lists_layers(kinds)),))


def _tied(value: Any, question: Question) -> Said:
    return NOTHING if value else Said((("--untie-embeddings-and-output-weights", True),))


_UNWRITTEN = (
    "lm_head_bias", "norms_per_layer", "final_norm", "embedding_norm", "parallel_attention", "attention_chunk_size",
    "word_embed_proj_dim", "router_bias", "zero_expert_num", "activation_parameters", "conv_bias", "mixer_bias",
    "mixer_norm", "mamba_d_ssm", "mamba_d_state", "mamba_dt_rank", "mamba_n_heads", "mamba_n_groups", "lru_width",
    "num_mem_blocks", "adapter_rank", "shared_attention_adapter",
)  # fmt: skip
"""Fields without an option, or with one that goes with a pattern of layers."""

MODEL_RULES: Rules = {
    "model.num_hidden_layers": writes("--num-layers"),
    "model.hidden_size": writes("--hidden-size"),
    "model.intermediate_size": writes("--ffn-hidden-size", _feed_forward),
    "model.num_attention_heads": writes("--num-attention-heads", lambda value, _: max(1, value)),
    "model.num_key_value_heads": _groups,
    "model.head_dim": _head_width,
    "model.vocab_size": writes("--vocab-size"),
    "model.gated_mlp": _switch("--swiglu"),
    "model.tie_word_embeddings": _tied,
    "model.attention_bias": Silent("said with mlp_bias: biases are one option"),
    "model.attention_out_bias": Silent("said with mlp_bias: biases are one option"),
    "model.mlp_bias": _biases,
    "model.normalization": chooses(
        {"rmsnorm": {"--normalization": "RMSNorm"}, "layernorm": {"--normalization": "LayerNorm"}},
        "Megatron-LM has no norm of the kind {value}",
        _OWN_LAYER,
    ),
    "model.position_embedding_rows": _positions,
    "model.max_position_embeddings": Silent("said with the positions"),
    "model.qk_norm": chooses(
        {
            "none": {},
            "per_head_dim": {"--qk-layernorm": True},
            "per_head_dim_biased": {"--qk-layernorm": True},
            "l2": {"--qk-l2-norm": True},
        },
        "Megatron-LM has no norm of the kind {value} on queries and keys",
        _OWN_LAYER,
    ),
    "model.attention_gate": chooses(
        {"none": {}, "elementwise": {"--attention-output-gate": True}},
        "Megatron-LM has no gate of the kind {value} on attention",
        _OWN_LAYER,
    ),
    "model.attention_sinks": chooses({False: {}, True: {"--softmax-type": "learnable"}}, "", ""),
    "model.layer_types": _layer_types,
    "model.sliding_window": Silent("said with the layers' types"),
    "model.conv_kernel": _of_delta_net("--linear-conv-kernel-dim"),
    **{f"model.{name}": _unwritten(name) for name in _UNWRITTEN},
    "model.linear_num_key_heads": _of_delta_net("--linear-num-key-heads"),
    "model.linear_num_value_heads": _of_delta_net("--linear-num-value-heads"),
    "model.linear_key_head_dim": _of_delta_net("--linear-key-head-dim"),
    "model.linear_value_head_dim": _of_delta_net("--linear-value-head-dim"),
    "model.kv_lora_rank": lambda value, _: (
        NOTHING if value is None else Said((("--multi-latent-attention", True), ("--kv-lora-rank", value)))
    ),
    "model.q_lora_rank": _of_attention("--q-lora-rank"),
    "model.qk_nope_head_dim": _of_attention("--qk-head-dim"),
    "model.qk_rope_head_dim": _of_attention("--qk-pos-emb-head-dim"),
    "model.v_head_dim": _of_attention("--v-head-dim"),
    "model.num_experts": _experts("--num-experts"),
    "model.num_experts_per_tok": _experts("--moe-router-topk"),
    "model.moe_intermediate_size": _experts("--moe-ffn-hidden-size"),
    "model.shared_expert_intermediate_size": _experts("--moe-shared-expert-intermediate-size"),
    "model.shared_expert_gate": _switch("--moe-shared-expert-gate"),
    "model.first_k_dense_replace": Silent("said with the layers' MLPs"),
    "model.mlp_layer_types": _sparse,
    "model.moe_latent_size": writes("--moe-latent-size"),
    "model.num_nextn_predict_layers": writes("--mtp-num-layers", lambda value, _: value or None),
}
"""How each field of the model is written."""


def chunk_layers(question: Question) -> tuple[int, ...]:
    """Layers of each chunk, in the order of the model.

    Args:
        question: the question, every default filled

    Returns:
        as the layout says, or all alike
    """
    layout = question.layout
    chunks = layout.pipeline * layout.virtual_pipeline
    return layout.stage_layers or (filled(question.model.num_hidden_layers) // chunks,) * chunks
