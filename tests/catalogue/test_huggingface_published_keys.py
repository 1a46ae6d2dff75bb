"""Do keys that only published configs have mean what their makers' own code makes of them?"""

from typing import Any

import pytest

from service.catalogue.huggingface import import_config
from service.catalogue.huggingface.importing import Imported
from service.errors import Refused

TINY: dict[str, Any] = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8}
EXPERTS = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_shared_expert_intermediate_size")


def _imported(model_type: str, **keys: Any) -> Imported:
    return import_config({"model_type": model_type, **TINY, **keys})


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
