"""Layers with a window, sparse layers and widths, in architectures with keys of their own."""

from typing import Any

import pytest

from service.catalogue.huggingface import Imported, import_config
from tests.catalogue.shapes import attention_of, mlp_of, problem_of

TINY: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 96, "sliding_window": 16,
}  # fmt: skip
LISTED = ["full_attention", "sliding_attention", "full_attention", "full_attention", "sliding_attention"]
NEO = {"model_type": "gpt_neo", "vocab_size": 100, "hidden_size": 64, "num_layers": 4, "num_heads": 8}


def _imported(model_type: str, **keys: Any) -> Imported:
    return import_config({"model_type": model_type, **TINY, **keys})


@pytest.mark.parametrize(
    ("model_type", "keys", "attention"),
    [
        ("cohere2", {}, "sssfs"),
        ("cohere2", {"sliding_window_pattern": 2}, "sfsfs"),
        ("cohere2", {"layer_types": LISTED}, "fsffs"),
        ("exaone4", {}, "sssfs"),
        ("exaone4", {"layer_types": LISTED, "sliding_window_pattern": "LLLG"}, "fsffs"),
        ("exaone4", {"layer_types": ["full_attention"] * 5, "sliding_window": None}, "fffff"),
        ("olmo3", {}, "sssfs"),
        ("cwm", {}, "fsssf"),
        ("granite_swa", {}, "fsssf"),
        ("vaultgemma", {}, "sfsfs"),
        ("ministral", {}, "sssss"),
        ("ministral", {"sliding_window": None}, "fffff"),
        ("ministral", {"layer_types": LISTED}, "fsffs"),
        ("ministral3", {}, "sssss"),
        ("starcoder2", {}, "sssss"),
        ("dots1", {"max_window_layers": 3, "n_routed_experts": 4, "num_experts_per_tok": 2}, "fffss"),
        ("dots1", {"sliding_window": None, "n_routed_experts": 4, "num_experts_per_tok": 2}, "fffff"),
        ("flint", {}, "ffssf"),
        ("kolibri1", {}, "ssssf"),
        ("mellum", {}, "fffff"),
        ("mellum", {"layer_types": LISTED}, "fsffs"),
        ("cohere2_moe", {"first_k_dense_replace": 2, "sliding_window_pattern": 3}, "ffssf"),
        ("cohere2_moe", {"first_k_dense_replace": 2, "prefix_dense_sliding_window_pattern": 2}, "sfsss"),
    ],
)
def test_attention_of_each_layer(model_type: str, keys: dict[str, Any], attention: str) -> None:
    model = _imported(model_type, **keys).model
    assert attention_of(model) == attention
    assert (model.sliding_window == 16) is ("s" in attention)


@pytest.mark.parametrize(
    ("model_type", "keys", "mlp"),
    [
        ("ernie4_5_moe", {"moe_layer_start_index": 1, "moe_layer_end_index": -1}, "dssss"),
        ("ernie4_5_moe", {"moe_layer_start_index": 0, "moe_layer_end_index": 3, "moe_layer_interval": 2}, "dsdsd"),
        ("ernie4_5_moe", {"moe_layer_start_index": 2, "moe_layer_end_index": 3}, "ddssd"),
        ("exaone_moe", {}, "dssss"),
        ("exaone_moe", {"first_k_dense_replace": 0}, "sssss"),
        ("exaone_moe", {"mlp_layer_types": ["sparse", "dense", "sparse", "sparse", "dense"]}, "sdssd"),
        ("glm4_moe_lite", {}, "dssss"),
        ("hy_v3", {}, "dssss"),
        ("mellum", {}, "sssss"),
        ("mellum", {"mlp_layer_types": ["dense", "dense", "sparse", "sparse", "sparse"]}, "ddsss"),
        ("flint", {}, "ddsss"),
        ("flint", {"mlp_only_layers": None}, "ddsss"),
        ("flint", {"mlp_only_layers": []}, "sssss"),
        ("granitemoe", {}, "sssss"),
        ("hunyuan_v1_moe", {"num_experts": 4}, "sssss"),
    ],
)
def test_mlp_of_each_layer(model_type: str, keys: dict[str, Any], mlp: str) -> None:
    assert mlp_of(_imported(model_type, **keys).model) == mlp


@pytest.mark.parametrize(
    ("model_type", "keys", "width"),
    [
        ("aria_text", {"moe_num_shared_experts": 3}, 3 * 96),
        ("cohere2_moe", {"num_shared_experts": 2}, 2 * 96),
        ("ernie4_5_moe", {"moe_intermediate_size": 24}, 2 * 24),
        ("exaone_moe", {"moe_intermediate_size": 24, "num_shared_experts": 0}, 0),
        ("granitemoeshared", {"shared_intermediate_size": 40}, 40),
        ("hunyuan_v1_moe", {"num_experts": 4}, 96),
        ("hy_v3", {"moe_intermediate_size": 24}, 24),
        ("solar_open", {"moe_intermediate_size": 24, "n_shared_experts": 2}, 48),
    ],
)
def test_width_of_the_shared_experts(model_type: str, keys: dict[str, Any], width: int) -> None:
    assert _imported(model_type, **keys).model.shared_expert_intermediate_size == width


def test_hunyuan_may_list_the_same_number_for_every_layer() -> None:
    lists = {"moe_topk": [2] * 5, "moe_intermediate_size": [96] * 5, "num_shared_expert": [1] * 5}
    listed = _imported("hunyuan_v1_moe", num_experts=4, use_mixed_mlp_moe=True, use_cla=False, **lists)
    assert listed.model == _imported("hunyuan_v1_moe", num_experts=4, moe_topk=2).model
    assert listed.model == _imported("hunyuan_v1_moe", num_experts=4, num_experts_per_tok=2).model
    assert (listed.model.num_experts_per_tok, listed.model.expert_width) == (2, 96)
    (warning,) = listed.warnings
    assert warning.endswith("change nothing: sliding_window")


@pytest.mark.parametrize(
    ("keys", "key", "code"),
    [
        ({"moe_topk": [2, 2, 1, 2, 2]}, "moe_topk", "unsupported_value"),
        ({"moe_topk": []}, "moe_topk", "unsupported_value"),
        ({"moe_topk": 2, "num_experts_per_tok": 1}, "moe_topk", "contradiction"),
        ({"moe_intermediate_size": [48] * 5}, "moe_intermediate_size", "unsupported_value"),
        ({"num_shared_expert": 2}, "num_shared_expert", "unsupported_value"),
        ({"use_cla": True}, "use_cla", "unsupported_value"),
        ({"moe_layer_num_skipped": 1}, "moe_layer_num_skipped", "unsupported_value"),
    ],
)
def test_hunyuan_that_cannot_be_expressed_is_refused(keys: dict[str, Any], key: str, code: str) -> None:
    problem = problem_of({"model_type": "hunyuan_v1_moe", **TINY, "num_experts": 4, **keys})
    assert (problem.field, problem.code) == (f"model.hf_config.{key}", code)


@pytest.mark.parametrize(
    ("types", "attention"),
    [
        ([[["global", "local"], 2]], "fsfs"),
        ([[["local"], 4]], "ssss"),
        ([[["global"], 1], [["local"], 3]], "fsss"),
        ([[["local", "global", "global"], 1], [["local"], 1]], "sffs"),
    ],
)
def test_gpt_neo_attends_globally_and_locally(types: list[Any], attention: str) -> None:
    model = import_config({**NEO, "attention_types": types}).model
    assert attention_of(model) == attention
    assert model.sliding_window == (256 if "s" in attention else None)
    assert (model.attention_bias, model.out_bias, model.intermediate_size) == (False, True, 256)


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


@pytest.mark.parametrize(
    ("types", "code"),
    [
        ([[["global", "local"], 12]], "contradiction"),
        ([[["global"], 2048]], "contradiction"),
        ([[["global"], 2049]], "unsupported_value"),
        ([[["global"], -4]], "unsupported_value"),
        ([[["global"], True]], "unsupported_value"),
        ([[["sparse"], 4]], "unsupported_value"),
        ([[[["global"]], 4]], "unsupported_value"),
        ([["global", 4]], "unsupported_value"),
        ([["global", "local"]], "unsupported_value"),
        ({"global": 4}, "unsupported_value"),
        ("global", "unsupported_value"),
    ],
)
def test_gpt_neo_with_another_pattern_is_refused(types: Any, code: str) -> None:
    problem = problem_of({**NEO, "attention_types": types})
    assert (problem.field, problem.code) == ("model.hf_config.attention_types", code)


@pytest.mark.parametrize(
    ("model_type", "keys", "expected"),
    [
        ("apertus", {}, {"activation_parameters": 2, "gated_mlp": False, "qk_norm": "per_head_dim"}),
        ("cohere2_moe", {"rms_norm_eps": 1e-5}, {"normalization": "rmsnorm", "norms_per_layer": 1}),
        ("cohere2_moe", {}, {"normalization": "layernorm_no_bias", "parallel_attention": True}),
        ("cohere2_moe", {"first_k_dense_replace": 1}, {"intermediate_size": 96, "expert_width": 96}),
        ("cohere2_moe", {"first_k_dense_replace": 1, "prefix_dense_intermediate_size": 72}, {"intermediate_size": 72}),
        ("ernie4_5", {"use_bias": True}, {"attention_bias": True, "mlp_bias": True, "lm_head_bias": False}),
        ("glm4", {}, {"attention_bias": True, "out_bias": False, "norms_per_layer": 4}),
        ("granite_swa", {}, {"attention_sinks": True}),
        ("glm4_moe_lite", {"head_dim": 32, "num_key_value_heads": 8}, {"qk_rope_head_dim": 32}),
        ("hyperclovax", {"use_post_norm": False}, {"norms_per_layer": 2}),
        ("hyperclovax", {}, {"norms_per_layer": 4}),
        ("internlm2", {}, {"attention_bias": True, "out_bias": True, "mlp_bias": False}),
        ("internlm3", {"bias": True}, {"attention_bias": False, "out_bias": True, "mlp_bias": True}),
        ("internlm3", {"qkv_bias": True}, {"attention_bias": True, "out_bias": False, "mlp_bias": False}),
        ("minicpm3", {"num_key_value_heads": 8}, {"v_head_dim": 8, "kv_lora_rank": 256, "num_key_value_heads": None}),
        ("nanochat", {}, {"normalization": "nonparametric", "qk_norm": "l2", "embedding_norm": True}),
        ("persimmon", {}, {"qk_norm": "per_head_dim_biased", "attention_bias": True, "mlp_bias": True}),
        ("persimmon", {"qk_layernorm": False}, {"qk_norm": "none"}),
        ("phi", {"qk_layernorm": True}, {"qk_norm": "per_head_dim_biased"}),
        (
            "seed_oss",
            {"attention_out_bias": True, "attention_bias": False},
            {"out_bias": True, "attention_bias": False},
        ),
    ],
)
def test_what_a_type_fixes_or_a_key_switches(model_type: str, keys: dict[str, Any], expected: dict[str, Any]) -> None:
    model = _imported(model_type, **keys).model
    assert {name: getattr(model, name) for name in expected} == expected


@pytest.mark.parametrize(("multi_query", "heads"), [(True, 1), (False, 8), (None, 1)])
def test_starcoder_has_one_key_value_head_or_all(multi_query: bool | None, heads: int) -> None:
    keys = {} if multi_query is None else {"multi_query": multi_query}
    config = {"model_type": "gpt_bigcode", "vocab_size": 99, "n_embd": 64, "n_head": 8, "n_layer": 2, **keys}
    assert import_config(config).model.key_value_heads == heads


def test_helium_needs_heads_that_fill_the_residual_stream() -> None:
    assert _imported("helium", head_dim=8).model.head_width == 8
    assert _imported("helium", head_dim=None).model.head_width == 8
    problem = problem_of({"model_type": "helium", **TINY, "head_dim": 16})
    assert (problem.field, problem.code) == ("model.hf_config.head_dim", "contradiction")


@pytest.mark.parametrize(
    ("model_type", "keys", "key"),
    [
        ("apertus", {"hidden_act": "silu"}, "hidden_act"),
        ("aria_text", {"mlp_bias": True}, "mlp_bias"),
        ("cohere2", {"use_parallel_block": False}, "use_parallel_block"),
        ("dots1", {"moe_layer_freq": 2}, "moe_layer_freq"),
        ("ernie4_5_moe", {"use_bias": True}, "use_bias"),
        ("glm4_moe_lite", {"first_k_dense_replace": 3}, "first_k_dense_replace"),
        ("gpt_bigcode", {"add_cross_attention": True}, "add_cross_attention"),
        ("hunyuan_v1_dense", {"use_qk_norm": False}, "use_qk_norm"),
        ("hy_v3", {"mlp_bias": True}, "mlp_bias"),
        ("iquestcoder", {"use_sliding_window": True}, "use_sliding_window"),
        ("starcoder2", {"mlp_type": "gated"}, "mlp_type"),
    ],
)
def test_value_that_cannot_be_expressed_is_refused(model_type: str, keys: dict[str, Any], key: str) -> None:
    problem = problem_of({"model_type": model_type, **keys})
    assert (problem.field, problem.code) == (f"model.hf_config.{key}", "unsupported_value")


@pytest.mark.parametrize("model_type", ["cohere2", "exaone4", "olmo3", "granite_swa", "kolibri1"])
def test_window_is_needed_where_layers_slide(model_type: str) -> None:
    problem = problem_of({"model_type": model_type, **TINY, "sliding_window": None})
    assert (problem.field, problem.code) == ("model.hf_config.sliding_window", "required")


@pytest.mark.parametrize("model_type", ["glm4_moe", "granitemoe", "llama4_text", "phimoe", "solar_open"])
def test_key_that_the_type_does_not_know_is_no_number_of_experts(model_type: str) -> None:
    asked, plain = _imported(model_type, num_experts=3), _imported(model_type)
    assert asked.model == plain.model
    assert "num_experts" in asked.warnings[-1]


def test_window_that_is_switched_off_may_be_saved_as_nought() -> None:
    off = _imported("qwen2_moe", sliding_window=0)
    assert (attention_of(off.model), off.model.sliding_window, off.warnings) == ("fffff", None, ())
    problem = problem_of({"model_type": "qwen2_moe", **TINY, "sliding_window": 0, "use_sliding_window": True})
    assert (problem.field, problem.code) == ("model.hf_config.sliding_window", "out_of_range")


def test_harmless_keys_are_harmless_in_the_objects_of_a_config_too() -> None:
    config = {"model_type": "dbrx", "attn_config": {"kv_n_heads": 2, "id2label": {}, "hidden_size": 3}}
    (_, warning) = import_config(config).warnings
    assert warning.endswith("change nothing: attn_config.hidden_size")


@pytest.mark.parametrize("key", ["layer_types", "mlp_layer_types"])
def test_list_has_one_item_a_layer(key: str) -> None:
    item = "full_attention" if key == "layer_types" else "sparse"
    problem = problem_of({"model_type": "mellum", **TINY, key: [item] * 4})
    assert (problem.field, problem.code) == (f"model.hf_config.{key}", "contradiction")
