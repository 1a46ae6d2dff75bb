"""What is said of an open field is what its question is answered, and whatever keeps it from an answer is told."""

from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.features.estimates.answers import answer
from service.features.solve.solve import solution_steps, solve
from service.planner.feasibility import UNKNOWNS
from service.validation.flat import variable_fields, with_value
from service.validation.questions import read_question
from service.validation.serialization import to_wire

QUESTION: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "recompute": "full", "training_tokens": 1e11},
    "layout": {"tensor": 2},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 64},
    "price": {"usd_per_gpu_hour": 2.5},
}
JOB = {name: QUESTION[name] for name in ("model", "recipe", "layout")}
LIMITS: dict[str, dict[str, Any]] = {"recipe.training_tokens": {"cost_usd": 10_000}}


def solved(catalogue: Catalogue, unknown: str, **body: Any) -> dict[str, Any]:
    found = to_wire(solve({"unknown": unknown, "question": QUESTION, **body}, catalogue))
    assert isinstance(found, dict)
    return found


def refusal(catalogue: Catalogue, body: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        solve(body, catalogue)
    assert all(problem.message and problem.fix for problem in refused.value.problems)
    return [(problem.field, problem.code) for problem in refused.value.problems]


@pytest.mark.parametrize("name", UNKNOWNS)
def test_both_values_are_what_their_questions_are_answered(catalogue: Catalogue, name: str) -> None:
    found = solved(catalogue, name, limits=LIMITS.get(name))
    for part, value in (("value", found["value"]), ("next", found["next"]["value"])):
        changes = found["changes"] if part == "value" else {name: value}
        if name == "model.hidden_size" and part == "next":
            continue  # its proportions go with it
        body: Any = QUESTION
        for field, changed in changes.items():
            body = with_value(body, variable_fields()[field], changed)
        alone = to_wire(answer(read_question(body, catalogue), catalogue))
        told = found["evidence"][part]
        assert (told["id"], told["verdict"]) == (alone["id"], alone["verdict"])
        for number in ("device_peak_bytes", "usable_bytes", "oom_probability_fraction"):
            assert told[number] == alone["memory"][number]
        for number in ("gpu_hours", "days", "cost_usd"):
            assert told[number] == alone["totals"][number]
    assert found["evidence"]["value"]["verdict"] == "fits"


def test_missing_bytes_are_what_would_make_the_next_value_fit(catalogue: Catalogue) -> None:
    found = solved(catalogue, "recipe.micro_batch")
    peak, missing = found["evidence"]["next"]["device_peak_bytes"], found["next"]["why_not"]["missing_bytes"]
    usable = found["evidence"]["next"]["usable_bytes"]
    assert 0 < missing < peak["value"] - found["evidence"]["value"]["device_peak_bytes"]["value"]
    assert peak["value"] - missing < usable


def test_headroom_asks_for_more(catalogue: Catalogue) -> None:
    wide = solved(catalogue, "recipe.sequence_length")
    tight = solved(catalogue, "recipe.sequence_length", limits={"headroom_fraction": 0.3})
    assert tight["value"] < wide["value"]
    assert tight["next"]["why_not"]["code"] == "headroom_missing"
    peak = tight["evidence"]["value"]["device_peak_bytes"]["value"]
    assert peak <= 0.7 * tight["evidence"]["value"]["usable_bytes"]


def test_the_high_end_of_an_interval_asks_for_more(catalogue: Catalogue) -> None:
    predicted = solved(catalogue, "cluster.gpus", limits={"days": 2})
    certain = solved(catalogue, "cluster.gpus", limits={"days": 2, "end": "high"})
    assert predicted["value"] < certain["value"]
    assert certain["evidence"]["value"]["days"]["high"] <= 2 < certain["evidence"]["next"]["days"]["high"]
    assert certain["next"]["why_not"]["code"] == "deadline_missed"
    assert certain["next"]["why_not"]["over_days"] == pytest.approx(certain["evidence"]["next"]["days"]["high"] - 2)


def test_values_that_a_rule_refuses_are_stepped_over_and_the_last_one_says_why(catalogue: Catalogue) -> None:
    recipe = {**QUESTION["recipe"], "global_batch": 96}
    found = solved(catalogue, "recipe.micro_batch", question={**QUESTION, "recipe": recipe})
    assert found["value"] == 3
    assert found["next"]["why_not"]["code"] == "accumulation_is_whole"
    assert found["evidence"]["next"] is None
    layers = solved(catalogue, "model.num_hidden_layers", question={**QUESTION, "layout": {"tensor": 2, "pipeline": 8}})
    assert layers["value"] % 8 == 0
    assert layers["next"]["value"] == layers["value"] + 8


@pytest.mark.parametrize("name", ["recipe.micro_batch", "recipe.sequence_length", "model.hidden_size", "cluster.gpus"])
def test_where_nothing_fits_the_answer_says_what_is_missing(catalogue: Catalogue, name: str) -> None:
    question = {**QUESTION, "model": "llama-3.1-405b", "layout": {"tensor": 2, "zero_stage": 0}}
    if name == "model.hidden_size":
        question = {**question, "limits": None, "recipe": {"sequence_length": 1 << 22, "recompute": "none"}}
        question.pop("limits")
    found = solved(catalogue, name, question=question)
    assert found["value"] is None
    assert found["changes"] == {}
    assert found["evidence"]["value"] is None
    assert found["next"]["why_not"]["missing_bytes"] > 1e9


def test_the_fewest_gpus_need_no_number_of_their_own(catalogue: Catalogue) -> None:
    without = solved(catalogue, "cluster.gpus", question={**QUESTION, "cluster": {"gpu": "h100-sxm5-80gb"}})
    assert without["value"] == solved(catalogue, "cluster.gpus")["value"]
    lengthless = {name: value for name, value in QUESTION["recipe"].items() if name != "sequence_length"}
    found = solved(catalogue, "recipe.sequence_length", question={**QUESTION, "recipe": lengthless})
    assert found["value"] == solved(catalogue, "recipe.sequence_length")["value"]


def test_a_multiple_is_kept(catalogue: Catalogue) -> None:
    free = solved(catalogue, "recipe.sequence_length")["value"]
    found = solved(catalogue, "recipe.sequence_length", multiple_of=512)
    assert found["value"] == free // 512 * 512
    assert found["next"]["value"] == found["value"] + 512


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"question": QUESTION}, [("unknown", "required")]),
        ({"question": QUESTION, "unknown": "micro_batch"}, [("unknown", "not_a_choice")]),
        ({"question": QUESTION, "unknown": 3}, [("unknown", "not_a_choice")]),
        ({"unknown": "recipe.micro_batch"}, [("question", "required")]),
        ({"unknown": "recipe.micro_batch", "question": []}, [("question", "not_an_object")]),
        ({"unknown": "recipe.micro_batch", "question": QUESTION, "limit": {}}, [("", "unknown_field")]),
        (
            {"unknown": "recipe.micro_batch", "question": QUESTION, "limits": {"dayz": 1, "days": -1}},
            [("limits", "unknown_field"), ("limits.days", "out_of_range")],
        ),
        (
            {"unknown": "recipe.micro_batch", "question": QUESTION, "limits": {"days": 3, "total_flop": 1e20}},
            [("limits.days", "limit_not_read"), ("limits.total_flop", "limit_not_read")],
        ),
        ({"unknown": "recipe.training_tokens", "question": QUESTION}, [("limits", "required")]),
        (
            {
                "unknown": "cluster.gpus", "limits": {"days": 3, "cost_usd": 5},
                "question": {**QUESTION, "price": None, "recipe": {"sequence_length": 8192}},
            },
            [("limits.days", "not_known"), ("limits.cost_usd", "not_known")],
        ),
        (
            {"unknown": "recipe.micro_batch", "question": {**QUESTION, "layout": {"tensor": 3}}},
            [("question.layout", "replica_divides_cluster")],
        ),
        (
            {"unknown": "recipe.micro_batch", "question": {**QUESTION, "model": "llama-9"}},
            [("question.model", "unknown_model")],
        ),
        (
            {"unknown": "recipe.micro_batch", "question": QUESTION, "clusters": ["dgx-h100"]},
            [("clusters", "not_read")],
        ),
        ({"unknown": "model", "limits": {"total_flop": 1e20}, "multiple_of": 2}, [("multiple_of", "not_read")]),
        ({"unknown": "model", "question": QUESTION}, [("limits", "required")]),
        (
            {"unknown": "model", "question": QUESTION, "limits": {"total_flop": 1e20, "days": 1}},
            [("limits.days", "told_twice"), ("question", "told_twice")],
        ),
        (
            {"unknown": "recipe.global_batch", "question": QUESTION},
            [("question.recipe.global_batch_tokens", "required")],
        ),
        ({"unknown": "cluster", "question": JOB, "clusters": ["dgx-h100"]}, [("clusters", "no_cost_known")]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_where_it_stands(
    catalogue: Catalogue, body: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert refusal(catalogue, body) == expected


def test_others_are_let_through_between_one_value_and_the_next(catalogue: Catalogue) -> None:
    limits = {"days": 2}
    stops = sum(
        1 for _ in solution_steps({"unknown": "cluster.gpus", "question": QUESTION, "limits": limits}, catalogue)
    )
    assert stops >= solved(catalogue, "cluster.gpus", limits=limits)["evidence"]["tried"] > 1
