"""Types of config with routed experts."""

from collections.abc import Mapping

from service.catalogue.huggingface import branches as b
from service.catalogue.huggingface import layer_patterns as p
from service.catalogue.huggingface.architectures.row import (
    DECODER,
    EXPERTS,
    GROUPED,
    LATENT,
    LLAMA,
    MIXTRAL_KEYS,
    MPT_KEYS,
    QKV_BIAS_ONLY,
    ROUTED_KEYS,
    Architecture,
)

DEEPSEEK_V3 = Architecture(
    reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias", "first_k_dense_replace", "num_nextn_predict_layers"),
    keys=ROUTED_KEYS,
    builders=(b.shared_experts, p.sparse_every_nth),
    without_effect=("num_key_value_heads", "head_dim", "qk_head_dim"),
)

SPARSE: Mapping[str, Architecture] = {
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
    "glm4_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias", "first_k_dense_replace", "num_nextn_predict_layers"),
        keys=ROUTED_KEYS,
        fixed=QKV_BIAS_ONLY,
        builders=(b.shared_experts, b.qk_norm("use_qk_norm", "per_head_dim")),
    ),
    "gpt_oss": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=MIXTRAL_KEYS | {"num_experts_per_tok": ("num_experts_per_tok", "experts_per_token")},
        fixed={"mlp_bias": True, "router_bias": True, "attention_sinks": True},
        builders=(p.alternating_window,),
    ),
    "kimi_k2": DEEPSEEK_V3,
    "llama4_text": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys=MIXTRAL_KEYS
        | {
            "intermediate_size": ("intermediate_size_mlp",),
            "shared_expert_intermediate_size": ("intermediate_size",),
        },
        builders=(p.chunks_with_rotation, p.sparse_if_listed, b.qk_norm("use_qk_norm", "l2")),
    ),
    "mixtral": Architecture(reads=(*GROUPED, *EXPERTS), keys=MIXTRAL_KEYS, builders=(p.window_everywhere,)),
    "olmoe": Architecture(reads=(*GROUPED, *EXPERTS, "attention_bias"), keys=MIXTRAL_KEYS, fixed={"qk_norm": "full"}),
    "phimoe": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias", "lm_head_bias"),
        keys=MIXTRAL_KEYS,
        fixed={"normalization": "layernorm"},
        builders=(p.window_everywhere,),
    ),
    "qwen2_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys={"attention_bias": ("qkv_bias",)},
        fixed=QKV_BIAS_ONLY | {"shared_expert_gate": True},
        builders=(p.window_below_layer, p.sparse_but_listed),
    ),
    "qwen3_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias"),
        keys={"num_experts": ("num_experts", "num_local_experts")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(p.switched_window, p.sparse_but_listed),
        without_effect=("max_window_layers", "qkv_bias", "shared_expert_intermediate_size", "use_qk_norm"),
    ),
}
