"""Files that change their job: refused, written where that is allowed, and reported with the effect."""

from typing import Any

import pytest

from service.formats.targets import TARGETS
from tests.api.asking import QUESTION, Ask

EAGER = {"name": "torchtitan", "implementation": "eager", "cross_entropy": "eager"}
"""torchtitan where nothing is compiled, as in a file that asks for no compiler."""


def asking(stack: Any = None, layout: dict[str, Any] | None = None, **recipe: Any) -> dict[str, Any]:
    """The question with other fields of the recipe."""
    stated = {**QUESTION["recipe"], **recipe, **({"stack": stack} if stack else {})}
    return {**QUESTION, "recipe": stated, "layout": QUESTION["layout"] if layout is None else layout}


LORA = asking("torchtitan", {}, method="lora")

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *((target, LORA, "recipe.method") for target in ("megatron-lm", "megatron-bridge", "torchtitan", "nanotron")),
    ("sbatch", LORA, "recipe.method"),
    ("torchtitan", {**asking("torchtitan", {}), "model": "llama-2-7b"}, "model"),
    ("megatron-lm", asking("megatron-core", {"tensor": 2, "offload": "moments"}), "layout.offload"),
    ("torchtitan", asking("torchtitan", precision="fp8-tensorwise"), "recipe.precision"),
]


@pytest.mark.parametrize(("target", "question", "field"), REFUSED)
def test_a_file_that_trains_otherwise_is_refused_unless_that_is_allowed(
    ask: Ask, target: str, question: dict[str, Any], field: str
) -> None:
    answer = ask("POST", f"/v1/exports/{target}", json=question)
    assert answer.status_code == 422, answer.text
    pointer = f"/{field.replace('.', '/')}"
    problem = {one["pointer"]: one for one in answer.json()["errors"]}[pointer]
    assert problem["code"] == "loses_too_much"
    assert "allow_loss=true" in problem["fix"]
    written = ask("POST", f"/v1/exports/{target}", json=question, params={"allow_loss": "true"}).json()
    loss = written["loss"]
    assert field in loss["fields"]
    assert loss["after"] is None or max(abs(loss["memory_fraction"]), abs(loss["cost_fraction"])) > 0.05
    assert field in written["content"]


@pytest.mark.parametrize(
    ("target", "question"),
    [
        ("accelerate", asking("transformers", {}, method="lora")),
        ("deepspeed", asking("deepspeed", {}, method="lora")),
        ("torchtitan", asking("torchtitan", vocabulary_multiple=2)),
        ("nanotron", QUESTION),
    ],
)
def test_what_is_left_to_the_script_or_changes_little_is_written(
    ask: Ask, target: str, question: dict[str, Any]
) -> None:
    answer = ask("POST", f"/v1/exports/{target}", json=question)
    assert answer.status_code == 200, answer.text
    loss = answer.json()["loss"]
    assert loss is None or 0 < abs(loss["memory_fraction"]) < 0.05


def test_the_effect_of_other_software_is_that_of_the_same_question_asked_of_it(ask: Ask) -> None:
    found = ask("POST", "/v1/exports/torchtitan", json=QUESTION).json()["stack_change"]
    same = asking(layout={"tensor": 2, "zero_stage": 3}, stack=EAGER)
    own, other = (ask("POST", "/v1/estimates", json=one).json() for one in (QUESTION, same))
    assert (found["asked"], found["written"], found["why"]) == ("megatron-core", "torchtitan", None)
    for figures, answer in ((found["before"], own), (found["after"], other)):
        assert figures["device_peak_bytes"] == answer["memory"]["device_peak_bytes"]["value"]
        assert figures["step_seconds"] == answer["step"]["step_seconds"]["value"]
        assert figures["cost_usd"] == answer["totals"]["cost_usd"]["value"]
    assert ask("POST", "/v1/exports/megatron-lm", json=QUESTION).json()["stack_change"] is None


def test_software_that_does_not_run_the_question_is_reported_with_the_reason(ask: Ask) -> None:
    question = asking("megatron-core", {"tensor": 2, "virtual_pipeline": 2, "pipeline": 2})
    found = ask("POST", "/v1/exports/nanotron", json=question, params={"allow_loss": "true"}).json()
    assert found["stack_change"]["after"] is None
    assert found["stack_change"]["why"]
    assert "layout.virtual_pipeline" in found["loss"]["fields"]


def test_nodes_that_a_launcher_fills_otherwise_are_estimated(ask: Ask) -> None:
    question = {**asking(layout={}, global_batch=120), "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 12}}
    found = ask("POST", "/v1/exports/sbatch", json=question, params={"allow_loss": "true"}).json()
    assert found["loss"]["fields"] == ["cluster.gpus_per_node", "recipe.training_tokens"]
    assert found["loss"]["cost_fraction"] > 0


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_file_does_not_hold_is_in_its_comments(ask: Ask, target: str) -> None:
    question = asking("fsdp1", {}) if TARGETS[target].kind == "launcher" else QUESTION
    found = ask("POST", f"/v1/exports/{target}", json=question, params={"allow_loss": "true"}).json()
    comments = "".join(line for line in found["content"].split("\n") if line.startswith("#"))
    for one in found["not_expressible"]:
        assert (f"  {one['field']}" in comments) == (found["media_type"] != "application/json")
