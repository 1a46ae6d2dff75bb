"""Error-prone keys of a config.json mean what transformers makes of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.catalogue.huggingface import import_config
from service.catalogue.huggingface.importing import Imported
from service.errors import Refused
from service.estimator import Model
from tests.catalogue.shapes import attention_of, mlp_of, problem_of

CONFIGS: dict[str, Any] = json.loads(Path(__file__).with_name("configs.json").read_text(encoding="utf-8"))
"""Configs, each a base with changes: what is read of them, or the key and the code of each refusal."""
TINY, FIVE_LAYERS, NEO = (CONFIGS["bases"][name] for name in ("four layers, all heads", "five layers", "gpt_neo"))


@pytest.mark.parametrize(("base", "keys", "expected"), CONFIGS["read"])
def test_a_config_is_read_as_its_type_means_it(base: str, keys: dict[str, Any], expected: dict[str, Any]) -> None:
    model = import_config({**CONFIGS["bases"][base], **keys}).model
    layers = {"attention": attention_of(model), "mlp": mlp_of(model)}
    assert {name: layers[name] if name in layers else getattr(model, name) for name in expected} == expected


@pytest.mark.parametrize(("base", "keys", "problems"), CONFIGS["refused"])
def test_a_config_is_refused_with_its_keys(base: str, keys: dict[str, Any], problems: list[list[str]]) -> None:
    with pytest.raises(Refused) as refused:
        import_config({**CONFIGS["bases"][base], **keys})
    found = refused.value.problems
    assert [[one.field.removeprefix("model.hf_config."), one.code] for one in found] == problems
    for problem, (key, _) in zip(found, problems, strict=True):
        assert problem.message.startswith(key) or key.endswith(".0")
        assert len(repr(problem)) < 600


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


ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


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


def _five_layers(model_type: str, **keys: Any) -> Imported:
    return import_config({"model_type": model_type, **FIVE_LAYERS, **keys})


def test_hunyuan_may_list_the_same_number_for_every_layer() -> None:
    lists = {"moe_topk": [2] * 5, "moe_intermediate_size": [96] * 5, "num_shared_expert": [1] * 5}
    listed = _five_layers("hunyuan_v1_moe", num_experts=4, use_mixed_mlp_moe=True, use_cla=False, **lists)
    assert listed.model == _five_layers("hunyuan_v1_moe", num_experts=4, moe_topk=2).model
    assert listed.model == _five_layers("hunyuan_v1_moe", num_experts=4, num_experts_per_tok=2).model
    assert (listed.model.num_experts_per_tok, listed.model.expert_width) == (2, 96)
    (warning,) = listed.warnings
    assert warning.endswith("change nothing: sliding_window")


def test_gpt_neo_says_its_pattern_when_it_is_assumed() -> None:
    imported = import_config({"model_type": "gpt_neo"})
    assert attention_of(imported.model) == "fs" * 12
    assert 'attention_types [[["global", "local"], 12]]' in imported.assumptions[0]


def test_gpt_neo_may_list_its_layers_too() -> None:
    layers = ["global", "local"] * 2
    both = import_config({**NEO, "attention_types": [[["global", "local"], 2]], "attention_layers": layers})
    assert both.warnings == ()
    problem = problem_of({**NEO, "attention_types": [[["global", "local"], 2]], "attention_layers": layers[::-1]})
    assert (problem.field, problem.code) == ("model.hf_config.attention_layers", "contradiction")


def test_helium_needs_heads_that_fill_the_residual_stream() -> None:
    assert _five_layers("helium", head_dim=8).model.head_width == 8
    assert _five_layers("helium", head_dim=None).model.head_width == 8
    problem = problem_of({"model_type": "helium", **FIVE_LAYERS, "head_dim": 16})
    assert (problem.field, problem.code) == ("model.hf_config.head_dim", "contradiction")


@pytest.mark.parametrize("model_type", ["glm4_moe", "granitemoe", "llama4_text", "phimoe", "solar_open"])
def test_key_that_the_type_does_not_know_is_no_number_of_experts(model_type: str) -> None:
    asked, plain = _five_layers(model_type, num_experts=3), _five_layers(model_type)
    assert asked.model == plain.model
    assert "num_experts" in asked.warnings[-1]


def test_window_that_is_switched_off_may_be_saved_as_nought() -> None:
    off = _five_layers("qwen2_moe", sliding_window=0)
    assert (attention_of(off.model), off.model.sliding_window, off.warnings) == ("fffff", None, ())
    problem = problem_of({"model_type": "qwen2_moe", **FIVE_LAYERS, "sliding_window": 0, "use_sliding_window": True})
    assert (problem.field, problem.code) == ("model.hf_config.sliding_window", "out_of_range")


def test_harmless_keys_are_harmless_in_the_objects_of_a_config_too() -> None:
    config = {"model_type": "dbrx", "attn_config": {"kv_n_heads": 2, "id2label": {}, "hidden_size": 3}}
    (_, warning) = import_config(config).warnings
    assert warning.endswith("change nothing: attn_config.hidden_size")
