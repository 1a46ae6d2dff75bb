"""POST /v1/memory?method= answers as another tool would; the path without it, and its flat form, stay as they are."""

from typing import Any

import pytest

from service.estimator.other_tools.comparison import TOOLS
from tests.api.asking import QUESTION, Ask
from tests.api.test_contract import check

PLAIN: dict[str, Any] = {
    "model": "smollm3-3b",
    "recipe": {"sequence_length": 4096},
    "cluster": {"gpu": "h100", "gpus": 1},
}


@pytest.mark.parametrize("method", TOOLS)
def test_every_tool_answers_as_the_contract_says(ask: Ask, document: dict[str, Any], method: str) -> None:
    answer = ask("POST", f"/v1/memory?method={method}", json=PLAIN)
    assert answer.status_code == 200, answer.text
    check(document, document["paths"]["/v1/memory"]["post"]["responses"]["200"], answer.json())
    found, ours = answer.json(), ask("POST", "/v1/memory", json=PLAIN).json()
    assert (found["method"], found["tool"], found["source"]) == (method, TOOLS[method].tool, TOOLS[method].source)  # type: ignore[index]  # names of the table
    assert found["ours_bytes"] == ours["memory"]["allocated_peak_bytes"]["value"]
    assert {name: found[name] for name in ("id", "resolved", "versions", "warnings")} == {
        name: ours[name] for name in ("id", "resolved", "versions", "warnings")
    }


def test_the_same_question_is_the_same_bytes_and_without_method_our_own_answer(ask: Ask) -> None:
    path = "/v1/memory?method=nanotron-predict-memory"
    assert ask("POST", path, json=PLAIN).content == ask("POST", path, json=PLAIN).content
    assert "verdict" in ask("POST", "/v1/memory", json=PLAIN).json()


def test_what_the_formula_does_not_read_is_refused_with_its_pointer(ask: Ask) -> None:
    body = {**PLAIN, "recipe": {"sequence_length": 4096, "recompute": "full", "method": "lora"}}
    answer = ask("POST", "/v1/memory?method=nanotron-predict-memory", json=body)
    assert answer.status_code == 422
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [
        ("/recipe/method", "method_trains_everything"),
        ("/recipe/recompute", "method_recomputes_so"),
    ]
    assert ask("POST", "/v1/memory", json=body).status_code == 200


@pytest.mark.parametrize(
    ("query", "parameter", "code"),
    [
        ("method=guess", "method", "not_a_choice"),
        ("method=", "method", "not_text"),
        ("method=accelerate&method=accelerate", "method", "repeated"),
        ("method=accelerate&explain=true", "explain", "not_with_method"),
        ("explain=maybe", "explain", "not_true_or_false"),
    ],
)
def test_method_is_one_of_the_tools_once_and_without_our_equations(
    ask: Ask, query: str, parameter: str, code: str
) -> None:
    answer = ask("POST", f"/v1/memory?{query}", json=PLAIN)
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["parameter"], error["code"]) == (422, parameter, code)
    assert code != "not_a_choice" or all(name in error["fix"] for name in TOOLS)


@pytest.mark.parametrize("path", ["/v1/estimates", "/v1/flops", "/v1/gpu-hours"])
def test_only_memory_can_be_asked_of_other_tools(ask: Ask, path: str) -> None:
    (error,) = ask("POST", f"{path}?method=accelerate", json=QUESTION).json()["errors"]
    assert error["code"] == "unknown_parameter"


def test_in_the_flat_form_method_is_what_is_trained(ask: Ask) -> None:
    flat = "model=smollm3-3b&sequence_length=4096&gpu=h100&gpus=1"
    assert ask("GET", f"/v1/memory?{flat}&method=lora").json()["resolved"]["recipe"]["method"]["name"] == "lora"
    assert ask("GET", f"/v1/memory?{flat}&method=accelerate").status_code == 422


def test_an_earlier_catalogue_answers_too(ask: Ask) -> None:
    revision = ask("POST", "/v1/memory", json=PLAIN).json()["versions"]["catalogue"]
    assert ask("POST", f"/v1/memory?method=accelerate&rev={revision}", json=PLAIN).status_code == 200


def test_choices_list_every_tool_with_its_source(ask: Ask) -> None:
    listed = {row["name"]: row for row in ask("GET", "/v1/choices").json()["method"]}
    assert listed.keys() == TOOLS.keys()
    assert all(listed[name]["source"] == tool.source for name, tool in TOOLS.items())
