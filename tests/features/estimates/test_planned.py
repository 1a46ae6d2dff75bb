"""Questions whose layout is planned: as fast as their defaults or faster, with pins kept, and the plain answer's id."""

from typing import Any

import pytest

from service.answers.estimates import Answer
from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.features.batch.batch import answer_one
from service.features.checks.check import check
from service.features.estimates.answers import answer
from service.features.estimates.planned import planned
from service.features.sweeps.schemas import read_sweep
from service.planner.planned import VERDICTS
from service.validation.questions import read_question
from service.validation.reading import to_wire
from tests.api.asking import Ask

CATALOGUE = shipped_catalogue()
BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 64, "training_tokens": 1e11},
    "layout": {"auto": True},
    "cluster": {"gpu": "h100", "gpus": 16},
    "price": {"usd_per_gpu_hour": 2.0},
}


def asked(layout: dict[str, Any] | None, recipe: dict[str, Any] | None = None, **changes: Any) -> Answer:
    body = {**BODY, **changes, "layout": layout, "recipe": {**BODY["recipe"], **(recipe or {})}}
    return answer(read_question(body, CATALOGUE, planner=planned), CATALOGUE)


STACKS = ["megatron-core", "torchtitan", "fsdp1", "deepspeed", "nanotron", "transformers"]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize(("model", "gpus"), [("llama-3.2-1b", 4), ("llama-3.1-8b", 16), ("llama-3.1-8b", 1)])
def test_a_planned_layout_is_no_worse_than_that_of_defaults(stack: str, model: str, gpus: int) -> None:
    where: dict[str, Any] = {"model": model, "cluster": {"gpu": "h100", "gpus": gpus}}
    best, usual = (asked(layout, {"stack": stack}, **where) for layout in ({"auto": True}, None))
    assert VERDICTS.index(best.verdict) <= VERDICTS.index(usual.verdict)
    if best.verdict == usual.verdict == "fits":
        assert best.step.step_seconds.value <= usual.step.step_seconds.value


@pytest.mark.parametrize("stack", STACKS)
def test_a_planned_layout_is_the_plain_answer_of_itself(stack: str) -> None:
    best = asked({"auto": True}, {"stack": stack})
    wire: Any = to_wire(best.resolved)
    plain = read_question({**BODY, "recipe": wire["recipe"], "layout": wire["layout"]}, CATALOGUE)
    assert answer(plain, CATALOGUE).id == best.id


PINS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tensor": 4}, {}),
    ({"pipeline": 2, "zero_stage": 1}, {}),
    ({"tensor": [2, 4]}, {"micro_batch": 2}),
    ({}, {"recompute": "full"}),
    ({"data": 8}, {}),
]


@pytest.mark.parametrize(("layout", "recipe"), PINS)
def test_pins_are_kept_and_stated(layout: dict[str, Any], recipe: dict[str, Any]) -> None:
    best = asked({"auto": True, **layout}, recipe)
    for part, given in ((best.resolved.layout, layout), (best.resolved.recipe, recipe)):
        for name, value in given.items():
            assert getattr(part, name) in (value if isinstance(value, list) else [value])
    stated = next(words for words in best.assumptions if "are planned" in words)
    for name, value in {**layout, **recipe}.items():
        assert f"{name} {f'one of {len(value)}' if isinstance(value, list) else value}" in stated


def test_a_batch_that_is_left_out_is_assumed_and_stated() -> None:
    best = asked({"auto": True}, {"global_batch": None})
    assert best.resolved.recipe.global_batch == 16
    assert any("global_batch is assumed to be 16" in words for words in best.assumptions)


def test_where_none_fits_the_smallest_is_answered() -> None:
    best = asked({"auto": True}, cluster={"gpu": "h100", "gpus": 1})
    assert best.verdict == "out_of_memory"
    assert any("none fits" in words for words in best.assumptions)


WRONG: list[tuple[dict[str, Any], dict[str, Any], tuple[str, str]]] = [
    ({"tensor": 3}, {}, ("layout", "replica_divides_cluster")),
    ({"auto": "yes"}, {}, ("layout.auto", "not_true_or_false")),
    ({"tensor": "many"}, {}, ("layout.tensor", "not_a_whole_number")),
    ({"tensors": 2}, {}, ("layout.tensors", "unknown_field")),
    ({}, {"stages": [{"until_tokens": 1e10, "global_batch": 32}]}, ("recipe.stages", "plan_has_one_batch")),
]


@pytest.mark.parametrize(("layout", "recipe", "expected"), WRONG)
def test_pins_that_cannot_be_are_refused(
    layout: dict[str, Any], recipe: dict[str, Any], expected: tuple[str, str]
) -> None:
    with pytest.raises(Refused) as refused:
        asked({"auto": True, **layout}, recipe)
    assert [(problem.field, problem.code) for problem in refused.value.problems] == [expected]


def test_a_layout_that_is_not_planned_is_that_of_its_fields() -> None:
    assert asked({"auto": False, "tensor": 2}).id == asked({"tensor": 2}).id


def test_other_names_are_pins_too() -> None:
    assert asked({"auto": True, "tp": 4}).id == asked({"auto": True, "tensor": 4}).id


def test_checks_batches_and_sweeps_refuse_to_plan() -> None:
    with pytest.raises(Refused) as refused:
        check(BODY, CATALOGUE)
    assert refused.value.problems[0].code == "layout_is_not_planned_here"
    error = answer_one({"kind": "estimate", "body": BODY}, CATALOGUE).error
    assert isinstance(error, Refused)
    assert error.problems[0].code == "layout_is_not_planned_here"
    sweep = {f"{name}s": [BODY[name]] for name in ("model", "cluster", "recipe", "layout")}
    with pytest.raises(Refused) as refused:
        read_sweep(sweep, CATALOGUE)
    assert {problem.code for problem in refused.value.problems} == {"layout_is_not_planned_here"}


FLAT = "model=llama-3.1-8b&seq=8192&gbs=64&gpu=h100&gpus=16&auto=true&training_tokens=1e11&usd_per_gpu_hour=2"


@pytest.mark.parametrize("path", ["estimates", "memory", "flops", "gpu-hours"])
def test_the_service_plans_in_every_form(ask: Ask, path: str) -> None:
    nested, flat = ask("POST", f"/v1/{path}", json=BODY), ask("GET", f"/v1/{path}?{FLAT}")
    assert nested.json() == flat.json()
    assert nested.json()["id"] == asked({"auto": True}).id


def test_a_cell_and_a_timeline_plan_too(ask: Ask) -> None:
    best = asked({"auto": True})
    assert float(ask("GET", f"/v1/cell/step_seconds?{FLAT}").text) == pytest.approx(best.step.step_seconds.value)
    assert ask("POST", "/v1/memory/timeline", json=BODY).json()["id"] == best.id
    assert ask("POST", "/v1/estimates?explain=true", json=BODY).json()["id"] == best.id
