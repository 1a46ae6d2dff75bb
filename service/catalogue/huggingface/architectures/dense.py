"""Types of config without routed experts."""

from collections.abc import Mapping

from service.catalogue.huggingface import branches as b
from service.catalogue.huggingface import layer_patterns as p
from service.catalogue.huggingface.architectures.row import (
    ALL_BIASES,
    DECODER,
    FALCON_KEYS,
    GPT2_KEYS,
    LLAMA,
    MPT_KEYS,
    PARALLEL,
    PLAIN_MLP,
    QKV_BIAS_ONLY,
    Architecture,
)

DENSE: Mapping[str, Architecture] = {
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
    "gptj": Architecture(
        reads=DECODER,
        keys=GPT2_KEYS,
        fixed=PLAIN_MLP | PARALLEL | {"mlp_bias": True, "lm_head_bias": True},
        builders=(b.inner_width("n_inner"),),
    ),
    "llama": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias")),
    "mistral": Architecture(reads=LLAMA, builders=(p.window_everywhere,)),
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
    "qwen2": Architecture(reads=LLAMA, fixed=QKV_BIAS_ONLY | {"attention_bias": True}, builders=(p.window_from_layer,)),
    "qwen3": Architecture(
        reads=(*LLAMA, "attention_bias"), fixed={"qk_norm": "per_head_dim"}, builders=(p.window_from_layer,)
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
