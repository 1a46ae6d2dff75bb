"""Types of Hugging Face configs, one row a `model_type`.

A row of `architectures.json` states under which keys the type has the fields of a Model (`keys`; a field of `reads`
without a key of its own has its own name), which fields the type's code fixes whatever the config has (`fixed`), which
values can be expressed (`demands`), and which keys of the architecture change nothing in this type (`without_effect`).
A row that is a name is another type's row. What a rule reads is in `BUILDERS`. Read in the classes of transformers,
see `defaults.json`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from service.catalogue.huggingface import layers, mixers
from service.catalogue.huggingface.layers import Builder

HYBRID_NAMES = {mixers.LINEAR: "mamba2", "mamba": "mamba2", layers.FULL: layers.FULL, "attention": layers.FULL}
DELTA_NAMES = {mixers.LINEAR: "gated_delta_net", layers.FULL: layers.FULL}
QWEN_LAYERS = mixers.attention_at_every("full_attention_interval", DELTA_NAMES)
QWEN_3_5_DEPTHS = layers.depths_left_out("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")

BUILDERS: Mapping[str, tuple[Builder, ...]] = {
    "cohere": (layers.qk_norm("use_qk_norm", "full"),),
    "cohere2": (layers.window_but_every_nth("sliding_window_pattern"),),
    "cwm": (layers.full_every(4, first=0),),
    "exaone4": (layers.window_but_every_nth("sliding_window_pattern"),),
    "gemma2": (layers.alternating_window,),
    "gemma3_text": (layers.window_but_every_nth("sliding_window_pattern"),),
    "granite_swa": (layers.full_every(4, first=0),),
    "helium": (layers.square_output,),
    "hyperclovax": (layers.post_norms("use_post_norm"),),
    "minicpm3": (layers.value_width,),
    "ministral": (layers.window_if_any,),
    "ministral3": (layers.window_everywhere,),
    "mistral": (layers.window_everywhere,),
    "olmo3": (layers.full_every(4, first=3),),
    "phi3": (layers.window_everywhere,),
    "qwen2": (layers.window_from_layer,),
    "qwen3": (layers.window_from_layer,),
    "smollm3": (layers.window_without_rotation,),
    "stablelm": (layers.parallel_residual(norms=1), layers.qk_norm("qk_layernorm", "full")),
    "vaultgemma": (layers.alternating_window,),
    "biogpt": (layers.positions(extra=2),),
    "bloom": (layers.inner_width("n_inner"),),
    "codegen": (layers.inner_width("n_inner"),),
    "falcon": (layers.falcon_heads, layers.falcon_norms, layers.inner_width("ffn_hidden_size")),
    "gpt2": (layers.inner_width("n_inner"), layers.positions()),
    "gpt_bigcode": (layers.multi_query, layers.inner_width("n_inner"), layers.positions()),
    "gpt_neo": (layers.inner_width("intermediate_size"), layers.positions(), layers.global_and_local),
    "gpt_neox": (layers.parallel_residual(norms=2),),
    "mpt": (layers.mpt_branches,),
    "openai-gpt": (layers.inner_width(), layers.positions()),
    "opt": (layers.positions(extra=2), layers.opt_norms),
    "persimmon": (layers.qk_norm("qk_layernorm", "per_head_dim_biased"),),
    "phi": (layers.qk_norm("qk_layernorm", "per_head_dim_biased"),),
    "starcoder2": (layers.window_everywhere,),
    "afmoe": (
        layers.window_but_every_nth("global_attn_every_n_layers"),
        layers.shared_experts_of("num_shared_experts"),
    ),
    "aria_text": (layers.shared_experts_of("moe_num_shared_experts"),),
    "cohere2_moe": (
        layers.command_with_experts,
        layers.window_after_prefix,
        layers.dense_before_first_k,
        layers.shared_experts_of("num_shared_experts"),
    ),
    "deepseek_v2": (layers.shared_experts, layers.sparse_every_nth),
    "deepseek_v3": (layers.shared_experts, layers.sparse_every_nth),
    "dots1": (layers.shared_experts, layers.window_after_layer),
    "ernie4_5_moe": (layers.sparse_between, layers.shared_experts_of("moe_num_shared_experts")),
    "exaone_moe": (
        layers.window_but_every_nth("sliding_window_pattern"),
        layers.dense_before_first_k,
        layers.shared_experts_of("num_shared_experts"),
    ),
    "flint": (layers.window_between_full_ends, layers.sparse_but_listed),
    "glm4_moe": (layers.shared_experts, layers.qk_norm("use_qk_norm", "per_head_dim")),
    "glm4_moe_lite": (layers.shared_experts, layers.dense_before(1)),
    "gpt_oss": (layers.alternating_window,),
    "granitemoe_swa": (layers.full_every(4, first=0),),
    "hunyuan_v1_moe": (layers.experts_of_hunyuan,),
    "hy_v3": (layers.dense_before(1), layers.shared_experts_of("num_shared_experts", least=1)),
    "kolibri1": (layers.full_every(5, first=4),),
    "llama4_text": (layers.chunks_with_rotation, layers.sparse_if_listed, layers.qk_norm("use_qk_norm", "l2")),
    "mellum": (layers.window_if_listed, layers.dense_before(0)),
    "minimax_m2": (
        mixers.every_layer_attends,
        layers.depths_left_out("num_mtp_modules", "mtp_transformer_layers", "use_mtp"),
    ),
    "mixtral": (layers.window_everywhere,),
    "phimoe": (layers.window_everywhere,),
    "qwen2_moe": (layers.window_below_layer, layers.sparse_but_listed),
    "qwen3_moe": (layers.switched_window, layers.sparse_but_listed),
    "solar_open": (layers.shared_experts,),
    "bamba": (
        mixers.mamba2(mixers.MAMBA2_KEYS, mixers.expanded("mamba_expand")),
        mixers.attention_at("attn_layer_indices", "mamba2"),
    ),
    "falcon_h1": (mixers.falcon_h1_mixer,),
    "falcon_mamba": (mixers.mamba(mixers.MAMBA_KEYS, mixers.width_or("intermediate_size", mixers.expanded("expand"))),),
    "granitemoehybrid": (
        mixers.mamba2(mixers.MAMBA2_KEYS, mixers.expanded("mamba_expand")),
        mixers.listed(HYBRID_NAMES, lambda config: [mixers.LINEAR] * config.field("num_hidden_layers")),
        mixers.granite_shared_mlp,
    ),
    "jamba": (
        mixers.mamba(mixers.JAMBA_KEYS, mixers.expanded("mamba_expand")),
        mixers.attention_every("attn_layer_period", "attn_layer_offset", "mamba"),
        mixers.jamba_experts,
    ),
    "lfm2": (mixers.short_convolution, mixers.lfm2_width, mixers.lfm2_layers),
    "lfm2_moe": (mixers.short_convolution, mixers.lfm2_layers),
    "longcat_flash": (mixers.longcat_layers,),
    "mamba2": (
        mixers.mamba2(
            {
                "state": "state_size",
                "heads": "num_heads",
                "width": "head_dim",
                "groups": "n_groups",
                "taps": "conv_kernel",
                "conv_bias": "use_conv_bias",
                "bias": "use_bias",
            },
            mixers.expanded("expand"),
        ),
    ),
    "minimax": (mixers.minimax_layers,),
    "nemotron_h": (
        mixers.mamba2(
            {
                "state": "ssm_state_size",
                "heads": "mamba_num_heads",
                "groups": "n_groups",
                "taps": "conv_kernel",
                "conv_bias": "use_conv_bias",
                "bias": "use_bias",
            },
            mixers.head_by_head("mamba_num_heads", "mamba_head_dim"),
        ),
        mixers.nemotron_h_layers,
        layers.depths_left_out("num_nextn_predict_layers", "mtp_hybrid_override_pattern", "mtp_layers_block_type"),
    ),
    "olmo_hybrid": (mixers.delta_net, mixers.listed(DELTA_NAMES, mixers.olmo_hybrid_names)),
    "qwen3_5_moe_text": (mixers.delta_net, QWEN_LAYERS, QWEN_3_5_DEPTHS),
    "qwen3_5_text": (mixers.delta_net, QWEN_LAYERS, QWEN_3_5_DEPTHS),
    "qwen3_next": (mixers.delta_net, QWEN_LAYERS, layers.sparse_but_listed),
    "recurrent_gemma": (mixers.recurrent_gemma_mixers,),
    "zamba2": (
        mixers.mamba2(
            {
                "state": "mamba_d_state",
                "heads": "n_mamba_heads",
                "groups": "mamba_ngroups",
                "taps": "mamba_d_conv",
                "conv_bias": "use_conv_bias",
                "bias": "add_bias_linear",
            },
            mixers.expanded("mamba_expand"),
        ),
        mixers.zamba2_block,
        mixers.zamba2_layers,
    ),
}
"""Rules that read the rest of a type's keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The description of one type of config."""

    reads: tuple[str, ...]
    """Fields of Model that a key holds."""
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys of fields with another name."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Fields of Model that the type's code fixes."""
    builders: tuple[Builder, ...] = ()
    """Functions that read the rest."""
    demands: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Supported values by key; any other is refused."""
    without_effect: tuple[str, ...] = ()
    """Keys of the architecture without effect in this type."""


@cache
def architectures() -> Mapping[str, Architecture]:
    """Every type, by its `model_type`."""
    file = files("service.catalogue.huggingface").joinpath("architectures.json")
    data: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    found: dict[str, Architecture] = {}
    for name, row in data["types"].items():
        found[name] = found[row] if isinstance(row, str) else _architecture(name, row, data["groups"])
    return found


def _architecture(name: str, row: Mapping[str, Any], groups: Mapping[str, list[str]]) -> Architecture:
    def frozen(part: str) -> dict[str, Any]:
        values = row.get(part, {}).items()
        return {key: tuple(value) if isinstance(value, list) else value for key, value in values}

    return Architecture(
        reads=tuple(field for read in row["reads"] for field in groups.get(read, [read])),
        keys=frozen("keys"),
        fixed=frozen("fixed"),
        builders=BUILDERS.get(name, ()),
        demands=frozen("demands"),
        without_effect=tuple(row.get("without_effect", ())),
    )
