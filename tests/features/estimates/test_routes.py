"""Four paths, two methods each, one answer: its shape, its numbers, and the same bytes every time."""

import json
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.client import evaluate
from service.estimator.question import Model
from tests.api.asking import QUESTION, Ask

PARTS = {
    "/v1/estimates": {"verdict", "parameters", "memory", "flop", "step", "communication", "totals"},
    "/v1/memory": {"verdict", "memory"},
    "/v1/flops": {"parameters", "flop"},
    "/v1/gpu-hours": {"verdict", "step", "communication", "totals"},
}
ALWAYS = {"sources", "id", "resolved", "assumptions", "warnings", "versions", "explain"}

FLAT = {
    "model": "llama-3.1-8b", "sequence_length": "8192", "micro_batch": "1", "global_batch": "128",
    "training_tokens": "15e12", "tensor": "2", "gpu": "h100-sxm5-80gb", "gpus": "8", "usd_per_gpu_hour": "2.5",
}  # fmt: skip
"""The flat form of QUESTION."""

SHAPE: dict[str, Any] = {
    "id": "est_...",
    "resolved": {"model": {}, "recipe": {}, "layout": {}, "cluster": {}, "gpu": {}, "price": {}},
    "verdict": "fits",
    "parameters": {"total": 0, "active": 0, "non_embedding": 0},
    "memory": {
        "allocated_peak_bytes": "interval",
        "reserved_peak_bytes": "interval",
        "device_peak_bytes": "interval",
        "usable_bytes": 0,
        "peak_phase": "backward",
        "stages": [{"stage": 0, "lines": [{"kind": "weights", "bytes": 0}]}],
    },
    "flop": {
        "per_token_flop": 0,
        "per_step_flop": 0,
        "total_flop": 0,
        "hardware_per_step_flop": 0,
        "conventions": {"causal": 0, "full": 0, "6n": 0},
    },
    "step": {
        "step_seconds": "interval",
        "tokens_per_s_per_gpu": "interval",
        "mfu_fraction": "interval",
        "hfu_fraction": "interval",
        "parts": [{"kind": "gemm", "seconds": 0}],
    },
    "totals": {
        "steps": 0,
        "gpu_hours": "interval",
        "days": "interval",
        "cost_usd": "interval",
        "energy_kwh": "interval",
    },
    "assumptions": [],
    "warnings": [],
    "versions": {"formulas": "", "catalogue": "", "calibration": None},
}
"""Names that callers rely on, and the kind of value behind each."""


def check_shape(shape: Any, value: Any, path: str = "") -> None:
    if shape == "interval":
        assert value.keys() == {"low", "value", "high", "basis"}, path
        assert 0 <= value["low"] <= value["value"] <= value["high"], path
        return
    if isinstance(shape, dict):
        assert shape.keys() <= value.keys(), path
        for name, inner in shape.items():
            check_shape(inner, value[name], f"{path}.{name}")
        return
    if isinstance(shape, list):
        assert isinstance(value, list), path
        for item in value if shape else []:
            check_shape(shape[0], item, path)
        return
    numbers = (int, float)
    assert isinstance(value, numbers if isinstance(shape, numbers) else type(shape)), path


def test_the_answer_has_the_names_that_callers_rely_on(ask: Ask) -> None:
    answer = ask("POST", "/v1/estimates", json=QUESTION).json()
    check_shape(SHAPE, answer)
    assert answer["parameters"]["total"] == answer["parameters"]["active"] == 8_030_261_248


@pytest.mark.parametrize("path", PARTS)
def test_each_path_answers_its_part(ask: Ask, path: str) -> None:
    answer = ask("POST", path, json=QUESTION)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json().keys() == PARTS[path] | ALWAYS
    everything = ask("POST", "/v1/estimates", json=QUESTION).json()
    assert answer.json().items() <= everything.items()


@pytest.mark.parametrize("path", PARTS)
def test_the_same_question_is_the_same_bytes_in_either_form(ask: Ask, path: str) -> None:
    posted = ask("POST", path, json=QUESTION)
    assert ask("POST", path, json=QUESTION).content == posted.content
    assert ask("GET", path, params=FLAT).content == posted.content
    assert ask("GET", path, params=dict(reversed(FLAT.items()))).content == posted.content


@pytest.mark.parametrize("path", PARTS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_explanations_come_only_where_asked(ask: Ask, path: str, method: str) -> None:
    for told, explained in (({}, False), ({"explain": "false"}, False), ({"explain": "true"}, True)):
        form: dict[str, Any] = {"params": {**FLAT, **told}} if method == "GET" else {"params": told, "json": QUESTION}
        found = ask(method, path, **form).json()["explain"]
        assert (found is not None) == explained
        for explanation in (found or {}).values():
            assert {"equation", "inputs", "source", "exact"} <= explanation.keys()
            result = evaluate(explanation["expression"], explanation["inputs"])
            assert result == pytest.approx(explanation["value"], rel=1e-9), explanation["path"]


def test_not_fitting_is_an_answer(ask: Ask) -> None:
    body = {**QUESTION, "model": "llama-3.1-405b", "layout": {}}
    answer = ask("POST", "/v1/memory", json=body)
    assert answer.status_code == 200
    found = answer.json()
    assert found["verdict"] == "out_of_memory"
    assert found["memory"]["headroom_bytes"] < 0
    assert found["memory"]["suggestions"]
    assert found["memory"]["oom_probability_fraction"] > 0.5


def test_a_broken_rule_names_field_and_fix(ask: Ask) -> None:
    answer = ask("POST", "/v1/estimates", json={**QUESTION, "recipe": {**QUESTION["recipe"], "global_batch": 7}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/recipe/global_batch"
    assert "8" in error["fix"]
    (error,) = ask("GET", "/v1/estimates", params={**FLAT, "global_batch": "7"}).json()["errors"]
    assert error["parameter"] == "global_batch"


def test_a_rule_between_fields_blames_no_parameter_that_does_not_exist(ask: Ask) -> None:
    posted = ask("POST", "/v1/estimates", json={**QUESTION, "layout": {"tensor": 3}}).json()["errors"]
    assert [error["pointer"] for error in posted] == ["/layout"]
    asked = ask("GET", "/v1/estimates", params={**FLAT, "tensor": "3"}).json()["errors"]
    assert [error.get("parameter") for error in asked] == [None]


def test_a_missing_field_is_asked_for_by_the_name_of_its_form(ask: Ask) -> None:
    posted = ask("POST", "/v1/memory", json={}).json()["errors"]
    assert [error["pointer"] for error in posted] == ["/model", "/recipe/sequence_length", "/cluster"]
    asked = ask("GET", "/v1/memory").json()["errors"]
    assert [error["parameter"] for error in asked] == ["model", "sequence_length", "cluster"]


@pytest.mark.parametrize("path", PARTS)
def test_a_warning_of_a_missing_number_stands_where_the_number_would(path: str, ask: Ask) -> None:
    body = {"model": "llama-3.1-8b", "recipe": {"sequence_length": 8192}, "cluster": {"gpu": "h100", "gpus": 8}}
    warnings = ask("POST", path, json=body).json()["warnings"]
    assert any("totals is null" in warning for warning in warnings) == ("totals" in PARTS[path])


def test_an_unknown_field_is_answered_with_whole_names(ask: Ask) -> None:
    body = {**QUESTION, "model": {"preset": "llama-3.1-8b", "nothing_like_it": 1}}
    (error,) = ask("POST", "/v1/estimates", json=body).json()["errors"]
    *names, rest = error["fix"].partition("the fields are ")[2].split(", ")
    assert rest == "..."
    assert {"preset"} < {*names} < {"preset", *Model.__dataclass_fields__}


def test_every_model_that_can_be_estimated_is(ask: Ask, catalogue: Catalogue) -> None:
    for row in catalogue.models.values():
        recipe = {"sequence_length": 1024, "recompute": "full"}
        answer = ask("POST", "/v1/estimates", json={**QUESTION, "model": row.slug, "recipe": recipe, "layout": {}})
        assert answer.status_code == (422 if row.model is None else 200), (row.slug, answer.text[:500])
        assert "NaN" not in answer.text
        assert "Infinity" not in answer.text


def test_choices_name_meaning_and_source(ask: Ask) -> None:
    choices = ask("GET", "/v1/choices").json()
    assert {"recipe.precision", "recipe.optimizer", "recipe.stack", "layout.schedule"} <= choices.keys()
    for field, names in choices.items():
        assert names, field
        assert all(choice["name"] and choice["meaning"] and choice["source"] for choice in names), field


def test_numbers_are_doubles(ask: Ask) -> None:
    text = ask("POST", "/v1/flops", json=QUESTION).text
    assert json.loads(text) == json.loads(text, parse_int=lambda digits: int(float(digits)))
