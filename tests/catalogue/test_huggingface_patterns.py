"""Layers with a window, sparse layers and widths, in architectures with keys of their own."""

from typing import Any

import pytest

from service.catalogue.huggingface import Imported, import_config
from tests.catalogue.shapes import attention_of, problem_of

TINY: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 96, "sliding_window": 16,
}  # fmt: skip
LISTED = ["full_attention", "sliding_attention", "full_attention", "full_attention", "sliding_attention"]
NEO = {"model_type": "gpt_neo", "vocab_size": 100, "hidden_size": 64, "num_layers": 4, "num_heads": 8}


def _imported(model_type: str, **keys: Any) -> Imported:
    return import_config({"model_type": model_type, **TINY, **keys})


def test_hunyuan_may_list_the_same_number_for_every_layer() -> None:
    lists = {"moe_topk": [2] * 5, "moe_intermediate_size": [96] * 5, "num_shared_expert": [1] * 5}
    listed = _imported("hunyuan_v1_moe", num_experts=4, use_mixed_mlp_moe=True, use_cla=False, **lists)
    assert listed.model == _imported("hunyuan_v1_moe", num_experts=4, moe_topk=2).model
    assert listed.model == _imported("hunyuan_v1_moe", num_experts=4, num_experts_per_tok=2).model
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
    assert _imported("helium", head_dim=8).model.head_width == 8
    assert _imported("helium", head_dim=None).model.head_width == 8
    problem = problem_of({"model_type": "helium", **TINY, "head_dim": 16})
    assert (problem.field, problem.code) == ("model.hf_config.head_dim", "contradiction")


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
