"""Types of config without routed experts whose MLP is plain and whose norms are LayerNorm, as GPT-2's are."""

from collections.abc import Mapping

from service.catalogue.huggingface import branches as b
from service.catalogue.huggingface import layer_patterns as p
from service.catalogue.huggingface import windows as w
from service.catalogue.huggingface.architectures.row import (
    ALL_BIASES,
    DECODER,
    FALCON_KEYS,
    GPT2_KEYS,
    LLAMA,
    MPT_KEYS,
    PARALLEL,
    PLAIN_MLP,
    Architecture,
)

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
