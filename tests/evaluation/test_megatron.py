"""Every option of Megatron-LM sets a real field, changes nothing, or is refused by name."""

from dataclasses import fields
from typing import Any

import pytest

from service.calibration.tables import NotExpressible
from service.catalogue import shipped_catalogue
from service.estimator.question import Layout, Model, Recipe, Software
from service.evaluation.frameworks import known_flags
from service.evaluation.questions import draft_of, question_of
from tests.evaluation.rows import ROWS, row_of, with_flags

CATALOGUE = shipped_catalogue()
PARTS = {"model": Model, "recipe": Recipe, "layout": Layout, "stack": Software}
MOE = "M-megatron_functional-0300"
FREE = "M-megatron_functional-0289"
"""A run that asks for no determinism."""


def body(**flags: Any) -> dict[str, Any]:
    return draft_of(with_flags(**flags), CATALOGUE).body()


def reason(**flags: Any) -> str:
    with pytest.raises(NotExpressible) as raised:
        draft_of(with_flags(**flags), CATALOGUE)
    return str(raised.value)


@pytest.mark.parametrize("name", [name for name, flag in known_flags().items() if flag.does == "sets"])
def test_option_sets_a_field_that_there_is(name: str) -> None:
    part, _, field = known_flags()[name].path.partition(".")
    assert field in {f.name for f in fields(PARTS[part])}


@pytest.mark.parametrize(
    "name", [name for name, flag in known_flags().items() if flag.does in ("refuses", "unmodelled")]
)
def test_option_that_is_not_asked_says_why(name: str) -> None:
    assert known_flags()[name].why


def test_an_unknown_option_is_refused_by_name() -> None:
    assert reason(warp_drive=True) == "flag warp-drive: not known"


def test_an_option_that_is_switched_off_changes_nothing() -> None:
    assert body(warp_drive=False) == body()


def test_an_option_that_changes_too_much_is_refused_by_name() -> None:
    assert reason(cuda_graph_impl="local") == "flag cuda-graph-impl: graphs keep their buffers for good"


def test_a_dispatcher_is_asked_for_only_where_there_are_experts() -> None:
    assert "dispatcher" not in body()["recipe"]["stack"]
    assert draft_of(ROWS[MOE], CATALOGUE).body()["recipe"]["stack"]["dispatcher"]


def test_a_value_that_no_field_takes_is_refused() -> None:
    assert reason(optimizer="shampoo") == "flag optimizer: no field takes its value"
    assert reason(hidden_dropout="much") == "extra_config_json: a value is not understood"


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": ' + "[" * 100_000, '"x"'])
def test_options_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(NotExpressible, match="unreadable: extra_config_json"):
        draft_of(row_of(extra_config_json=text), CATALOGUE)


def test_what_nobody_switched_is_the_default_of_the_command_line() -> None:
    bare = with_flags(
        hidden_dropout=None, attention_dropout=None, disable_bias_linear=None, normalization=None,
        position_embedding_type=None, max_position_embeddings=4096,
    )  # fmt: skip
    questions = draft_of(bare, CATALOGUE).body()
    assert questions["recipe"]["dropout_fraction"] == 0.1
    assert (questions["model"]["attention_bias"], questions["model"]["mlp_bias"]) == (True, True)
    assert (questions["model"]["normalization"], questions["model"]["position_embedding_rows"]) == ("layernorm", 4096)
    assert body(hidden_dropout=0.0, attention_dropout=0.0)["recipe"]["dropout_fraction"] == 0.0
    assert "position_embedding_rows" not in body(position_embedding_type="rope")["model"]
    assert body(disable_bias_linear=True)["model"]["attention_bias"] is False


@pytest.mark.parametrize(
    ("flags", "attention"),
    [
        ({"attention_backend": "unfused"}, "eager"),
        ({"attention_backend": "flash"}, "flash-2"),
        ({"attention_backend": "fused"}, "cudnn"),
        ({"attention_backend": None}, "flash"),
        ({"attention_backend": None, "transformer_impl": "local"}, "eager"),
        ({"attention_backend": None, "transformer_impl": "local", "use_flash_attn": True}, "flash"),
    ],
)
def test_attention_is_the_backend_or_the_stacks_own(flags: dict[str, Any], attention: str) -> None:
    assert body(**flags)["recipe"]["attention"] == attention


def test_norms_on_queries_are_of_the_models_kind() -> None:
    assert body(qk_layernorm=True, normalization="RMSNorm")["model"]["qk_norm"] == "per_head_dim"
    assert body(qk_layernorm=True, normalization="LayerNorm")["model"]["qk_norm"] == "per_head_dim_biased"


def test_distributed_optimizers_share_the_replicas() -> None:
    assert body(num_distributed_optimizer_instances=2)["layout"]["shard_group"] == 1
    assert "shard_group" not in body(num_distributed_optimizer_instances=1)["layout"]


def test_latent_attention_has_widths_of_its_own() -> None:
    questions = body(
        multi_latent_attention=True,
        q_lora_rank=192,
        kv_lora_rank=64,
        qk_head_dim=16,
        qk_pos_emb_head_dim=8,
        v_head_dim=16,
    )["model"]
    assert (questions["q_lora_rank"], questions["kv_lora_rank"], questions["v_head_dim"]) == (192, 64, 16)
    assert (questions["qk_nope_head_dim"], questions["qk_rope_head_dim"]) == (16, 8)
    assert "head_dim" not in questions


def test_experts_are_split_by_tensor_unless_they_are_told_otherwise() -> None:
    assert draft_of(ROWS[MOE], CATALOGUE).layout["expert_tensor"] == 2
    assert draft_of(row_of(MOE, etp="1"), CATALOGUE).layout["expert_tensor"] == 1


def test_sparse_layers_are_those_of_the_frequency() -> None:
    questions = draft_of(with_flags(MOE, moe_layer_freq="([0]*3+[1]*9)"), CATALOGUE).model
    assert questions["mlp_layer_types"] == ["dense"] * 3 + ["sparse"] * 9


def test_fp8_is_the_recipes() -> None:
    questions = body(fp8_format="hybrid", fp8_recipe="blockwise", fp8_param_gather=True)["recipe"]
    assert (questions["precision"], questions["fp8_weights"]) == ("fp8-blockwise", True)


def test_what_comes_near_is_said() -> None:
    _, unmodelled = question_of(with_flags(no_rope_fusion=True), CATALOGUE)
    assert unmodelled == ("no-rope-fusion: rotary positions keep more",)


def test_hybrid_patterns_are_layers_and_stages() -> None:
    pattern = "M-M*-|M-M*-"
    questions = draft_of(
        with_flags(hybrid_layer_pattern=pattern, spec="[megatron.core.models.hybrid.hybrid_layer_specs x]"), CATALOGUE
    )
    assert questions.model["num_hidden_layers"] == 10
    assert questions.model["layer_types"][:4] == ["mamba2", "none", "mamba2", "full_attention"]
    assert questions.layout["stage_layers"] == [5, 5]


def test_virtual_stages_follow_from_their_layers() -> None:
    row = with_flags("M-megatron_functional-0009", num_layers_per_virtual_pipeline_stage=2)
    assert draft_of(row, CATALOGUE).layout["virtual_pipeline"] == 4
    layout = draft_of(
        with_flags("M-megatron_functional-0009", pipeline_model_parallel_layout="Et*4|(t*4|)*6t*4L"), CATALOGUE
    ).layout
    assert (layout["virtual_pipeline"], layout["stage_layers"]) == (2, [4] * 8)
