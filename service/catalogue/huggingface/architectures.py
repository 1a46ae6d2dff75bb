"""Types of Hugging Face configs, one row a `model_type`.

A row says under which keys the type has the fields of a Model (`keys`; a field of `reads` that is not there has
its own name), which fields the type's code fixes whatever the config says (`fixed`), what is read by a rule
(`builders`), which values cannot be expressed (`demands`: the only ones that can), and which keys of the
architecture change nothing in this type (`without_effect`). Read in the classes of transformers, see `defaults.json`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.catalogue.huggingface import layers, mixers
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


DENSE: Mapping[str, Architecture] = {
    "apertus": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"gated_mlp": False, "qk_norm": "per_head_dim", "activation_parameters": 2},
        demands={"hidden_act": (None, "xielu"), "mlp_bias": (None, False), "qk_norm": (None, True)},
        without_effect=("post_norm",),
    ),
    "arcee": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias"), fixed={"gated_mlp": False}),
    "cohere": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed=PARALLEL | {"normalization": "layernorm_no_bias"},
        builders=(layers.qk_norm("use_qk_norm", "full"),),
    ),
    "cohere2": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed=PARALLEL | {"normalization": "layernorm_no_bias"},
        builders=(layers.window_but_every_nth("sliding_window_pattern"),),
        demands={
            "use_gated_activation": (None, True),
            "use_parallel_block": (None, True),
            "use_qk_norm": (None, False),
        },
        without_effect=(
            "layer_switch",
            "order_of_interleaved_layers",
            "position_embedding_type",
            "use_embedding_sharing",
            "use_parallel_embedding",
        ),
    ),
    "cwm": Architecture(
        reads=(*LLAMA, "mlp_bias"),
        builders=(layers.full_every(4, first=0),),
        demands={"attention_bias": (None, False)},
    ),
    "ernie4_5": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        keys={"attention_bias": ("use_bias",), "mlp_bias": ("use_bias",)},
    ),
    "exaone4": Architecture(
        reads=LLAMA,
        fixed={"qk_norm": "per_head_dim"},
        builders=(layers.window_but_every_nth("sliding_window_pattern"),),
    ),
    "gemma": Architecture(reads=(*LLAMA, "attention_bias"), demands={"use_bidirectional_attention": (None, False)}),
    "gemma2": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"norms_per_layer": 4},
        builders=(layers.alternating_window,),
        demands={"use_bidirectional_attention": (None, False)},
        without_effect=("sliding_window_size",),
    ),
    "gemma3_text": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"norms_per_layer": 4, "qk_norm": "per_head_dim"},
        builders=(layers.window_but_every_nth("sliding_window_pattern"),),
        demands={"use_bidirectional_attention": (None, False)},
        without_effect=("_sliding_window_pattern",),
    ),
    "glm": Architecture(reads=(*LLAMA, "attention_bias"), fixed=QKV_BIAS_ONLY),
    "glm4": Architecture(reads=(*LLAMA, "attention_bias"), fixed=QKV_BIAS_ONLY | {"norms_per_layer": 4}),
    "granite": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias"), without_effect=("position_embedding_type",)),
    "granite_swa": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        fixed={"attention_sinks": True},
        builders=(layers.full_every(4, first=0),),
    ),
    "helium": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"), fixed=QKV_BIAS_ONLY, builders=(layers.square_output,)
    ),
    "hunyuan_v1_dense": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"qk_norm": "per_head_dim"},
        demands=HUNYUAN_DEMANDS,
        without_effect=HUNYUAN_WITHOUT_EFFECT,
    ),
    "hyperclovax": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"), builders=(layers.post_norms("use_post_norm"),)
    ),
    "internlm2": Architecture(
        reads=(*DECODER, "num_key_value_heads", "intermediate_size", "attention_bias"),
        keys={"attention_bias": ("bias",)},
    ),
    "internlm3": Architecture(
        reads=(*LLAMA, "attention_bias", "attention_out_bias", "mlp_bias"),
        keys={
            "attention_bias": ("qkv_bias", "attention_bias"),
            "attention_out_bias": ("bias", "mlp_bias"),
            "mlp_bias": ("bias", "mlp_bias"),
        },
    ),
    "iquestcoder": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"), demands={"use_sliding_window": (None, False)}
    ),
    "llama": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias")),
    "minicpm3": Architecture(
        reads=(*LATENT_DENSE, "mlp_bias"), builders=(layers.value_width,), without_effect=LATENT_WITHOUT_EFFECT
    ),
    "ministral": Architecture(reads=LLAMA, builders=(layers.window_if_any,)),
    "ministral3": Architecture(reads=LLAMA, builders=(layers.window_everywhere,)),
    "mistral": Architecture(reads=LLAMA, builders=(layers.window_everywhere,)),
    "nanochat": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"gated_mlp": False, "normalization": "nonparametric", "qk_norm": "l2", "embedding_norm": True},
    ),
    "olmo": Architecture(reads=(*LLAMA, "attention_bias"), fixed={"normalization": "nonparametric"}),
    "olmo2": Architecture(reads=(*LLAMA, "attention_bias"), fixed={"qk_norm": "full"}),
    "olmo3": Architecture(
        reads=(*LLAMA, "attention_bias"), fixed={"qk_norm": "full"}, builders=(layers.full_every(4, first=3),)
    ),
    "phi3": Architecture(
        reads=LLAMA,
        builders=(layers.window_everywhere,),
        demands=dict.fromkeys(("attention_bias", "mlp_bias", "lm_head_bias"), (None, False)),
        without_effect=("full_attn_mod",),
    ),
    "qwen2": Architecture(
        reads=LLAMA, fixed=QKV_BIAS_ONLY | {"attention_bias": True}, builders=(layers.window_from_layer,)
    ),
    "qwen3": Architecture(
        reads=(*LLAMA, "attention_bias"), fixed={"qk_norm": "per_head_dim"}, builders=(layers.window_from_layer,)
    ),
    "seed_oss": Architecture(reads=(*LLAMA, "attention_bias", "attention_out_bias", "mlp_bias")),
    "smollm3": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        builders=(layers.window_without_rotation,),
        without_effect=("max_window_layers",),
    ),
    "stablelm": Architecture(
        reads=(*DECODER, "num_key_value_heads", "intermediate_size", "attention_bias"),
        keys={"attention_bias": ("use_qkv_bias",)},
        fixed=QKV_BIAS_ONLY | {"normalization": "layernorm"},
        builders=(layers.parallel_residual(norms=1), layers.qk_norm("qk_layernorm", "full")),
    ),
    "vaultgemma": Architecture(reads=(*LLAMA, "attention_bias"), builders=(layers.alternating_window,)),
    "youtu": Architecture(reads=LATENT_DENSE, without_effect=LATENT_WITHOUT_EFFECT),
}


GPT2 = Architecture(
    reads=DECODER,
    keys=GPT2_KEYS,
    fixed=PLAIN_MLP | ALL_BIASES,
    builders=(layers.inner_width("n_inner"), layers.positions()),
    demands={"add_cross_attention": (False,)},
    without_effect=("n_special", "predict_special_tokens"),
)
GPT_J = Architecture(
    reads=DECODER,
    keys=GPT2_KEYS,
    fixed=PLAIN_MLP | PARALLEL | {"mlp_bias": True, "lm_head_bias": True},
    builders=(layers.inner_width("n_inner"),),
)

PLAIN: Mapping[str, Architecture] = {
    "biogpt": Architecture(
        reads=(*DECODER, "intermediate_size"), fixed=PLAIN_MLP | ALL_BIASES, builders=(layers.positions(extra=2),)
    ),
    "bloom": Architecture(
        reads=DECODER,
        keys={
            "max_position_embeddings": ("seq_length",),
            "hidden_size": ("hidden_size", "n_embed"),
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
        },
        fixed=PLAIN_MLP | ALL_BIASES | {"embedding_norm": True},
        builders=(layers.inner_width("n_inner"),),
    ),
    "codegen": GPT_J,
    "ctrl": Architecture(
        reads=(*DECODER, "intermediate_size"),
        keys=GPT2_KEYS | {"intermediate_size": ("dff",)},
        fixed=PLAIN_MLP | ALL_BIASES | {"lm_head_bias": True},
    ),
    "falcon": Architecture(
        reads=(*DECODER, "attention_bias", "mlp_bias"),
        keys=FALCON_KEYS,
        fixed=PLAIN_MLP,
        builders=(layers.falcon_heads, layers.falcon_norms, layers.inner_width("ffn_hidden_size")),
        without_effect=("alibi",),
    ),
    "gpt2": GPT2,
    "gpt_bigcode": Architecture(
        reads=DECODER,
        keys=GPT2_KEYS,
        fixed=PLAIN_MLP | ALL_BIASES,
        builders=(layers.multi_query, layers.inner_width("n_inner"), layers.positions()),
        demands={"add_cross_attention": (False,)},
        without_effect=(
            "inference_runner",
            "max_batch_size",
            "num_key_value_heads",
            "pad_key_length",
            "pre_allocate_kv_cache",
            "validate_runner_input",
        ),
    ),
    "gpt_neo": Architecture(
        reads=DECODER,
        keys={
            "num_hidden_layers": ("num_layers", "num_hidden_layers"),
            "num_attention_heads": ("num_heads", "num_attention_heads"),
            "sliding_window": ("window_size",),
        },
        fixed=PLAIN_MLP | {"attention_out_bias": True, "mlp_bias": True},
        builders=(layers.inner_width("intermediate_size"), layers.positions(), layers.global_and_local),
    ),
    "gpt_neox": Architecture(
        reads=(*DECODER, "intermediate_size", "attention_bias"),
        fixed=PLAIN_MLP | {"mlp_bias": True},
        builders=(layers.parallel_residual(norms=2),),
    ),
    "gpt-sw3": GPT2,
    "gptj": GPT_J,
    "jais2": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias"), fixed=PLAIN_MLP),
    "mpt": Architecture(
        reads=DECODER,
        keys=MPT_KEYS,
        fixed={"gated_mlp": False},
        builders=(layers.mpt_branches,),
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
    "openai-gpt": Architecture(
        reads=DECODER,
        keys=GPT2_KEYS,
        fixed=PLAIN_MLP | ALL_BIASES | {"final_norm": False},
        builders=(layers.inner_width(), layers.positions()),
    ),
    "opt": Architecture(
        reads=(*DECODER, "intermediate_size", "word_embed_proj_dim", "attention_bias", "mlp_bias"),
        keys={"intermediate_size": ("ffn_dim",), "attention_bias": ("enable_bias",), "mlp_bias": ("enable_bias",)},
        fixed={"gated_mlp": False},
        builders=(layers.positions(extra=2), layers.opt_norms),
    ),
    "persimmon": Architecture(
        reads=(*DECODER, "intermediate_size"),
        fixed=PLAIN_MLP | ALL_BIASES,
        builders=(layers.qk_norm("qk_layernorm", "per_head_dim_biased"),),
    ),
    "phi": Architecture(
        reads=LLAMA,
        fixed=PLAIN_MLP | PARALLEL | ALL_BIASES | {"lm_head_bias": True},
        builders=(layers.qk_norm("qk_layernorm", "per_head_dim_biased"),),
    ),
    "starcoder2": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        keys={"attention_bias": ("use_bias",), "mlp_bias": ("use_bias",)},
        fixed=PLAIN_MLP,
        builders=(layers.window_everywhere,),
        demands={"mlp_type": (None, "default"), "norm_type": (None, "layer_norm")},
    ),
    "xglm": Architecture(
        reads=(*DECODER, "intermediate_size"),
        keys={
            "hidden_size": ("d_model", "hidden_size"),
            "num_hidden_layers": ("num_layers", "num_hidden_layers"),
            "num_attention_heads": ("attention_heads", "num_attention_heads"),
            "intermediate_size": ("ffn_dim",),
        },
        fixed=PLAIN_MLP | ALL_BIASES,
        demands={"add_cross_attention": (False,)},
    ),
}


STREAM = ("vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings")
NO_ATTENTION: dict[str, Any] = {"num_attention_heads": 0, "mlp_layer_types": ("none",)}
MAMBA = Architecture(
    reads=STREAM,
    fixed=NO_ATTENTION | {"layer_types": ("mamba",)},
    builders=(mixers.mamba(mixers.MAMBA_KEYS, mixers.width_or("intermediate_size", mixers.expanded("expand"))),),
    demands={"rms_norm": (None, True)},
    without_effect=(
        *("d_inner", "d_model", "fused_add_norm", "n_layer", "pad_vocab_size_multiple", "ssm_cfg"),
        "time_step_limit",
    ),
)
HYBRID_NAMES = {mixers.LINEAR: "mamba2", "mamba": "mamba2", layers.FULL: layers.FULL, "attention": layers.FULL}
DELTA_NAMES = {mixers.LINEAR: "gated_delta_net", layers.FULL: layers.FULL}
QWEN_FIXED: dict[str, Any] = {"qk_norm": "per_head_dim", "attention_gate": "elementwise"}
QWEN_LAYERS = mixers.attention_at_every("full_attention_interval", DELTA_NAMES)
QWEN_3_5_DEPTHS = layers.depths_left_out("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
QWEN_3_5_DEMANDS: dict[str, tuple[Any, ...]] = {"attn_output_gate": (None, True)}
QWEN_3_5_WITHOUT_EFFECT = ("mamba_ssm_dtype", "mlp_only_layers", "output_gate_type")
LFM2_WITHOUT_EFFECT = (
    *("block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu"),
    *("block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc"),
)

MINIMAX = Architecture(
    reads=(*GROUPED, *EXPERTS),
    keys=MIXTRAL_KEYS,
    builders=(mixers.minimax_layers,),
    demands={"sliding_window": (None,), "shared_intermediate_size": (None, 0)},
    without_effect=("postnorm", "shared_moe_mode", "attn_type_list", "block_size"),
)

HYBRIDS: Mapping[str, Architecture] = {
    "bamba": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        builders=(
            mixers.mamba2(mixers.MAMBA2_KEYS, mixers.expanded("mamba_expand")),
            mixers.attention_at("attn_layer_indices", "mamba2"),
        ),
    ),
    "falcon_h1": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        fixed={"layer_types": ("attention_and_mamba2",)},
        builders=(mixers.falcon_h1_mixer,),
        demands={"attn_layer_indices": (None,)},
        without_effect=("mamba_norm_before_gate", "mamba_use_mlp"),
    ),
    "falcon_mamba": MAMBA,
    "granitemoehybrid": Architecture(
        reads=(*DECODER, "num_key_value_heads", "attention_bias", *EXPERTS),
        keys=MIXTRAL_KEYS,
        builders=(
            mixers.mamba2(mixers.MAMBA2_KEYS, mixers.expanded("mamba_expand")),
            mixers.listed(HYBRID_NAMES, lambda config: [mixers.LINEAR] * config.field("num_hidden_layers")),
            mixers.granite_shared_mlp,
        ),
        demands={"normalization_function": (None, "rmsnorm")},
        without_effect=("position_embedding_type",),
    ),
    "jamba": Architecture(
        reads=(*DECODER, "num_key_value_heads", "intermediate_size"),
        fixed={"mixer_norm": True},
        builders=(
            mixers.mamba(mixers.JAMBA_KEYS, mixers.expanded("mamba_expand")),
            mixers.attention_every("attn_layer_period", "attn_layer_offset", "mamba"),
            mixers.jamba_experts,
        ),
        demands={"sliding_window": (None,)},
        without_effect=("layers_block_type", "mamba_inner_layernorms", "calc_logits_for_entire_prompt"),
    ),
    "lfm2": Architecture(
        reads=(*DECODER, "num_key_value_heads"),
        keys={"tie_word_embeddings": ("tie_embedding", "tie_word_embeddings")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(mixers.short_convolution, mixers.lfm2_width, mixers.lfm2_layers),
        without_effect=LFM2_WITHOUT_EFFECT,
    ),
    "lfm2_moe": Architecture(
        reads=(*DECODER, "num_key_value_heads", "intermediate_size", *EXPERTS, "first_k_dense_replace"),
        keys={
            "tie_word_embeddings": ("tie_embedding", "tie_word_embeddings"),
            "first_k_dense_replace": ("num_dense_layers",),
        },
        fixed={"qk_norm": "per_head_dim"},
        builders=(mixers.short_convolution, mixers.lfm2_layers),
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
        builders=(mixers.longcat_layers,),
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
            mixers.mamba2(
                {
                    "state": "state_size", "heads": "num_heads", "width": "head_dim", "groups": "n_groups",
                    "taps": "conv_kernel", "conv_bias": "use_conv_bias", "bias": "use_bias",
                },
                mixers.expanded("expand"),
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
            mixers.mamba2(
                {
                    "state": "ssm_state_size", "heads": "mamba_num_heads", "groups": "n_groups",
                    "taps": "conv_kernel", "conv_bias": "use_conv_bias", "bias": "use_bias",
                },
                mixers.head_by_head("mamba_num_heads", "mamba_head_dim"),
            ),
            mixers.nemotron_h_layers,
            layers.depths_left_out("num_nextn_predict_layers", "mtp_hybrid_override_pattern", "mtp_layers_block_type"),
        ),
        demands={"mlp_bias": (False,), "sliding_window": (None,), "tie_word_embeddings": (False,)},
        without_effect=(
            "num_hidden_layers", "attention_bias", "expand", "n_shared_experts", "mamba_proj_bias", "time_step_rank",
        ),
    ),
    "olmo_hybrid": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"qk_norm": "full"},
        builders=(mixers.delta_net, mixers.listed(DELTA_NAMES, mixers.olmo_hybrid_names)),
    ),
    "qwen3_5_moe_text": Architecture(
        reads=(*GROUPED, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        fixed=QWEN_FIXED | {"shared_expert_gate": True},
        builders=(mixers.delta_net, QWEN_LAYERS, QWEN_3_5_DEPTHS),
        demands=QWEN_3_5_DEMANDS,
        without_effect=QWEN_3_5_WITHOUT_EFFECT,
    ),
    "qwen3_5_text": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed=QWEN_FIXED,
        builders=(mixers.delta_net, QWEN_LAYERS, QWEN_3_5_DEPTHS),
        demands=QWEN_3_5_DEMANDS,
        without_effect=QWEN_3_5_WITHOUT_EFFECT,
    ),
    "qwen3_next": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        fixed=QWEN_FIXED | {"shared_expert_gate": True},
        builders=(mixers.delta_net, QWEN_LAYERS, layers.sparse_but_listed),
        demands={"use_sliding_window": (None, False)},
    ),
    "recurrent_gemma": Architecture(
        reads=(*DECODER, "num_key_value_heads", "attention_bias", "sliding_window"),
        keys={"sliding_window": ("attention_window_size",)},
        fixed={"attention_out_bias": True, "mlp_bias": True, "conv_bias": True, "mixer_bias": True},
        builders=(mixers.recurrent_gemma_mixers,),
        without_effect=("embeddings_scale_by_sqrt_dim", "head_dim"),
    ),
    "zamba2": Architecture(
        reads=(*DECODER, "num_key_value_heads", "mlp_bias", "num_mem_blocks", "adapter_rank"),
        keys={"mlp_bias": ("add_bias_linear",)},
        builders=(
            mixers.mamba2(
                {
                    "state": "mamba_d_state", "heads": "n_mamba_heads", "groups": "mamba_ngroups",
                    "taps": "mamba_d_conv", "conv_bias": "use_conv_bias", "bias": "add_bias_linear",
                },
                mixers.expanded("mamba_expand"),
            ),
            mixers.zamba2_block,
            mixers.zamba2_layers,
        ),
        demands={"use_conv_bias": (True,), "tie_word_embeddings": (True,)},
        without_effect=(
            "mamba_headdim", "attention_hidden_size", "attention_head_dim", "kv_channels", "num_query_groups",
            "hybrid_layer_ids", "num_hidden_layers",
        ),
    ),
}  # fmt: skip


DEEPSEEK_V3 = Architecture(
    reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias", "first_k_dense_replace", "num_nextn_predict_layers"),
    keys=ROUTED_KEYS,
    builders=(layers.shared_experts, layers.sparse_every_nth),
    without_effect=LATENT_WITHOUT_EFFECT,
)

SPARSE: Mapping[str, Architecture] = {
    "afmoe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias", "first_k_dense_replace"),
        keys={"first_k_dense_replace": ("num_dense_layers",)},
        fixed={"qk_norm": "per_head_dim", "norms_per_layer": 4, "attention_gate": "elementwise"},
        builders=(
            layers.window_but_every_nth("global_attn_every_n_layers"),
            layers.shared_experts_of("num_shared_experts"),
        ),
        demands={"attention_bias": (False,)},
        without_effect=(
            *("load_balance_coeff", "mup_enabled", "num_expert_groups", "num_limited_groups", "route_norm"),
            *("route_scale", "score_func", "use_grouped_mm"),
        ),
    ),
    "aria_text": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=MIXTRAL_KEYS | {"num_experts": ("moe_num_experts",), "num_experts_per_tok": ("moe_topk",)},
        builders=(layers.shared_experts_of("moe_num_shared_experts"),),
        demands={"mlp_bias": (False,)},
    ),
    "cohere2_moe": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys={"moe_intermediate_size": ("intermediate_size",)},
        fixed=PARALLEL,
        builders=(
            layers.command_with_experts,
            layers.window_after_prefix,
            layers.dense_before_first_k,
            layers.shared_experts_of("num_shared_experts"),
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
        builders=(layers.shared_experts, layers.sparse_every_nth),
        demands={"mlp_bias": (False,)},
        without_effect=LATENT_WITHOUT_EFFECT,
    ),
    "deepseek_v3": DEEPSEEK_V3,
    "dots1": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias", "first_k_dense_replace"),
        keys=ROUTED_KEYS,
        fixed={"qk_norm": "per_head_dim"},
        builders=(layers.shared_experts, layers.window_after_layer),
        demands={"moe_layer_freq": (None, 1)},
    ),
    "ernie4_5_moe": Architecture(
        reads=(*LLAMA, *EXPERTS),
        keys={
            "num_experts": ("moe_num_experts", "num_experts"),
            "num_experts_per_tok": ("moe_k", "num_experts_per_tok"),
        },
        builders=(layers.sparse_between, layers.shared_experts_of("moe_num_shared_experts")),
        demands={"use_bias": (False,)},
        without_effect=("moe_capacity", "moe_gate", "moe_use_aux_free"),
    ),
    "exaone_moe": Architecture(
        reads=(*LLAMA, *EXPERTS),
        fixed={"qk_norm": "per_head_dim"},
        builders=(
            layers.window_but_every_nth("sliding_window_pattern"),
            layers.dense_before_first_k,
            layers.shared_experts_of("num_shared_experts"),
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
        builders=(layers.window_between_full_ends, layers.sparse_but_listed),
    ),
    "glm4_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias", "first_k_dense_replace", "num_nextn_predict_layers"),
        keys=ROUTED_KEYS,
        fixed=QKV_BIAS_ONLY,
        builders=(layers.shared_experts, layers.qk_norm("use_qk_norm", "per_head_dim")),
    ),
    "glm4_moe_lite": Architecture(
        reads=(*LATENT, "v_head_dim", *EXPERTS, "attention_bias"),
        keys=ROUTED_KEYS | {"qk_rope_head_dim": ("qk_rope_head_dim", "head_dim")},
        builders=(layers.shared_experts, layers.dense_before(1)),
        demands={"first_k_dense_replace": (None, 1)},
        without_effect=("num_key_value_heads", "qk_head_dim"),
    ),
    "gpt_oss": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=MIXTRAL_KEYS | {"num_experts_per_tok": ("num_experts_per_tok", "experts_per_token")},
        fixed={"mlp_bias": True, "router_bias": True, "attention_sinks": True},
        builders=(layers.alternating_window,),
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
        builders=(layers.full_every(4, first=0),),
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
        builders=(layers.experts_of_hunyuan,),
        demands=HUNYUAN_DEMANDS | {"moe_layer_num_skipped": (None, 0), "use_mixed_mlp_moe": (None, True)},
        without_effect=HUNYUAN_WITHOUT_EFFECT,
    ),
    "hy_v3": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias"),
        keys={"num_experts": ("num_experts", "num_local_experts")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(layers.dense_before(1), layers.shared_experts_of("num_shared_experts", least=1)),
        demands={"first_k_dense_replace": (None, 1), "mlp_bias": (False,)},
    ),
    "kimi_k2": DEEPSEEK_V3,
    "kolibri1": Architecture(
        reads=(*GROUPED, *EXPERTS, "shared_expert_intermediate_size"),
        keys={"num_experts": ("num_local_experts", "num_experts")},
        fixed={"qk_norm": "per_head_dim", "norms_per_layer": 4},
        builders=(layers.full_every(5, first=4),),
    ),
    "llama4_text": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys=LOCAL_KEYS
        | {
            "intermediate_size": ("intermediate_size_mlp",),
            "shared_expert_intermediate_size": ("intermediate_size",),
        },
        builders=(layers.chunks_with_rotation, layers.sparse_if_listed, layers.qk_norm("use_qk_norm", "l2")),
        without_effect=("nope_layer_interval",),
    ),
    "mellum": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias"),
        keys={"num_experts": ("num_local_experts", "num_experts")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(layers.window_if_listed, layers.dense_before(0)),
        demands={"num_nextn_predict_layers": (None, 0)},
        without_effect=("mtp_layer_types", "mtp_mlp_layer_types"),
    ),
    "minimax_m2": Architecture(
        reads=(*GROUPED, *EXPERTS),
        keys=MIXTRAL_KEYS,
        fixed={"qk_norm": "full"},
        builders=(
            mixers.every_layer_attends,
            layers.depths_left_out("num_mtp_modules", "mtp_transformer_layers", "use_mtp"),
        ),
        demands={"use_qk_norm": (None, True), "shared_intermediate_size": (None, 0), "sliding_window": (None,)},
        without_effect=("qk_norm_type", "use_routing_bias"),
    ),
    "mixtral": Architecture(reads=(*GROUPED, *EXPERTS), keys=MIXTRAL_KEYS, builders=(layers.window_everywhere,)),
    "olmoe": Architecture(reads=(*GROUPED, *EXPERTS, "attention_bias"), keys=MIXTRAL_KEYS, fixed={"qk_norm": "full"}),
    "phimoe": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias", "lm_head_bias"),
        keys=LOCAL_KEYS,
        fixed={"normalization": "layernorm"},
        builders=(layers.window_everywhere,),
    ),
    "qwen2_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "shared_expert_intermediate_size", "attention_bias"),
        keys={"attention_bias": ("qkv_bias",)},
        fixed=QKV_BIAS_ONLY | {"shared_expert_gate": True},
        builders=(layers.window_below_layer, layers.sparse_but_listed),
    ),
    "qwen3_moe": Architecture(
        reads=(*LLAMA, *EXPERTS, "attention_bias"),
        keys={"num_experts": ("num_experts", "num_local_experts")},
        fixed={"qk_norm": "per_head_dim"},
        builders=(layers.switched_window, layers.sparse_but_listed),
        without_effect=("max_window_layers", "qkv_bias", "shared_expert_intermediate_size", "use_qk_norm"),
    ),
    "solar_open": Architecture(
        reads=(*GROUPED, *EXPERTS, "attention_bias"),
        keys=ROUTED_KEYS,
        fixed=QKV_BIAS_ONLY,
        builders=(layers.shared_experts,),
        demands={"first_k_dense_replace": (None, 0)},
    ),
}

ARCHITECTURES: Mapping[str, Architecture] = {**DENSE, **PLAIN, **SPARSE, **HYBRIDS}
