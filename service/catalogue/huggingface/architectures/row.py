"""The description of one type of Hugging Face config."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.catalogue.huggingface.layers import Builder

Keys = dict[str, tuple[str, ...]]

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
DECODER = (*SIZES, "tie_word_embeddings")
GROUPED = (*DECODER, "num_key_value_heads", "head_dim")
LLAMA = (*GROUPED, "intermediate_size")
EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
LATENT = (*DECODER, "intermediate_size", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
LATENT_DENSE = (*LATENT, "v_head_dim", "attention_bias")
LATENT_WITHOUT_EFFECT = ("num_key_value_heads", "head_dim", "qk_head_dim")

GPT2_KEYS: Keys = {
    "hidden_size": ("n_embd", "hidden_size"),
    "num_hidden_layers": ("n_layer", "num_hidden_layers"),
    "num_attention_heads": ("n_head", "num_attention_heads"),
    "max_position_embeddings": ("n_positions", "max_position_embeddings"),
}
MPT_KEYS: Keys = {
    "hidden_size": ("d_model", "hidden_size"),
    "num_hidden_layers": ("n_layers", "num_hidden_layers"),
    "num_attention_heads": ("n_heads", "num_attention_heads"),
    "max_position_embeddings": ("max_seq_len", "max_position_embeddings"),
}
FALCON_KEYS: Keys = {"hidden_size": ("hidden_size", "n_embed"), "attention_bias": ("bias",), "mlp_bias": ("bias",)}
MIXTRAL_KEYS: Keys = {
    "num_experts": ("num_local_experts", "num_experts"),
    "moe_intermediate_size": ("intermediate_size",),
}
LOCAL_KEYS: Keys = MIXTRAL_KEYS | {"num_experts": ("num_local_experts",)}
GRANITE_KEYS: Keys = LOCAL_KEYS | {"shared_expert_intermediate_size": ("shared_intermediate_size",)}
ROUTED_KEYS: Keys = {
    "num_experts": ("n_routed_experts", "num_local_experts"),
    "num_nextn_predict_layers": ("num_nextn_predict_layers", "num_mtp_layers"),
}
PLAIN_MLP: dict[str, Any] = {"gated_mlp": False, "normalization": "layernorm"}
ALL_BIASES: dict[str, Any] = {"attention_bias": True, "mlp_bias": True}
PARALLEL: dict[str, Any] = {"parallel_attention": True, "norms_per_layer": 1}
QKV_BIAS_ONLY: dict[str, Any] = {"attention_out_bias": False}
HUNYUAN_DEMANDS: dict[str, tuple[Any, ...]] = {
    "mlp_bias": (None, False),
    "use_cla": (None, False),
    "use_mla": (None, False),
    "use_qk_norm": (None, True),
}
HUNYUAN_WITHOUT_EFFECT = (
    *("attention_head_dim", "cla_share_factor", "dense_list", "group_limited_greedy", "moe_drop_tokens"),
    *("moe_random_routing_dropped_token", "norm_type", "use_rotary_pos_emb"),
    *("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The description of one type of config."""

    reads: tuple[str, ...]
    """Fields of Model that a key holds."""
    keys: Keys = field(default_factory=dict)
    """Keys of fields with another name."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Fields of Model that the type's code fixes."""
    builders: tuple[Builder, ...] = ()
    """Functions that read the rest."""
    demands: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Supported values by key; any other is refused."""
    without_effect: tuple[str, ...] = ()
    """Keys of the architecture without effect in this type."""
