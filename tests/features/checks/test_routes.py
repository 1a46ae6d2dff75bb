"""POST /v1/check answers a scheduler with a verdict and one line; only a question that cannot be read is an error."""

import json

import pytest

from service.api.openapi import request_bodies
from tests.api.asking import QUESTION, Ask

CHECKS = request_bodies("createCheck")


@pytest.mark.parametrize("name", CHECKS)
def test_every_example_of_the_contract_is_answered(name: str, ask: Ask) -> None:
    answer = ask("POST", "/v1/check", json=CHECKS[name]["value"])
    assert answer.status_code == 200
    found = answer.json()
    assert found["verdict"] in {"ok", "warn", "deny"}
    assert found["fits"] == (found["verdict"] != "deny")
    assert 0 < len(found["reason"]) <= 255


def test_a_check_agrees_with_the_estimate(ask: Ask) -> None:
    check, estimate = (ask("POST", path, json=QUESTION).json() for path in ("/v1/check", "/v1/estimates"))
    assert check["id"] == estimate["id"]
    assert check["device_peak_bytes"] == estimate["memory"]["device_peak_bytes"]
    assert check["gpu_hours"] == estimate["totals"]["gpu_hours"]
    assert check["cost_usd"] == estimate["totals"]["cost_usd"]


def test_not_fitting_is_an_answer(ask: Ask) -> None:
    answer = ask("POST", "/v1/check", json={**QUESTION, "model": "llama-3.1-70b"})
    assert (answer.status_code, answer.json()["verdict"]) == (200, "deny")


@pytest.mark.parametrize("text", ["1e999", "NaN", "9" * 100])
def test_a_limit_that_no_field_can_hold_is_named_too(text: str, ask: Ask) -> None:
    body = json.dumps({**QUESTION, "limits": {"days": "@here@"}}).replace('"@here@"', text)
    answer = ask("POST", "/v1/check", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/limits/days"]


def test_a_query_parameter_is_not_ignored(ask: Ask) -> None:
    assert ask("POST", "/v1/check?explain=true", json=QUESTION).status_code == 422
