"""Refusals of searches, comparisons, sweeps and diagnoses: the status, the place and the code of each."""

from typing import Any

import pytest

from service.features.diagnose.schemas import EXAMPLE
from tests.api.asking import QUESTION, Ask

BATCH = {"sequence_length": 8192, "global_batch": 128}
OPEN = {"model": "llama-3.1-8b", "recipe": BATCH, "cluster": {"gpu": "h100", "gpus": 8}}
STAGES = [{"until_tokens": 1e11, "global_batch": 64}]
MANY = "".join(f"&gpus={8 * number}" for number in range(1, 401))
COMPARED = {"question": {"model": "llama-3.1-8b", "recipe": BATCH}, "clusters": [{"gpu": "h100", "gpus": 8}]}


@pytest.mark.parametrize(
    ("path", "body", "pointer", "code"),
    [
        ("plans", {**OPEN, "recipe": {"sequence_length": 8192}}, "/recipe/global_batch", "plan_needs_batch"),
        ("plans", {**OPEN, "recipe": {**BATCH, "stages": STAGES}}, "/recipe/stages", "plan_has_one_batch"),
        ("plans", {**OPEN, "limits": {"days": 3}}, "/limits/days", "limit_needs_tokens"),
        ("plans", {**OPEN, "limits": {"cost_usd": 3}}, "/limits/cost_usd", "limit_needs_tokens"),
        ("plans", {**OPEN, "limits": {"gpus": [16, 8]}}, "/limits/gpus", "empty_range"),
        ("plans", {**OPEN, "clusters": [{"gpu": "h100", "gpus": 8}]}, "/cluster", "told_twice"),
        ("plans", {**OPEN, "cluster": None, "clusters": []}, "/clusters", "not_a_list"),
        ("plans", {**OPEN, "layout": {"tensor": []}}, "/layout/tensor", "wrong_length"),
        ("plans", {**OPEN, "why_not": 3}, "/why_not", "not_an_object"),
        ("plans", {**OPEN, "why_not": {"cluster": {}}}, "/why_not", "unknown_field"),
        ("plans", {**OPEN, "why_not": {"recipe": 3}}, "/why_not/recipe", "not_an_object"),
        ("plans", {**OPEN, "why_not": {"recipe": {"optimizer": "lion"}}}, "/why_not/recipe", "unknown_field"),
        ("compare", {**COMPARED, "clusters": [{"gpu": "no gpu", "gpus": 8}]}, "/clusters/0/gpu", "unknown_gpu"),
        ("compare", {**COMPARED, "question": {"recipe": BATCH}}, "/question/model", "required"),
        ("sweeps", {"rows": [3]}, "/rows/0", "not_an_object"),
        ("sweeps", {"rows": [{**OPEN, "colour": 1}]}, "/rows/0", "unknown_field"),
    ],
)
def test_a_wrong_request_is_refused_at_its_place(ask: Ask, path: str, body: Any, pointer: str, code: str) -> None:
    answer = ask("POST", f"/v1/{path}", json=body)
    assert answer.status_code == 422, answer.text
    assert (pointer, code) in [(one["pointer"], one["code"]) for one in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("query", "parameter", "code"),
    [
        (f"gpu=h100&gpu=h200&gpu=b200{MANY}", "gpus", "too_many_rows"),
        ("gpu=h100&gpus=8&sort_by=days&sort_by=days", "sort_by", "repeated"),
    ],
)
def test_a_wrong_query_of_a_comparison_is_refused(ask: Ask, query: str, parameter: str, code: str) -> None:
    answer = ask("GET", f"/v1/compare?model=llama-3.1-8b&sequence_length=8192&{query}")
    assert answer.status_code == 422, answer.text
    assert (parameter, code) in [(one.get("parameter"), one["code"]) for one in answer.json()["errors"]]


def test_an_unknown_rate_card_refuses_its_rows_alone(ask: Ask) -> None:
    prices = [{"rate_card": "no card"}, {"usd_per_gpu_hour": 2.5}]
    answer = ask("POST", "/v1/compare", json={**COMPARED, "prices": prices})
    rows = {row["rate_card"]: row for row in answer.json()["rows"]}
    assert (answer.status_code, rows["no card"]["status"], rows[None]["status"]) == (200, 422, 200)
    assert [one["pointer"] for one in rows["no card"]["errors"]] == ["/prices/0/rate_card"]


@pytest.mark.parametrize(
    "recipe",
    [
        {**BATCH, "recompute": "full"},
        {**BATCH, "precision": "fp32"},
        {**BATCH, "method": {"name": "lora", "rank": 16}},
        {**BATCH, "attention": "eager"},
    ],
)
def test_a_diagnosis_tries_what_else_may_have_run(ask: Ask, recipe: Any) -> None:
    answer = ask("POST", "/v1/diagnose", json={**QUESTION, "recipe": recipe, "message": EXAMPLE})
    assert answer.status_code == 200, answer.text
    assert answer.json()["changes"] or answer.json()["assumptions"]
