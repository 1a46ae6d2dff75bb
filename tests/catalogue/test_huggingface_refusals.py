"""An unreadable config is refused with its field and a fix, and is not repeated in the error."""

from dataclasses import replace
from typing import Any

import pytest

from service.catalogue.huggingface import import_config
from service.catalogue.huggingface.importing import TEXT_PARTS
from service.errors import Refused
from service.estimator import Model
from service.validation.reading import read_spec
from tests.catalogue.shapes import problem_of

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 99}


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [
        ("llava", "vision-language"),
        ("qwen2_vl", "vision-language"),
        ("bert", "encoder"),
        ("roberta", "encoder"),
        ("t5", "encoder-decoder"),
        ("whisper", "speech"),
        ("vit", "vision"),
        ("rwkv", "state-space"),
        ("kimi_linear", "linear-attention"),
    ],
)
def test_unsupported_type_is_refused_by_name_and_kind(model_type: str, kind: str) -> None:
    problem = problem_of({"model_type": model_type})
    assert problem.code == "model_type_unsupported"
    assert model_type in problem.message
    assert kind in problem.message


@pytest.mark.parametrize(
    ("model_type", "near"), [("lama", "llama"), ("qwen-3", "qwen3"), ("deepseek_v33", "deepseek_v3")]
)
def test_unknown_type_leads_to_the_nearest(model_type: str, near: str) -> None:
    problem = problem_of({"model_type": model_type})
    assert problem.code == "model_type_unknown"
    assert near in problem.fix


@pytest.mark.parametrize("model_type", ["c4n4ry", "llama-9", "<script>", "a" * 41, "Llama 3", "\ud800", "llama\n", ""])
def test_unknown_type_is_not_repeated(model_type: str) -> None:
    problem = problem_of({"model_type": model_type})
    assert problem.message == "this type of config is not known here"
    assert not model_type or model_type not in problem.fix


@pytest.mark.parametrize(("outer", "inner_type"), TEXT_PARTS.items())
def test_text_part_is_used_and_said(outer: str, inner_type: str) -> None:
    inner = {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2, "num_key_value_heads": 2}
    imported = import_config({"model_type": outer, "vision_config": {"hidden_size": 1}, "text_config": inner})
    assert imported.model.hidden_size == 64
    assert imported.assumptions[0] == "text_config is used; the model's other parts are left out"
    alone = import_config({"model_type": inner_type, **inner})
    assert imported.model == alone.model


def test_head_tied_outside_the_text_part_is_tied() -> None:
    inner = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 2}
    outer = {"model_type": "gemma3", "tie_word_embeddings": False, "text_config": inner}
    assert import_config(outer).model.tie_word_embeddings is False


def test_text_part_of_a_text_model_is_used_too() -> None:
    imported = import_config({"model_type": "llama", "text_config": LLAMA})
    assert imported.model == import_config(LLAMA).model
    assert "text_config" in imported.assumptions[0]


def test_vision_language_model_leads_to_its_text_part() -> None:
    problem = problem_of({"model_type": "llava", "text_config": LLAMA})
    assert "text_config alone (llama)" in problem.fix


def test_text_part_of_an_unsupported_type_is_refused_where_it_stands() -> None:
    assert problem_of({"model_type": "gemma3", "text_config": {"model_type": "t5"}}).field == (
        "model.hf_config.text_config.model_type"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_number_that_json_cannot_spell_is_refused_with_its_key(value: float) -> None:
    problem = problem_of({**LLAMA, "hidden_size": value})
    assert (problem.field, problem.code) == ("model.hf_config.hidden_size", "not_a_whole_number")


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", "64"), ("hidden_size", 0), ("tie_word_embeddings", 1), ("num_key_value_heads", [8])],
)
def test_wrong_key_is_mended_as_the_field_of_an_inline_model(key: str, value: Any) -> None:
    inline = {name: one for name, one in LLAMA.items() if name != "model_type"} | {"vocab_size": 8, key: value}
    with pytest.raises(Refused) as refused:
        read_spec(Model, inline, "model")
    (field,) = refused.value.problems
    problem = problem_of({**LLAMA, key: value})
    assert (problem.code, problem.fix) == (field.code, field.fix)


def test_list_of_too_many_layers_is_refused() -> None:
    problem = problem_of({"model_type": "qwen3_moe", "mlp_only_layers": [0] * 5000})
    assert (problem.field, problem.code) == ("model.hf_config.mlp_only_layers", "wrong_length")


def test_every_wrong_key_is_named_once() -> None:
    config = {"model_type": "falcon", "hidden_size": "64", "bias": "no", "vocab_size": -1, "is_encoder_decoder": True}
    with pytest.raises(Refused) as refused:
        import_config(config)
    keys = [problem.field.removeprefix("model.hf_config.") for problem in refused.value.problems]
    assert sorted(keys) == ["bias", "hidden_size", "is_encoder_decoder", "vocab_size"]


def test_width_that_overflows_is_refused() -> None:
    problem = problem_of({"model_type": "gpt2", "n_embd": 1 << 24})
    assert problem.code == "out_of_range"
    assert "intermediate_size" in problem.message


def test_key_that_is_not_understood_is_reported() -> None:
    imported = import_config({**LLAMA, "rope_theta": 5e5, "torch_dtype": "bfloat16", "hyper_connections": 4})
    assert imported.warnings == (
        "keys of the config that are neither used nor known to change nothing: hyper_connections",
    )


def test_report_is_short_and_repeats_plain_keys_only() -> None:
    odd = {f"key_{i}": i for i in range(10)}
    (warning,) = import_config({**LLAMA, "<b>": 1, "k" * 41: 2, **odd}).warnings
    assert warning.endswith("(no plain name), (no plain name), key_0, key_1, key_2, key_3, key_4, key_5 and 4 more")


def test_key_of_another_type_is_reported() -> None:
    (warning,) = import_config({**LLAMA, "sliding_window": 16}).warnings
    assert "sliding_window" in warning


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, "recipe.precision"),
        ({"architectures": ["LlamaModel"]}, "language model"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "2 classes"),
        ({"architectures": ["LlamaForTokenClassification"], "num_labels": 3}, "3 classes"),
        ({"architectures": ["LlamaForSequenceClassification"], "id2label": dict.fromkeys("0123")}, "4 classes"),
    ],
)
def test_what_changes_the_model_elsewhere_is_said(keys: dict[str, Any], said: str) -> None:
    (warning,) = import_config({**LLAMA, **keys}).warnings
    assert said in warning


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({key: value for key, value in LLAMA.items() if key != "vocab_size"}, "(vocab_size)"),
        ({"model_type": "llama", "num_hidden_layers": 2}, "(hidden_size, num_attention_heads, vocab_size)"),
        ({"model_type": "gpt2", "n_embd": 64, "n_head": 8, "vocab_size": 99}, "(n_layer)"),
    ],
)
def test_absent_keys_that_define_a_model_are_warned_of(config: dict[str, Any], named: str) -> None:
    (warning,) = import_config(config).warnings
    assert named in warning


@pytest.mark.parametrize("keys", [{"num_labels": 1}, {"id2label": {"0": "LABEL_0"}}])
@pytest.mark.parametrize("name", ["LlamaForSequenceClassification", "LlamaForTokenClassification"])
def test_a_head_of_one_class_is_a_scalar_head(name: str, keys: dict[str, Any]) -> None:
    imported = import_config({**LLAMA, "architectures": [name], **keys})
    assert imported.model == replace(import_config(LLAMA).model, scalar_head=True)
    assert imported.warnings == ()
    assert "scalar_head is set" in imported.assumptions[-1]


@pytest.mark.parametrize("wrong", [0, -1, 1.0, "1", True, 1 << 27])
def test_a_head_of_no_whole_number_of_classes_is_refused(wrong: Any) -> None:
    problem = problem_of({**LLAMA, "architectures": ["LlamaForSequenceClassification"], "num_labels": wrong})
    assert (problem.field, problem.code) == ("model.hf_config.num_labels", "out_of_range")
    assert "give 1" in problem.fix


def test_language_model_classes_are_no_warning() -> None:
    for name in ("LlamaForCausalLM", "GPT2LMHeadModel", "Gemma3ForConditionalGeneration"):
        assert import_config({**LLAMA, "architectures": [name], "quantization_config": None}).warnings == ()
