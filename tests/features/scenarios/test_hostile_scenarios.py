"""Faults of a scenario are refused at their place and are not repeated."""

import json
from typing import Any

import pytest

from tests.api.asking import QUESTION, Ask
from tests.echoes import beyond_echo

CANARY = "c4n4ry"


@pytest.fixture
def ask(kept: Ask) -> Ask:
    """Scenarios are kept in the database."""
    return kept


def _saved(ask: Ask, **said: Any) -> Any:
    return ask("POST", "/v1/scenarios", json={"name": "a", "question": QUESTION, **said})


def test_a_question_is_refused_in_the_same_words_as_by_estimates(ask: Ask) -> None:
    wrong = {**QUESTION, "model": "llama-3.1-9b", "recipe": {"sequence_length": 0}}
    asked = ask("POST", "/v1/estimates", json=wrong).json()["errors"]
    kept = _saved(ask, question=wrong).json()["errors"]
    assert kept == [{**error, "pointer": f"/question{error['pointer']}"} for error in asked]


def test_everything_wrong_is_told_at_once(ask: Ask) -> None:
    errors = ask("POST", "/v1/scenarios", json={"note": 1, "question": {"recipe": {}}}).json()["errors"]
    assert {error["pointer"] for error in errors} == {
        "/name", "/note", "/question/model", "/question/cluster", "/question/recipe/sequence_length",
    }  # fmt: skip


def test_values_that_no_field_holds_are_placed_inside_the_question(ask: Ask) -> None:
    body = json.dumps({"name": "a", "question": {**QUESTION, "recipe": {"sequence_length": float("nan")}}})
    answer = ask("POST", "/v1/scenarios", content=body, headers={"Content-Type": "application/json"})
    assert answer.json()["errors"][0]["pointer"] == "/question/recipe/sequence_length"


def test_names_are_kept_in_composed_form_and_other_scripts_are_welcome(ask: Ask) -> None:
    saved = _saved(ask, name="cafe\u0301", note="line\n\ttab 模型 🚀 \u200c")
    assert saved.json()["name"] == "caf\u00e9"
    assert saved.json()["note"] == "line\n\ttab 模型 🚀 \u200c"
    assert saved.json()["id"] in ask("GET", "/v1/scenarios?name=CAF\u00c9").text


@pytest.mark.parametrize("patch", [{"nmae": None}, {CANARY: CANARY}, {"name": None}, {"question": None}, {"name": 1}])
def test_a_wrong_patch_changes_nothing(ask: Ask, patch: dict[str, Any]) -> None:
    saved = _saved(ask)
    answer = ask("PATCH", saved.headers["location"], json=patch, headers={"If-Match": "*"})
    assert answer.status_code == 422
    assert CANARY not in beyond_echo(answer)
    assert ask("GET", saved.headers["location"]).content == saved.content


def test_a_body_that_is_none_is_refused(ask: Ask) -> None:
    location = _saved(ask).headers["location"]
    for method, path in (("POST", "/v1/scenarios"), ("PUT", location), ("PATCH", location)):
        for content, status in ((b"", 400), (b"[]", 400), (b"{", 400), (b"null", 400), (b"[" * 100, 400)):
            headers = {"Content-Type": "application/json", "If-Match": "*"}
            assert ask(method, path, content=content, headers=headers).status_code == status
        kind = {"Content-Type": "text/csv", "If-Match": "*"}
        assert ask(method, path, content=b"{}", headers=kind).status_code == 415


@pytest.mark.parametrize("number", [10**40, -(10**40), 5e-324, 1.7e308, 2**63, 0, -1, True])
def test_extreme_numbers_anywhere_in_a_question_are_answered_or_refused(ask: Ask, number: float) -> None:
    for part in ("recipe", "layout", "cluster", "price"):
        for field in QUESTION[part]:
            question = {**QUESTION, part: {**QUESTION[part], field: number}}
            assert _saved(ask, question=question).status_code in {201, 422}


def test_a_question_with_a_pasted_config_is_kept_as_it_was(ask: Ask) -> None:
    config = {
        "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "rope_theta": 500000.0, "zzz": [1, {"b": 2, "a": 1e22}],
    }  # fmt: skip
    question = {**QUESTION, "model": {"hf_config": config}}
    saved = _saved(ask, question=question)
    assert saved.status_code == 201, saved.text
    assert list(saved.json()["question"]["model"]["hf_config"]) == list(config)
    read = ask("GET", saved.headers["location"])
    assert read.content == saved.content
    assert read.json()["question"] == question
