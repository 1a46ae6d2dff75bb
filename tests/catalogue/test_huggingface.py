"""A config.json becomes the model that transformers builds from it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.catalogue.huggingface import import_config
from service.catalogue.huggingface.config import defaults_of, read_from
from service.catalogue.huggingface.importing import architectures, keys_without_effect, kind_of
from service.estimator import Model, count_parameters
from service.estimator.model.build import layer_type
from service.estimator.model.ledger import Split
from service.estimator.rules.training import problems_of_model
from tests.cases import each_case
from tests.catalogue.shapes import letter_of
from tests.estimator.small_models import ledger_of

HERE = Path(__file__).parent
PRESETS: dict[str, dict[str, Any]] = json.loads((HERE / "preset_configs.json").read_text(encoding="utf-8"))["configs"]
COUNTED: dict[str, Any] = json.loads((HERE / "meta_device_counts.json").read_text(encoding="utf-8"))

NOT_IN_TRANSFORMERS = {"grok-1"}
"""Presets without a config to import: no class."""

WITHOUT_A_CLASS = {"kimi_k2": "deepseek_v3", "minimax_m1": "minimax", "minimax_text_01": "minimax"}
"""Types of remote code, and the type with a class that describes the same model."""

WITHOUT_DEFAULT = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "num_experts_per_tok": 6},
}
"""Keys that a config of the type must have."""


def _numbered(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=f"{case['config']['model_type']}-{i}") for i, case in enumerate(cases)]


def test_every_preset_has_its_config() -> None:
    assert set(PRESETS) == set(shipped_catalogue().models) - NOT_IN_TRANSFORMERS


@each_case("slug", PRESETS)
def test_preset_from_its_config_has_the_exact_counts(slug: str) -> None:
    exact = shipped_catalogue().models[slug].exact
    assert exact
    counts = count_parameters(import_config(PRESETS[slug]).model)
    assert (counts.total, counts.active.total, counts.non_embedding) == (exact.total, exact.active, exact.non_embedding)


@each_case("slug", PRESETS)
def test_preset_from_its_config_is_the_preset(slug: str) -> None:
    preset, imported = shipped_catalogue().models[slug].model, import_config(PRESETS[slug])
    assert preset
    if PRESETS[slug]["model_type"] == "bloom":
        preset = replace(preset, max_position_embeddings=None)
    assert imported.model == preset
    assert imported.warnings == ()


@each_case("case", _numbered([*COUNTED["every_type"], *COUNTED["hybrid"]]))
def test_model_is_the_one_that_transformers_builds(case: dict[str, Any]) -> None:
    """Counts and attention of each layer: see the source in meta_device_counts.json."""
    model = import_config(case["config"]).model
    assert count_parameters(model).total == case["total"]
    assert "".join(letter_of(layer_type(model, layer)) for layer in range(model.num_hidden_layers)) == case["attention"]


@each_case("case", _numbered(COUNTED["hybrid"]))
def test_hybrid_is_a_sound_model(case: dict[str, Any]) -> None:
    assert problems_of_model(import_config(case["config"]).model) == ()


@each_case("case", COUNTED["stablelm"], ids=lambda case: case["name"])
def test_stablelm_is_the_one_that_transformers_builds(case: dict[str, Any]) -> None:
    """Counts: see the source in meta_device_counts.json; 3B: 2,795,443,200 on its model card too."""
    assert count_parameters(import_config(case["config"]).model).total == case["total"]


@each_case("case", COUNTED["published"], ids=lambda case: case["name"])
def test_type_without_a_class_has_the_published_count(case: dict[str, Any]) -> None:
    """Counts: see published_source in meta_device_counts.json."""
    assert count_parameters(import_config(case["config"]).model).total == case["total"]


def test_every_type_is_counted_at_least_three_times_and_each_time_differs() -> None:
    cases = [case for listed in COUNTED.values() if isinstance(listed, list) for case in listed]
    totals: dict[str, set[int]] = {}
    for case in cases:
        totals.setdefault(case["config"]["model_type"], set()).add(case["total"])
    assert totals.keys() | WITHOUT_A_CLASS.keys() == set(architectures())
    assert all(architectures()[name] is architectures()[twin] for name, twin in WITHOUT_A_CLASS.items())
    assert {model_type for model_type, counted in totals.items() if len(counted) < 3} == set()


@each_case("model_type", architectures())
def test_absent_keys_take_the_defaults_of_the_type(model_type: str) -> None:
    config = {"model_type": model_type} | WITHOUT_DEFAULT.get(model_type, {})
    imported = import_config(config)
    assert count_parameters(imported.model).total > 0
    (assumption,) = imported.assumptions
    assert assumption.startswith(f"not in the config, so as {read_from(model_type)} has it for {model_type}: ")
    assert f"vocab_size {defaults_of(model_type)['vocab_size']}" in assumption


def test_defaults_say_where_they_were_read() -> None:
    assert read_from("llama") == "transformers 5.23.0"
    assert read_from("internlm2").startswith("configuration_internlm2.py")


@each_case("model_type", architectures())
def test_row_of_a_type_names_fields_of_the_model_and_keys_that_count(model_type: str) -> None:
    row, fields = architectures()[model_type], set(Model.__dataclass_fields__)
    assert set(row.reads) | set(row.keys) | set(row.fixed) <= fields
    assert not set(row.reads) & set(row.fixed)
    assert not set(defaults_of(model_type)) & keys_without_effect()
    assert kind_of(model_type) is None


@each_case("case", _numbered([*COUNTED["every_type"], *COUNTED["hybrid"]]))
def test_every_matrix_product_costs_two_flop_for_each_number_and_use(case: dict[str, Any]) -> None:
    """So the FLOP of projections, convolutions and experts are as exact as the counts that are frozen here."""
    model, tokens = import_config(case["config"]).model, 60
    over, under = model.visits
    for _, ops in ledger_of(model, tokens).groups():
        for op in ops:
            matrices = [weight for weight in op.weights if weight.role in ("matrix", "head")]
            if op.kind != "gemm" or not matrices:
                continue
            routed = any(weight.split is Split.EXPERT for weight in matrices)
            uses = tokens * over // under if routed else tokens
            held = sum(weight.rows * weight.columns * (1 if routed else weight.copies) for weight in matrices)
            assert op.flop == 2 * uses * held, op.name


FROZEN: dict[str, Any] = json.loads((Path(__file__).parent / "real_configs.json").read_text(encoding="utf-8"))
MODELS: list[Any] = [pytest.param(model, id=model["name"]) for model in FROZEN["models"]]


def _says(published: str, least: int, most: int) -> bool:
    """Whether a rounded number of billions can stand for a count between two others."""
    _, _, decimals = published.partition(".")
    half_a_digit = 0.5e9 * 0.1 ** len(decimals)
    said = float(published) * 1e9
    return bool(least - half_a_digit <= said <= most + half_a_digit)


@pytest.mark.parametrize("case", MODELS)
def test_model_has_the_exact_count(case: dict[str, Any]) -> None:
    """Counts: see note in real_configs.json."""
    imported = import_config(case["config"])
    counts = count_parameters(imported.model)
    assert (counts.total, counts.active.total) == (case["total"], case.get("active", case["total"]))
    assert problems_of_model(imported.model) == ()


@pytest.mark.parametrize("case", MODELS)
def test_model_is_as_large_as_its_makers_say(case: dict[str, Any]) -> None:
    """With the embeddings or without them, which makers count or do not."""
    counts, published = count_parameters(import_config(case["config"]).model), case["published_billions"]
    said = {"total": (counts.non_embedding, counts.total), "active": (counts.active.non_embedding, counts.active.total)}
    assert published
    assert all(_says(published[kind], *said[kind]) for kind in published)


@pytest.mark.parametrize("case", MODELS)
def test_nothing_in_it_is_strange(case: dict[str, Any]) -> None:
    assert import_config(case["config"]).warnings == ()


DEPTHS = {
    "minimax-m2.7": "num_mtp_modules",
    "nemotron-3-super-120b-a12b": "num_nextn_predict_layers",
    "nemotron-3-ultra-550b-a55b": "num_nextn_predict_layers",
    "qwen3.5-122b-a10b": "mtp_num_hidden_layers",
    "qwen3.5-35b-a3b": "mtp_num_hidden_layers",
    "qwen3.5-9b": "mtp_num_hidden_layers",
}
"""Models whose multi-token-prediction depths are not in the model that is read, and the key that counts them."""


@pytest.mark.parametrize("case", MODELS)
def test_depths_left_out_are_said(case: dict[str, Any]) -> None:
    said = [note for note in import_config(case["config"]).assumptions if "multi-token-prediction" in note]
    key = DEPTHS.get(case["name"])
    assert said == ([f"multi-token-prediction depths ({key}) are left out"] if key else [])


@pytest.mark.parametrize("name", ["kimi-k2.5", "llama-4-scout", "qwen3.5-9b", "qwen3.5-35b-a3b"])
def test_language_model_among_other_parts_is_used(name: str) -> None:
    config = next(model["config"] for model in FROZEN["models"] if model["name"] == name)
    imported = import_config(config)
    assert imported.assumptions[0] == "text_config is used; the model's other parts are left out"
    assert imported.model == import_config(config["text_config"]).model
