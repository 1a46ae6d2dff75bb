"""Types of config with routed experts."""

from collections.abc import Mapping

from service.catalogue.huggingface import layers as b
from service.catalogue.huggingface import layers as p
from service.catalogue.huggingface import layers as s
from service.catalogue.huggingface import layers as w
from service.catalogue.huggingface.architectures.row import (
    DECODER,
    EXPERTS,
    GRANITE_KEYS,
    GROUPED,
    HUNYUAN_DEMANDS,
    HUNYUAN_WITHOUT_EFFECT,
    LATENT,
    LATENT_WITHOUT_EFFECT,
    LLAMA,
    LOCAL_KEYS,
    MIXTRAL_KEYS,
    MPT_KEYS,
    PARALLEL,
    QKV_BIAS_ONLY,
    ROUTED_KEYS,
    Architecture,
)
from service.catalogue.huggingface.layers import depths_left_out
from service.catalogue.huggingface.mixers import every_layer_attends

DEEPSEEK_V3 = Architecture(
    reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias", "first_k_dense_replace", "num_nextn_predict_layers"),
    keys=ROUTED_KEYS,
    builders=(b.shared_experts, p.sparse_every_nth),
    without_effect=LATENT_WITHOUT_EFFECT,
)

SPARSE: Mapping[str, Architecture] = {
    "afmoe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias", "first_k_dense_replace"),
        keys={"first_k_dense_replace": ("num_dense_layers",)},
        fixed={"qk_norm": "per_head_dim", "norms_per_layer": 4, "attention_gate": "elementwise"},
        builders=(w.window_but_every_nth("global_attn_every_n_layers"), s.shared_experts_of("num_shared_experts")),
        demands={"attention_bias": (False,)},
        without_effect=(
            *("load_balance_coeff", "mup_enabled", "num_expert_groups", "num_limited_groups", "route_norm"),
            *("route_scale", "score_func", "use_grouped_mm"),
        ),
    ),
    "aria_text": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=MIXTRAL_KEYS | {"num_experts": ("moe_num_experts",), "num_experts_per_tok": ("moe_topk",)},
        builders=(s.shared_experts_of("moe_num_shared_experts"),),
        demands={"mlp_bias": (False,)},
    ),
    "cohere2_moe": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys={"moe_intermediate_size": ("intermediate_size",)},
        fixed=PARALLEL,
        builders=(
            b.command_with_experts,
            w.window_after_prefix,
            s.dense_before_first_k,
            s.shared_experts_of("num_shared_experts"),
        ),
        without_effect=("expert_selection_fn", "shared_expert_combination_strategy"),
    ),
    "dbrx": Architecture(
        reads=(*DECODER, "num_key_value_heads", *EXPERTS),
        keys=MPT_KEYS
        | {
            "hidden_size": ("d_model",),
            "num_key_value_heads": ("attn_config.kv_n_heads",),
            "num_experts": ("ffn_config.moe_num_experts",),
            "num_experts_per_tok": ("ffn_config.moe_top_k",),
            "moe_intermediate_size": ("ffn_config.ffn_hidden_size",),
        },
        fixed={"normalization": "layernorm_no_bias"},
        without_effect=("num_key_value_heads",),
    ),
    "deepseek_v2": Architecture(
        reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias", "first_k_dense_replace"),
        keys=ROUTED_KEYS | {"num_experts": ("n_routed_experts", "num_experts")},
        builders=(b.shared_experts, p.sparse_every_nth),
        demands={"mlp_bias": (False,)},
        without_effect=LATENT_WITHOUT_EFFECT,
    ),
    "deepseek_v3": DEEPSEEK_V3,
    "dots1": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias", "first_k_dense_replace"),
        keys=ROUTED_KEYS,
        fixed={"qk_norm": "per_head_dim"},
        builders=(b.shared_experts, w.window_after_layer),
        demands={"moe_layer_freq": (None, 1)},
    ),
    "ernie4_5_moe": Architecture(
        reads=(*LLAMA, *EXPERTS),
        keys={
            "num_experts": ("moe_num_experts", "num_experts"),
            "num_experts_per_tok": ("moe_k", "num_experts_per_tok"),
        },
        builders=(s.sparse_between, s.shared_experts_of("moe_num_shared_experts")),
        demands={"use_bias": (False,)},
        without_effect=("moe_capacity", "moe_gate", "moe_use_aux_free"),
    ),
    "exaone_moe": Architecture(
        reads=(*LLAMA, *EXPERTS),
        fixed={"qk_norm": "per_head_dim"},
        builders=(
            w.window_but_every_nth("sliding_window_pattern"),
            s.dense_before_first_k,
            s.shared_experts_of("num_shared_experts"),
        ),
    ),
    "flex_olmo": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=MIXTRAL_KEYS | {"num_experts": ("num_experts", "num_local_experts")},
        fixed={"qk_norm": "full"},
    ),
    "flint": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        fixed={"qk_norm": "per_head_dim", "attention_sinks": True},
        builders=(w.window_between_full_ends, p.sparse_but_listed),
    ),
    "glm4_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias", "first_k_dense_replace", "num_nextn_predict_layers"),
        keys=ROUTED_KEYS,
        fixed=QKV_BIAS_ONLY,
        builders=(b.shared_experts, b.qk_norm("use_qk_norm", "per_head_dim")),
    ),
    "glm4_moe_lite": Architecture(
        reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias"),
        keys=ROUTED_KEYS | {"qk_rope_head_dim": ("qk_rope_head_dim", "head_dim")},
        builders=(b.shared_experts, s.dense_before(1)),
        demands={"first_k_dense_replace": (None, 1)},
        without_effect=("num_key_value_heads", "qk_head_dim"),
    ),
    "gpt_oss": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=MIXTRAL_KEYS | {"num_experts_per_tok": ("num_experts_per_tok", "experts_per_token")},
        fixed={"mlp_bias": True, "router_bias": True, "attention_sinks": True},
        builders=(p.alternating_window,),
    ),
    "granitemoe": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=LOCAL_KEYS,
        without_effect=("position_embedding_type",),
    ),
    "granitemoe_swa": Architecture(
        reads=(*GROUPED, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys=GRANITE_KEYS,
        fixed={"attention_sinks": True},
        builders=(w.full_every(4, first=0),),
    ),
    "granitemoeshared": Architecture(
        reads=(*GROUPED, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys=GRANITE_KEYS,
        without_effect=("position_embedding_type",),
    ),
    "hunyuan_v1_moe": Architecture(
        reads=(*GROUPED, "num_experts", "moe_intermediate_size", "attention_bias"),
        keys={
            "num_experts": ("num_experts", "num_local_experts"),
            "moe_intermediate_size": ("intermediate_size",),
        },
        fixed={"qk_norm": "per_head_dim"},
        builders=(s.experts_of_hunyuan,),
        demands=HUNYUAN_DEMANDS | {"moe_layer_num_skipped": (None, 0), "use_mixed_mlp_moe": (None, True)},
        without_effect=HUNYUAN_WITHOUT_EFFECT,
    ),
    "hy_v3": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias"),
        keys={"num_experts": ("num_experts", "num_local_experts")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(s.dense_before(1), s.shared_experts_of("num_shared_experts", least=1)),
        demands={"first_k_dense_replace": (None, 1), "mlp_bias": (False,)},
    ),
    "kimi_k2": DEEPSEEK_V3,
    "kolibri1": Architecture(
        reads=(*GROUPED, *EXPERTS, "shared_expert_intermediate_size"),
        keys={"num_experts": ("num_local_experts", "num_experts")},
        fixed={"qk_norm": "per_head_dim", "norms_per_layer": 4},
        builders=(w.full_every(5, first=4),),
    ),
    "llama4_text": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys=LOCAL_KEYS
        | {
            "intermediate_size": ("intermediate_size_mlp",),
            "shared_expert_intermediate_size": ("intermediate_size",),
        },
        builders=(p.chunks_with_rotation, p.sparse_if_listed, b.qk_norm("use_qk_norm", "l2")),
        without_effect=("nope_layer_interval",),
    ),
    "mellum": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias"),
        keys={"num_experts": ("num_local_experts", "num_experts")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(w.window_if_listed, s.dense_before(0)),
        demands={"num_nextn_predict_layers": (None, 0)},
        without_effect=("mtp_layer_types", "mtp_mlp_layer_types"),
    ),
    "minimax_m2": Architecture(
        reads=(*GROUPED, *EXPERTS),
        keys=MIXTRAL_KEYS,
        fixed={"qk_norm": "full"},
        builders=(every_layer_attends, depths_left_out("num_mtp_modules", "mtp_transformer_layers", "use_mtp")),
        demands={"use_qk_norm": (None, True), "shared_intermediate_size": (None, 0), "sliding_window": (None,)},
        without_effect=("qk_norm_type", "use_routing_bias"),
    ),
    "mixtral": Architecture(reads=(*GROUPED, *EXPERTS), keys=MIXTRAL_KEYS, builders=(p.window_everywhere,)),
    "olmoe": Architecture(reads=(*GROUPED, *EXPERTS, "attention_bias"), keys=MIXTRAL_KEYS, fixed={"qk_norm": "full"}),
    "phimoe": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias", "lm_head_bias"),
        keys=LOCAL_KEYS,
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
    "solar_open": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=ROUTED_KEYS,
        fixed=QKV_BIAS_ONLY,
        builders=(b.shared_experts,),
        demands={"first_k_dense_replace": (None, 0)},
    ),
}
