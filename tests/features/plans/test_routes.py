"""POST /v1/plans: one answer, or events with how far the search is; what is wrong is told before either."""

import json
from typing import Any

import pytest

from service.api.openapi import EVENTS, request_bodies
from tests.api import computations
from tests.api.asking import QUESTION, Ask
from tests.api.test_contract import check
from tests.echoes import beyond_echo

PLANS = request_bodies("createPlans")
SMALL: dict[str, Any] = {**QUESTION, "layout": {"context": 1}}


@pytest.mark.parametrize("name", PLANS)
def test_every_example_is_answered_as_the_contract_says(ask: Ask, document: dict[str, Any], name: str) -> None:
    answer = ask("POST", "/v1/plans", json=PLANS[name]["value"])
    check(document, document["paths"]["/v1/plans"]["post"]["responses"]["200"], answer.json())
    assert answer.json()["plans"]


def test_a_plan_is_a_question_for_an_estimate(ask: Ask) -> None:
    best = ask("POST", "/v1/plans", json=SMALL).json()["plans"][0]
    body = {**SMALL, "recipe": best["recipe"], "layout": best["layout"], "cluster": best["cluster"]}
    estimate = ask("POST", "/v1/estimates", json=body).json()
    assert estimate["step"]["step_seconds"] == best["step_seconds"]
    assert estimate["totals"]["cost_usd"]["value"] == best["cost_usd"]["value"]


def events(text: str) -> list[tuple[str, Any]]:
    """Name and data of each event of a stream."""
    found = []
    for event in text.split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_stream_tells_of_progress_and_ends_with_the_plans(ask: Ask) -> None:
    whole = ask("POST", "/v1/plans", json=SMALL).json()
    answer = ask("POST", "/v1/plans", json=SMALL, headers={"Accept": EVENTS})
    assert answer.headers["content-type"].startswith(EVENTS)
    (first, counts), *_, (last, plans) = events(answer.text)
    assert (first, last) == ("progress", "plans")
    assert 0 < counts["generated"] <= plans["counts"]["generated"]
    assert plans == whole


def test_what_goes_wrong_on_the_way_is_told_by_an_event(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.features.plans.routes.plans_json", computations.breaking)
    answer = ask("POST", "/v1/plans", json=SMALL, headers={"Accept": EVENTS})
    (_, _), (name, problem) = events(answer.text)
    assert (name, problem["status"], problem["request_id"]) == ("problem", 422, answer.headers["x-request-id"])
    assert problem["errors"][0]["pointer"] == "/layout/tensor"


@pytest.mark.parametrize("accept", ["application/json", EVENTS])
def test_what_is_wrong_is_a_problem_document_either_way(ask: Ask, accept: str) -> None:
    body = {**SMALL, "layout": {"tensor": [1, "c4n4ry"]}}
    answer = ask("POST", "/v1/plans", json=body, headers={"Accept": accept})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["pointer"] == "/layout/tensor"
    assert "c4n4ry" not in beyond_echo(answer)
