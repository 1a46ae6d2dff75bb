"""Types of config without routed experts: built like Llama, or with plain MLPs and LayerNorm."""

from collections.abc import Mapping

from service.catalogue.huggingface import layers as b
from service.catalogue.huggingface import layers as p
from service.catalogue.huggingface import layers as w
from service.catalogue.huggingface.architectures.row import (
    ALL_BIASES,
    DECODER,
    FALCON_KEYS,
    GPT2_KEYS,
    HUNYUAN_DEMANDS,
    HUNYUAN_WITHOUT_EFFECT,
    LATENT_DENSE,
    LATENT_WITHOUT_EFFECT,
    LLAMA,
    MPT_KEYS,
    PARALLEL,
    PLAIN_MLP,
    QKV_BIAS_ONLY,
    Architecture,
)

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
        builders=(b.qk_norm("use_qk_norm", "full"),),
    ),
    "cohere2": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed=PARALLEL | {"normalization": "layernorm_no_bias"},
        builders=(w.window_but_every_nth("sliding_window_pattern"),),
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
        builders=(w.full_every(4, first=0),),
        demands={"attention_bias": (None, False)},
    ),
    "ernie4_5": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        keys={"attention_bias": ("use_bias",), "mlp_bias": ("use_bias",)},
    ),
    "exaone4": Architecture(
        reads=LLAMA, fixed={"qk_norm": "per_head_dim"}, builders=(w.window_but_every_nth("sliding_window_pattern"),)
    ),
    "gemma": Architecture(reads=(*LLAMA, "attention_bias"), demands={"use_bidirectional_attention": (None, False)}),
    "gemma2": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"norms_per_layer": 4},
        builders=(p.alternating_window,),
        demands={"use_bidirectional_attention": (None, False)},
        without_effect=("sliding_window_size",),
    ),
    "gemma3_text": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"norms_per_layer": 4, "qk_norm": "per_head_dim"},
        builders=(w.window_but_every_nth("sliding_window_pattern"),),
        demands={"use_bidirectional_attention": (None, False)},
        without_effect=("_sliding_window_pattern",),
    ),
    "glm": Architecture(reads=(*LLAMA, "attention_bias"), fixed=QKV_BIAS_ONLY),
    "glm4": Architecture(reads=(*LLAMA, "attention_bias"), fixed=QKV_BIAS_ONLY | {"norms_per_layer": 4}),
    "granite": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias"), without_effect=("position_embedding_type",)),
    "granite_swa": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        fixed={"attention_sinks": True},
        builders=(w.full_every(4, first=0),),
    ),
    "helium": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"), fixed=QKV_BIAS_ONLY, builders=(b.square_output,)
    ),
    "hunyuan_v1_dense": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"qk_norm": "per_head_dim"},
        demands=HUNYUAN_DEMANDS,
        without_effect=HUNYUAN_WITHOUT_EFFECT,
    ),
    "hyperclovax": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"), builders=(b.post_norms("use_post_norm"),)
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
        reads=(*LATENT_DENSE, "mlp_bias"), builders=(b.value_width,), without_effect=LATENT_WITHOUT_EFFECT
    ),
    "ministral": Architecture(reads=LLAMA, builders=(w.window_if_any,)),
    "ministral3": Architecture(reads=LLAMA, builders=(p.window_everywhere,)),
    "mistral": Architecture(reads=LLAMA, builders=(p.window_everywhere,)),
    "nanochat": Architecture(
        reads=(*LLAMA, "attention_bias"),
        fixed={"gated_mlp": False, "normalization": "nonparametric", "qk_norm": "l2", "embedding_norm": True},
    ),
    "olmo": Architecture(reads=(*LLAMA, "attention_bias"), fixed={"normalization": "nonparametric"}),
    "olmo2": Architecture(reads=(*LLAMA, "attention_bias"), fixed={"qk_norm": "full"}),
    "olmo3": Architecture(
        reads=(*LLAMA, "attention_bias"), fixed={"qk_norm": "full"}, builders=(w.full_every(4, first=3),)
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
    "seed_oss": Architecture(reads=(*LLAMA, "attention_bias", "attention_out_bias", "mlp_bias")),
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
    "vaultgemma": Architecture(reads=(*LLAMA, "attention_bias"), builders=(p.alternating_window,)),
    "youtu": Architecture(reads=LATENT_DENSE, without_effect=LATENT_WITHOUT_EFFECT),
}


GPT2 = Architecture(
    reads=DECODER,
    keys=GPT2_KEYS,
    fixed=PLAIN_MLP | ALL_BIASES,
    builders=(b.inner_width("n_inner"), b.positions()),
    demands={"add_cross_attention": (False,)},
    without_effect=("n_special", "predict_special_tokens"),
)
GPT_J = Architecture(
    reads=DECODER,
    keys=GPT2_KEYS,
    fixed=PLAIN_MLP | PARALLEL | {"mlp_bias": True, "lm_head_bias": True},
    builders=(b.inner_width("n_inner"),),
)

PLAIN: Mapping[str, Architecture] = {
    "biogpt": Architecture(
        reads=(*DECODER, "intermediate_size"), fixed=PLAIN_MLP | ALL_BIASES, builders=(b.positions(extra=2),)
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
        builders=(b.inner_width("n_inner"),),
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
        builders=(b.falcon_heads, b.falcon_norms, b.inner_width("ffn_hidden_size")),
        without_effect=("alibi",),
    ),
    "gpt2": GPT2,
    "gpt_bigcode": Architecture(
        reads=DECODER,
        keys=GPT2_KEYS,
        fixed=PLAIN_MLP | ALL_BIASES,
        builders=(b.multi_query, b.inner_width("n_inner"), b.positions()),
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
        builders=(b.inner_width("intermediate_size"), b.positions(), w.global_and_local),
    ),
    "gpt_neox": Architecture(
        reads=(*DECODER, "intermediate_size", "attention_bias"),
        fixed=PLAIN_MLP | {"mlp_bias": True},
        builders=(b.parallel_residual(norms=2),),
    ),
    "gpt-sw3": GPT2,
    "gptj": GPT_J,
    "jais2": Architecture(reads=(*LLAMA, "attention_bias", "mlp_bias"), fixed=PLAIN_MLP),
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
    "openai-gpt": Architecture(
        reads=DECODER,
        keys=GPT2_KEYS,
        fixed=PLAIN_MLP | ALL_BIASES | {"final_norm": False},
        builders=(b.inner_width(), b.positions()),
    ),
    "opt": Architecture(
        reads=(*DECODER, "intermediate_size", "word_embed_proj_dim", "attention_bias", "mlp_bias"),
        keys={"intermediate_size": ("ffn_dim",), "attention_bias": ("enable_bias",), "mlp_bias": ("enable_bias",)},
        fixed={"gated_mlp": False},
        builders=(b.positions(extra=2), b.opt_norms),
    ),
    "persimmon": Architecture(
        reads=(*DECODER, "intermediate_size"),
        fixed=PLAIN_MLP | ALL_BIASES,
        builders=(b.qk_norm("qk_layernorm", "per_head_dim_biased"),),
    ),
    "phi": Architecture(
        reads=LLAMA,
        fixed=PLAIN_MLP | PARALLEL | ALL_BIASES | {"lm_head_bias": True},
        builders=(b.qk_norm("qk_layernorm", "per_head_dim_biased"),),
    ),
    "starcoder2": Architecture(
        reads=(*LLAMA, "attention_bias", "mlp_bias"),
        keys={"attention_bias": ("use_bias",), "mlp_bias": ("use_bias",)},
        fixed=PLAIN_MLP,
        builders=(p.window_everywhere,),
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
