"""Types of config with layers that carry a state or a window along the sequence."""

from collections.abc import Mapping
from typing import Any

from service.catalogue.huggingface import layers as p
from service.catalogue.huggingface import mixers as layers
from service.catalogue.huggingface import mixers as m
from service.catalogue.huggingface.architectures.row import (
    DECODER,
    EXPERTS,
    GROUPED,
    LATENT,
    LLAMA,
    MIXTRAL_KEYS,
    Architecture,
)
from service.catalogue.huggingface.layers import depths_left_out

STREAM = ("vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings")
NO_ATTENTION: dict[str, Any] = {"num_attention_heads": 0, "mlp_layer_types": ("none",)}
MAMBA = Architecture(
    reads=STREAM,
    fixed=NO_ATTENTION | {"layer_types": ("mamba",)},
    builders=(m.mamba(m.MAMBA_KEYS, m.width_or("intermediate_size", m.expanded("expand"))),),
    demands={"rms_norm": (None, True)},
    without_effect=(
        *("d_inner", "d_model", "fused_add_norm", "n_layer", "pad_vocab_size_multiple", "ssm_cfg"),
        "time_step_limit",
    ),
)
HYBRID_NAMES = {layers.LINEAR: "mamba2", "mamba": "mamba2", p.FULL: p.FULL, "attention": p.FULL}
DELTA_NAMES = {layers.LINEAR: "gated_delta_net", p.FULL: p.FULL}
QWEN_FIXED: dict[str, Any] = {"qk_norm": "per_head_dim", "attention_gate": "elementwise"}
QWEN_LAYERS = layers.attention_at_every("full_attention_interval", DELTA_NAMES)
QWEN_3_5_DEPTHS = depths_left_out("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
QWEN_3_5_DEMANDS: dict[str, tuple[Any, ...]] = {"attn_output_gate": (None, True)}
QWEN_3_5_WITHOUT_EFFECT = ("mamba_ssm_dtype", "mlp_only_layers", "output_gate_type")
LFM2_WITHOUT_EFFECT = (
    *("block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu"),
    *("block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc"),
)

MINIMAX = Architecture(
    reads=(*GROUPED, *EXPERTS),
    keys=MIXTRAL_KEYS,
    builders=(layers.minimax_layers,),
    demands={"sliding_window": (None,), "shared_intermediate_size": (None, 0)},
    without_effect=("postnorm", "shared_moe_mode", "attn_type_list", "block_size"),
)

HYBRIDS: Mapping[str, Architecture] = {
    "bamba": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        builders=(
            m.mamba2(m.MAMBA2_KEYS, m.expanded("mamba_expand")),
            layers.attention_at("attn_layer_indices", "mamba2"),
        ),
    ),
    "falcon_h1": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        fixed={"layer_types": ("attention_and_mamba2",)},
        builders=(m.falcon_h1_mixer,),
        demands={"attn_layer_indices": (None,)},
        without_effect=("mamba_norm_before_gate", "mamba_use_mlp"),
    ),
    "falcon_mamba": MAMBA,
    "granitemoehybrid": Architecture(
        reads=(*DECODER, "num_key_value_heads", "attention_bias", *EXPERTS),
        keys=MIXTRAL_KEYS,
        builders=(
            m.mamba2(m.MAMBA2_KEYS, m.expanded("mamba_expand")),
            layers.listed(HYBRID_NAMES, lambda config: [layers.LINEAR] * config.field("num_hidden_layers")),
            m.granite_shared_mlp,
        ),
        demands={"normalization_function": (None, "rmsnorm")},
        without_effect=("position_embedding_type",),
    ),
    "jamba": Architecture(
        reads=(*DECODER, "num_key_value_heads", "intermediate_size"),
        fixed={"mixer_norm": True},
        builders=(
            m.mamba(m.JAMBA_KEYS, m.expanded("mamba_expand")),
            layers.attention_every("attn_layer_period", "attn_layer_offset", "mamba"),
            m.jamba_experts,
        ),
        demands={"sliding_window": (None,)},
        without_effect=("layers_block_type", "mamba_inner_layernorms", "calc_logits_for_entire_prompt"),
    ),
    "lfm2": Architecture(
        reads=(*DECODER, "num_key_value_heads"),
        keys={"tie_word_embeddings": ("tie_embedding", "tie_word_embeddings")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(m.short_convolution, m.lfm2_width, layers.lfm2_layers),
        without_effect=LFM2_WITHOUT_EFFECT,
    ),
    "lfm2_moe": Architecture(
        reads=(*DECODER, "num_key_value_heads", "intermediate_size", *EXPERTS, "first_k_dense_replace"),
        keys={
            "tie_word_embeddings": ("tie_embedding", "tie_word_embeddings"),
            "first_k_dense_replace": ("num_dense_layers",),
        },
        fixed={"qk_norm": "per_head_dim"},
        builders=(m.short_convolution, layers.lfm2_layers),
        without_effect=(*LFM2_WITHOUT_EFFECT, "use_expert_bias"),
    ),
    "longcat_flash": Architecture(
        reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias", "zero_expert_num", "router_bias"),
        keys={
            "num_hidden_layers": ("num_layers",),
            "intermediate_size": ("ffn_hidden_size",),
            "num_experts": ("n_routed_experts",),
            "num_experts_per_tok": ("moe_topk",),
            "moe_intermediate_size": ("expert_ffn_hidden_size",),
        },
        fixed={"mlp_layer_types": ("dense_and_sparse", "dense")},
        builders=(layers.longcat_layers,),
        demands={"attention_method": (None, "MLA", "mla")},
        without_effect=(
            "num_key_value_heads", "head_dim", "qk_head_dim", "zero_expert_type", "mla_scale_q_lora",
            "mla_scale_kv_lora",
        ),
    ),
    "mamba": MAMBA,
    "mamba2": Architecture(
        reads=STREAM,
        fixed=NO_ATTENTION | {"layer_types": ("mamba2",)},
        builders=(
            m.mamba2(
                {
                    "state": "state_size", "heads": "num_heads", "width": "head_dim", "groups": "n_groups",
                    "taps": "conv_kernel", "conv_bias": "use_conv_bias", "bias": "use_bias",
                },
                m.expanded("expand"),
            ),
        ),
        demands={"rms_norm": (None, True)},
        without_effect=("intermediate_size", "norm_before_gate", "time_step_limit", "time_step_rank"),
    ),
    "minimax": MINIMAX,
    "minimax_m1": MINIMAX,
    "minimax_text_01": MINIMAX,
    "nemotron_h": Architecture(
        reads=(
            "vocab_size", "hidden_size", "num_attention_heads", "max_position_embeddings", "num_key_value_heads",
            "head_dim", "intermediate_size",
        ),
        keys={
            "head_dim": ("head_dim", "attention_head_dim"),
            "num_experts": ("n_routed_experts",),
            "shared_expert_intermediate_size": ("moe_shared_expert_intermediate_size",),
        },
        fixed={"gated_mlp": False},
        builders=(
            m.mamba2(
                {
                    "state": "ssm_state_size", "heads": "mamba_num_heads", "groups": "n_groups",
                    "taps": "conv_kernel", "conv_bias": "use_conv_bias", "bias": "use_bias",
                },
                m.head_by_head("mamba_num_heads", "mamba_head_dim"),
            ),
            layers.nemotron_h_layers,
            depths_left_out("num_nextn_predict_layers", "mtp_hybrid_override_pattern", "mtp_layers_block_type"),
        ),
        demands={"mlp_bias": (False,), "sliding_window": (None,), "tie_word_embeddings": (False,)},
        without_effect=(
            "num_hidden_layers", "attention_bias", "expand", "n_shared_experts", "mamba_proj_bias", "time_step_rank",
        ),
    ),
    "olmo_hybrid": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"qk_norm": "full"},
        builders=(m.delta_net, layers.listed(DELTA_NAMES, layers.olmo_hybrid_names)),
    ),
    "qwen3_5_moe_text": Architecture(
        reads=(*GROUPED, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        fixed=QWEN_FIXED | {"shared_expert_gate": True},
        builders=(m.delta_net, QWEN_LAYERS, QWEN_3_5_DEPTHS),
        demands=QWEN_3_5_DEMANDS,
        without_effect=QWEN_3_5_WITHOUT_EFFECT,
    ),
    "qwen3_5_text": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed=QWEN_FIXED,
        builders=(m.delta_net, QWEN_LAYERS, QWEN_3_5_DEPTHS),
        demands=QWEN_3_5_DEMANDS,
        without_effect=QWEN_3_5_WITHOUT_EFFECT,
    ),
    "qwen3_next": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        fixed=QWEN_FIXED | {"shared_expert_gate": True},
        builders=(m.delta_net, QWEN_LAYERS, p.sparse_but_listed),
        demands={"use_sliding_window": (None, False)},
    ),
    "recurrent_gemma": Architecture(
        reads=(*DECODER, "num_key_value_heads", "attention_bias", "sliding_window"),
        keys={"sliding_window": ("attention_window_size",)},
        fixed={"attention_out_bias": True, "mlp_bias": True, "conv_bias": True, "mixer_bias": True},
        builders=(layers.recurrent_gemma_mixers,),
        without_effect=("embeddings_scale_by_sqrt_dim", "head_dim"),
    ),
    "zamba2": Architecture(
        reads=(*DECODER, "num_key_value_heads", "mlp_bias", "num_mem_blocks", "adapter_rank"),
        keys={"mlp_bias": ("add_bias_linear",)},
        builders=(
            m.mamba2(
                {
                    "state": "mamba_d_state", "heads": "n_mamba_heads", "groups": "mamba_ngroups",
                    "taps": "mamba_d_conv", "conv_bias": "use_conv_bias", "bias": "add_bias_linear",
                },
                m.expanded("mamba_expand"),
            ),
            m.zamba2_block,
            layers.zamba2_layers,
        ),
        demands={"use_conv_bias": (True,), "tie_word_embeddings": (True,)},
        without_effect=(
            "mamba_headdim", "attention_hidden_size", "attention_head_dim", "kv_channels", "num_query_groups",
            "hybrid_layer_ids", "num_hidden_layers",
        ),
    ),
}  # fmt: skip
