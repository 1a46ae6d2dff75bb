"""How does each type of Hugging Face config describe a model? One row a `model_type`.

A row says under which keys the type has the fields of a Model (`keys`; a field of `reads` that is not there has
its own name), which fields the type's code fixes whatever the config says (`fixed`), what is read by a rule
(`builders`), which values cannot be expressed (`demands`: the only ones that can), and which keys of the
architecture change nothing in this type (`without_effect`). Read in the classes of transformers, see `defaults.json`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.catalogue.huggingface import branches as b
from service.catalogue.huggingface import layer_patterns as p
from service.catalogue.huggingface.layer_patterns import Builder

Keys = dict[str, tuple[str, ...]]

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
DECODER = (*SIZES, "tie_word_embeddings")
GROUPED = (*DECODER, "num_key_value_heads", "head_dim")
LLAMA = (*GROUPED, "intermediate_size")
EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
LATENT = (*DECODER, "intermediate_size", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")

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
ROUTED_KEYS: Keys = {
    "num_experts": ("n_routed_experts", "num_experts", "num_local_experts"),
    "num_nextn_predict_layers": ("num_nextn_predict_layers", "num_mtp_layers"),
}
PLAIN_MLP: dict[str, Any] = {"gated_mlp": False, "normalization": "layernorm"}
ALL_BIASES: dict[str, Any] = {"attention_bias": True, "mlp_bias": True}
PARALLEL: dict[str, Any] = {"parallel_attention": True, "norms_per_layer": 1}
QKV_BIAS_ONLY: dict[str, Any] = {"attention_out_bias": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How one type of config describes a model."""

    reads: tuple[str, ...]
    """Fields of Model that a key says."""
    keys: Keys = field(default_factory=dict)
    """Where they stand, if not under their own name."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Fields of Model that the type has whatever the config says."""
    builders: tuple[Builder, ...] = ()
    """Rules that read the rest."""
    demands: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values that can be expressed, by key; any other is refused."""
    without_effect: tuple[str, ...] = ()
    """Keys of the architecture that change nothing in this type."""


DEEPSEEK_V3 = Architecture(
    reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias", "first_k_dense_replace", "num_nextn_predict_layers"),
    keys=ROUTED_KEYS,
    builders=(b.shared_experts, p.sparse_every_nth),
    without_effect=("num_key_value_heads", "head_dim", "qk_head_dim"),
)

ARCHITECTURES: Mapping[str, Architecture] = {
    "bloom": Architecture(
        reads=DECODER,
        keys={
            "max_position_embeddings": ("seq_length",),
            "hidden_size": ("hidden_size", "n_embed"),
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
        },
        fixed=PLAIN_MLP | ALL_BIASES | {"embedding_norm": True},
        builders=(b.inner_width("n_inner"),),
    ),
    "cohere": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed=PARALLEL | {"normalization": "layernorm_no_bias"},
        builders=(b.qk_norm("use_qk_norm", "full"),),
    ),
    "dbrx": Architecture(
        reads=(*DECODER, "num_key_value_heads", *EXPERTS),
        keys=MPT_KEYS
        | {
            "num_key_value_heads": ("attn_config.kv_n_heads",),
            "num_experts": ("ffn_config.moe_num_experts",),
            "num_experts_per_tok": ("ffn_config.moe_top_k",),
            "moe_intermediate_size": ("ffn_config.ffn_hidden_size",),
        },
        fixed={"normalization": "layernorm_no_bias"},
    ),
    "deepseek_v2": Architecture(
        reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias", "first_k_dense_replace"),
        keys=ROUTED_KEYS,
        builders=(b.shared_experts, p.sparse_every_nth),
        demands={"mlp_bias": (False,)},
        without_effect=DEEPSEEK_V3.without_effect,
    ),
    "deepseek_v3": DEEPSEEK_V3,
    "falcon": Architecture(
        reads=(*DECODER, "attention_bias", "mlp_bias"),
        keys=FALCON_KEYS,
        fixed=PLAIN_MLP,
        builders=(b.falcon_heads, b.falcon_norms, b.inner_width("ffn_hidden_size")),
        without_effect=("alibi",),
    ),
    "gemma": Architecture(reads=(*LLAMA, "attention_bias"), demands={"use_bidirectional_attention": (None, False)}),
    "gemma2": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"norms_per_layer": 4},
        builders=(p.alternating_window,),
        demands={"use_bidirectional_attention": (None, False)},
    ),
    "gemma3_text": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"norms_per_layer": 4, "qk_norm": "per_head_dim"},
        builders=(p.window_but_every_nth,),
        demands={"use_bidirectional_attention": (None, False)},
        without_effect=("_sliding_window_pattern",),
    ),
    "glm4_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias", "first_k_dense_replace", "num_nextn_predict_layers"),
        keys=ROUTED_KEYS,
        fixed=QKV_BIAS_ONLY,
        builders=(b.shared_experts, b.qk_norm("use_qk_norm", "per_head_dim")),
    ),
    "gpt2": Architecture(
        reads=DECODER,
        keys=GPT2_KEYS,
        fixed=PLAIN_MLP | ALL_BIASES,
        builders=(b.inner_width("n_inner"), b.positions()),
        demands={"add_cross_attention": (False,)},
    ),
    "gpt_neox": Architecture(
        reads=(*DECODER, "intermediate_size", "attention_bias"),
        fixed=PLAIN_MLP | {"mlp_bias": True},
        builders=(b.parallel_residual(norms=2),),
    ),
    "gpt_oss": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=MIXTRAL_KEYS | {"num_experts_per_tok": ("num_experts_per_tok", "experts_per_token")},
        fixed={"mlp_bias": True, "router_bias": True, "attention_sinks": True},
        builders=(p.alternating_window,),
    ),
    "gptj": Architecture(
        reads=DECODER,
        keys=GPT2_KEYS,
        fixed=PLAIN_MLP | PARALLEL | {"mlp_bias": True, "lm_head_bias": True},
        builders=(b.inner_width("n_inner"),),
    ),
    "kimi_k2": DEEPSEEK_V3,
    "llama": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias")),
    "llama4_text": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys=MIXTRAL_KEYS
        | {
            "intermediate_size": ("intermediate_size_mlp",),
            "shared_expert_intermediate_size": ("intermediate_size",),
        },
        builders=(p.chunks_with_rotation, p.sparse_if_listed, b.qk_norm("use_qk_norm", "l2")),
    ),
    "mistral": Architecture(reads=LLAMA, builders=(p.window_everywhere,)),
    "mixtral": Architecture(reads=(*GROUPED, *EXPERTS), keys=MIXTRAL_KEYS, builders=(p.window_everywhere,)),
    "mpt": Architecture(
        reads=DECODER,
        keys=MPT_KEYS,
        fixed={"gated_mlp": False},
        builders=(b.mpt_branches,),
        demands={
            "attn_config.alibi": (True,),
            "attn_config.attn_type": ("multihead_attention",),
            "attn_config.prefix_lm": (False,),
            "attn_config.qk_ln": (False,),
            "norm_type": ("low_precision_layernorm", "layernorm"),
        },
        without_effect=("learned_pos_emb",),
    ),
    "nemotron": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias"), fixed=PLAIN_MLP),
    "olmo": Architecture(reads=(*LLAMA, "attention_bias"), fixed={"normalization": "nonparametric"}),
    "olmo2": Architecture(reads=(*LLAMA, "attention_bias"), fixed={"qk_norm": "full"}),
    "olmoe": Architecture(reads=(*GROUPED, *EXPERTS, "attention_bias"), keys=MIXTRAL_KEYS, fixed={"qk_norm": "full"}),
    "opt": Architecture(
        reads=(*DECODER, "intermediate_size", "word_embed_proj_dim", "attention_bias", "mlp_bias"),
        keys={"intermediate_size": ("ffn_dim",), "attention_bias": ("enable_bias",), "mlp_bias": ("enable_bias",)},
        fixed={"gated_mlp": False},
        builders=(b.positions(extra=2), b.opt_norms),
    ),
    "phi": Architecture(
        reads=LLAMA,
        fixed=PLAIN_MLP | PARALLEL | ALL_BIASES | {"lm_head_bias": True},
        demands={"qk_layernorm": (False,)},
    ),
    "phi3": Architecture(
        reads=LLAMA,
        builders=(p.window_everywhere,),
        demands=dict.fromkeys(("attention_bias", "mlp_bias", "lm_head_bias"), (None, False)),
        without_effect=("full_attn_mod",),
    ),
    "phimoe": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias", "lm_head_bias"),
        keys=MIXTRAL_KEYS,
        fixed={"normalization": "layernorm"},
        builders=(p.window_everywhere,),
    ),
    "qwen2": Architecture(reads=LLAMA, fixed=QKV_BIAS_ONLY | {"attention_bias": True}, builders=(p.window_from_layer,)),
    "qwen2_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys={"attention_bias": ("qkv_bias",)},
        fixed=QKV_BIAS_ONLY | {"shared_expert_gate": True},
        builders=(p.window_below_layer, p.sparse_but_listed),
    ),
    "qwen3": Architecture(
        reads=(*LLAMA, "attention_bias"), fixed={"qk_norm": "per_head_dim"}, builders=(p.window_from_layer,)
    ),
    "qwen3_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias"),
        keys={"num_experts": ("num_experts", "num_local_experts")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(p.switched_window, p.sparse_but_listed),
        without_effect=("max_window_layers", "qkv_bias", "shared_expert_intermediate_size", "use_qk_norm"),
    ),
    "smollm3": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        builders=(p.window_without_rotation,),
        without_effect=("max_window_layers",),
    ),
    "stablelm": Architecture(
        reads=(*DECODER, "num_key_value_heads", "intermediate_size", "attention_bias"),
        keys={"attention_bias": ("use_qkv_bias",)},
        fixed=QKV_BIAS_ONLY | {"normalization": "layernorm"},
        builders=(b.parallel_residual(norms=1), b.qk_norm("qk_layernorm", "full")),
    ),
}
