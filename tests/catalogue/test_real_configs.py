"""Is the config.json of a published model, pasted as it is, read as that model and without a needless warning?"""

import json
from pathlib import Path
from typing import Any

import pytest

from service.catalogue.huggingface import import_config
from service.estimator import count_parameters
from service.estimator.rules.model import problems_of_model

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
