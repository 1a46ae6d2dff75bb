"""Error-prone keys of a config.json mean what transformers makes of them."""

from typing import Any

import pytest

from service.catalogue.huggingface import import_config
from service.catalogue.huggingface.importing import Imported
from service.errors import Refused
from service.estimator import Model
from tests.catalogue.shapes import attention_of, mlp_of

TINY: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 96,
}


def _model(model_type: str, **keys: Any) -> Model:
    return import_config({"model_type": model_type, **TINY, **keys}).model


@pytest.mark.parametrize("key", ["head_dim", "num_key_value_heads"])
def test_null_is_derived(key: str) -> None:
    assert getattr(_model("llama", **{key: None}), key) is None
    assert _model("mistral", num_key_value_heads=None).key_value_heads == 8


def test_whole_float_is_a_whole_number() -> None:
    model = _model("llama", hidden_size=64.0)
    assert model.hidden_size == 64
    assert isinstance(model.hidden_size, int)


@pytest.mark.parametrize(
    ("model_type", "tied"),
    [("llama", False), ("gemma", True), ("gemma2", True), ("gemma3_text", True), ("cohere", True), ("gpt2", True),
     ("gptj", False), ("bloom", True), ("falcon", True), ("mpt", True), ("qwen2", False), ("smollm3", True),
     ("opt", True), ("gpt_neox", False)],
)  # fmt: skip
def test_head_is_tied_by_default_of_the_type(model_type: str, *, tied: bool) -> None:
    assert import_config({"model_type": model_type}).model.tie_word_embeddings is tied


@pytest.mark.parametrize(
    ("keys", "attention"),
    [
        ({}, "ffff"),
        ({"use_sliding_window": True, "sliding_window": 16}, "ffff"),
        ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 3}, "fffs"),
        ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}, "ssss"),
        ({"sliding_window": 16, "max_window_layers": 0}, "ffff"),
    ],
)
def test_qwen2_window(keys: dict[str, Any], attention: str) -> None:
    model = _model("qwen2", num_key_value_heads=2, **keys)
    assert attention_of(model) == attention
    assert (model.sliding_window == 16) is ("s" in attention)


@pytest.mark.parametrize(
    ("model_type", "keys", "attention"),
    [
        ("gemma2", {"sliding_window": 16}, "sfsf"),
        ("gpt_oss", {"sliding_window": 16}, "sfsf"),
        ("gemma3_text", {"sliding_window": 16}, "ssss"),
        ("gemma3_text", {"sliding_window": 16, "sliding_window_pattern": 2}, "sfsf"),
        ("gemma3_text", {"sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"] * 2}, "fsfs"),
        ("mistral", {"sliding_window": None}, "ffff"),
        ("mistral", {"sliding_window": 16}, "ssss"),
        ("llama4_text", {}, "cccf"),
        ("llama4_text", {"no_rope_layers": [0, 1, 0, 1]}, "fcfc"),
        ("llama4_text", {"no_rope_layer_interval": 2}, "cfcf"),
        ("llama4_text", {"attention_chunk_size": None}, "ffff"),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 16}, "fffs"),
        ("smollm3", {"use_sliding_window": False, "sliding_window": 16}, "ffff"),
        ("qwen2_moe", {"use_sliding_window": True, "max_window_layers": 3}, "sfsf"),
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 16}, "ssss"),
    ],
)
def test_attention_of_each_layer(model_type: str, keys: dict[str, Any], attention: str) -> None:
    assert attention_of(_model(model_type, num_key_value_heads=2, **keys)) == attention


ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


@pytest.mark.parametrize(
    ("model_type", "keys", "mlp"),
    [
        ("qwen3_moe", {}, "ssss"),
        ("qwen3_moe", {"mlp_only_layers": [0, 2]}, "dsds"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "dsds"),
        ("qwen3_moe", {"decoder_sparse_step": 2, "mlp_only_layers": [1]}, "ddds"),
        ("llama4_text", {}, "ssss"),
        ("llama4_text", {"interleave_moe_layer_step": 2}, "dsds"),
        ("llama4_text", {"moe_layers": [0]}, "sddd"),
        ("deepseek_v3", ROUTED, "ddds"),
        ("deepseek_v3", {**ROUTED, "first_k_dense_replace": 0}, "ssss"),
        ("deepseek_v3", {**ROUTED, "first_k_dense_replace": 1, "moe_layer_freq": 2}, "ddsd"),
        ("kimi_k2", {**ROUTED, "first_k_dense_replace": 1}, "dsss"),
        ("glm4_moe", ROUTED, "dsss"),
    ],
)
def test_mlp_of_each_layer(model_type: str, keys: dict[str, Any], mlp: str) -> None:
    model = _model(model_type, **keys)
    assert mlp_of(model) == mlp
    assert (model.intermediate_size is None) is ("d" not in mlp)


def test_shared_experts_are_as_wide_as_all_of_them() -> None:
    assert _model("deepseek_v3", **ROUTED, n_shared_experts=2).shared_expert_intermediate_size == 48
    assert _model("deepseek_v3", **ROUTED, n_shared_experts=None).shared_expert_intermediate_size == 0
    assert _model("llama4_text").shared_expert_intermediate_size == 96
    assert _model("qwen2_moe", shared_expert_intermediate_size=30).shared_expert_gate


def test_multi_token_prediction_is_one_depth_unless_said() -> None:
    assert _model("deepseek_v3", **ROUTED).num_nextn_predict_layers == 1
    assert _model("deepseek_v3", **ROUTED, num_nextn_predict_layers=0).num_nextn_predict_layers == 0
    assert _model("deepseek_v2", **ROUTED).num_nextn_predict_layers == 0


def test_gpt_oss_has_sinks_and_biases_everywhere() -> None:
    model = _model("gpt_oss", num_key_value_heads=2)
    assert (model.attention_sinks, model.router_bias, model.mlp_bias, model.attention_bias) == (True, True, True, True)
    assert model.out_bias


@pytest.mark.parametrize(
    ("keys", "heads", "norms", "parallel"),
    [
        ({}, 1, 1, True),
        ({"multi_query": False}, 8, 1, True),
        ({"multi_query": False, "parallel_attn": False}, 8, 2, False),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2, 2, True),
        ({"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}, 2, 1, True),
        ({"num_kv_heads": 2}, 1, 1, True),
    ],
)
def test_falcon_old_and_new(keys: dict[str, Any], heads: int, norms: int, *, parallel: bool) -> None:
    sizes = {key: value for key, value in TINY.items() if key != "intermediate_size"}
    model = import_config({"model_type": "falcon", **sizes, **keys}).model
    assert (model.key_value_heads, model.norms_per_layer, model.parallel_attention) == (heads, norms, parallel)
    assert model.intermediate_size == 256


def test_opt_norms_positions_and_projection() -> None:
    keys = {key: value for key, value in TINY.items() if key != "intermediate_size"} | {"ffn_dim": 96}
    model = import_config({"model_type": "opt", **keys, "do_layer_norm_before": False, "word_embed_proj_dim": 32}).model
    assert (model.position_embedding_rows, model.final_norm, model.word_embed_proj_dim) == (2050, False, 32)
    same = import_config({"model_type": "opt", **keys, "word_embed_proj_dim": 64}).model
    assert (same.final_norm, same.word_embed_proj_dim) == (True, None)


def test_bloom_has_a_norm_after_its_embedding_and_no_positions() -> None:
    model = import_config({"model_type": "bloom", "n_embed": 64, "n_layer": 2, "num_attention_heads": 4}).model
    assert (model.embedding_norm, model.position_embedding_rows, model.intermediate_size) == (True, 0, 256)
    assert (model.hidden_size, model.num_hidden_layers, model.num_attention_heads) == (64, 2, 4)


def test_dbrx_reads_its_nested_objects() -> None:
    config = {
        "model_type": "dbrx",
        "vocab_size": 99,
        "n_layers": 2,
        "d_model": 64,
        "n_heads": 8,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 80, "moe_num_experts": 3, "moe_top_k": 2, "ffn_act_fn": {"name": "silu"}},
    }
    imported = import_config(config)
    model = imported.model
    assert (model.num_key_value_heads, model.expert_width, model.num_experts, model.num_experts_per_tok) == (
        2,
        80,
        3,
        2,
    )
    assert imported.warnings == ()


def test_mpt_width_and_biases_are_those_of_its_keys_and_said() -> None:
    config = {"model_type": "mpt", "d_model": 64, "n_heads": 8, "n_layers": 2, "vocab_size": 100}
    usual = import_config(config | {"expansion_ratio": 4, "no_bias": True})
    assert (usual.model.intermediate_size, usual.model.normalization) == (256, "layernorm_no_bias")
    other = import_config(config | {"expansion_ratio": 2, "no_bias": False})
    assert (other.model.intermediate_size, other.model.mlp_bias, other.model.attention_bias) == (128, True, True)
    assert any("llm-foundry" in one for one in other.assumptions)


@pytest.mark.parametrize(
    ("model_type", "keys", "kind"),
    [
        ("cohere", {"use_qk_norm": True}, "full"),
        ("cohere", {}, "none"),
        ("olmo2", {}, "full"),
        ("olmoe", {}, "full"),
        ("qwen3", {}, "per_head_dim"),
        ("gemma3_text", {}, "per_head_dim"),
        ("glm4_moe", {"use_qk_norm": True}, "per_head_dim"),
        ("llama4_text", {"use_qk_norm": True}, "l2"),
        ("llama4_text", {"use_qk_norm": False}, "none"),
        ("stablelm", {"qk_layernorm": True}, "full"),
    ],
)
def test_norm_on_queries_and_keys(model_type: str, keys: dict[str, Any], kind: str) -> None:
    assert _model(model_type, num_key_value_heads=2, **keys).qk_norm == kind


def test_stablelm_switches() -> None:
    model = _model("stablelm", num_key_value_heads=2, use_qkv_bias=True, use_parallel_residual=True)
    assert (model.attention_bias, model.out_bias, model.parallel_attention, model.norms_per_layer) == (
        True,
        False,
        True,
        1,
    )
    assert _model("stablelm", num_key_value_heads=2).norms_per_layer == 2


def test_same_model_from_another_spelling_has_the_same_fields() -> None:
    plain = _model("qwen3", num_key_value_heads=2)
    spelled = _model("qwen3", num_key_value_heads=2, layer_types=["full_attention"] * 4, head_dim=128)
    assert spelled == plain


TINY_MODEL: dict[str, Any] = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8}
EXPERTS = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_shared_expert_intermediate_size")


def _imported(model_type: str, **keys: Any) -> Imported:
    return import_config({"model_type": model_type, **TINY_MODEL, **keys})


def test_older_name_of_the_head_width_of_nemotron_h_is_read() -> None:
    imported = _imported("nemotron_h", attention_head_dim=16, hybrid_override_pattern="M-*-")
    assert imported.model.head_dim == 16
    assert imported.warnings == ()


def test_nemotron_h_without_experts_assumes_none() -> None:
    with_experts = " ".join(_imported("nemotron_h", hybrid_override_pattern="MEM*").assumptions)
    without = " ".join(_imported("nemotron_h", hybrid_override_pattern="M-M*").assumptions)
    assert all(key in with_experts for key in EXPERTS)
    assert not any(key in without for key in EXPERTS)


def test_nemotron_h_without_experts_may_still_speak_of_them() -> None:
    imported = _imported("nemotron_h", hybrid_override_pattern="M-M*", n_routed_experts=8, num_experts_per_tok=2)
    assert imported.model.num_experts == 0
    assert imported.warnings == ()


def test_depths_that_are_none_are_not_mentioned() -> None:
    imported = _imported("nemotron_h", num_nextn_predict_layers=0, mtp_hybrid_override_pattern="*E")
    assert imported.warnings == ()
    assert "multi-token" not in " ".join(imported.assumptions)


@pytest.mark.parametrize("key", ["block_types", "_block_types"])
def test_blocks_of_recurrent_gemma_are_read_under_both_names(key: str) -> None:
    model = _imported("recurrent_gemma", **{key: ["attention", "recurrent"]}).model
    assert model.layer_types == ("sliding_attention", "rg_lru")


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("falcon_h1", "attn_layer_indices", [1]),
        ("granitemoehybrid", "normalization_function", "layernorm"),
        ("jamba", "sliding_window", 16),
        ("llama", "add_cross_attention", True),
        ("longcat_flash", "attention_method", "MHA"),
        ("mamba", "rms_norm", False),
        ("mamba2", "rms_norm", False),
        ("minimax_m2", "attn_type_list", [1, 0, 1, 1]),
        ("minimax_m2", "sliding_window", 16),
        ("qwen3_5_text", "attn_output_gate", False),
        ("qwen3_next", "use_sliding_window", True),
    ],
)
def test_another_architecture_than_the_types_is_refused(model_type: str, key: str, value: Any) -> None:
    with pytest.raises(Refused) as refused:
        _imported(model_type, **{key: value})
    assert [(problem.field, problem.code) for problem in refused.value.problems] == [
        (f"model.hf_config.{key}", "unsupported_value")
    ]


@pytest.mark.parametrize(
    ("model_type", "keys"),
    [
        ("gemma2", {"sliding_window_size": 4096}),
        ("gpt2", {"n_special": 0, "predict_special_tokens": True}),
        ("granitemoehybrid", {"init_method": "mup", "normalization_function": "rmsnorm"}),
        ("lfm2", {"block_dim": 64, "block_use_swiglu": True, "conv_dim": 64, "num_heads": 8, "use_pos_enc": True}),
        ("llama", {"is_llama_config": True, "cross_attention_hidden_size": None, "tie_encoder_decoder": False}),
        ("longcat_flash", {"attention_method": "MLA", "mla_scale_kv_lora": True}),
        ("mamba", {"d_inner": 128, "fused_add_norm": True, "pad_vocab_size_multiple": 8, "rms_norm": True}),
        ("mamba2", {"intermediate_size": 128, "norm_before_gate": True, "rms_norm": True}),
        ("minimax_m2", {"attn_type_list": [1, 1, 1, 1], "sliding_window": None}),
        ("minimax_text_01", {"layernorm_mlp_alpha": 3.5, "layernorm_mlp_beta": 1.0}),
        ("qwen3_5_text", {"attn_output_gate": True, "mamba_ssm_dtype": "float32", "output_gate_type": "swish"}),
    ],
)
def test_key_that_changes_nothing_is_not_reported(model_type: str, keys: dict[str, Any]) -> None:
    said, unsaid = import_config({"model_type": model_type, **keys}), import_config({"model_type": model_type})
    assert (said.model, said.warnings) == (unsaid.model, unsaid.warnings)
