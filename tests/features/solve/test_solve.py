"""What is said of an open field is what its question is answered, and whatever keeps it from an answer is told."""

from itertools import pairwise
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.features.compare.compare import compare
from service.features.estimates.answers import answer
from service.features.solve.solve import solution_steps, solve
from service.planner.feasibility import UNKNOWNS
from service.planner.sizing import optimal_size
from service.validation.flat import variable_fields, with_value
from service.validation.questions import read_question
from service.validation.reading import to_wire

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


def test_others_are_let_through_between_one_value_and_the_next(catalogue: Catalogue) -> None:
    limits = {"days": 2}
    stops = sum(
        1 for _ in solution_steps({"unknown": "cluster.gpus", "question": QUESTION, "limits": limits}, catalogue)
    )
    assert stops >= solved(catalogue, "cluster.gpus", limits=limits)["evidence"]["tried"] > 1


CLUSTERS = [
    {"gpu": "h100-sxm5-80gb", "gpus": gpus} for gpus in (16, 64, 256, 1024)
] + [{"gpu": "a100-sxm4-80gb", "gpus": 64}, {"gpu": "h200-sxm5-141gb", "gpus": 64}]  # fmt: skip
PRICES = [{"usd_per_gpu_hour": 2.5}, {"usd_per_gpu_hour": 1.1}]


@pytest.mark.parametrize("days", [0.2, 0.5, 1, 3, 30])
def test_no_cheaper_row_of_the_comparison_keeps_the_deadline(catalogue: Catalogue, days: float) -> None:
    lists = {"question": JOB, "clusters": CLUSTERS, "prices": PRICES}
    found = solved(catalogue, "cluster", **lists, limits={"days": days})
    rows = to_wire(compare(lists, catalogue).answer)["rows"]
    keeping = [row for row in rows if row["verdict"] == "fits" and row["days"]["value"] <= days]
    if not keeping:
        assert found["value"] is None
        assert found["next"]["why_not"]["over_days"] > 0
        return
    best = min(keeping, key=lambda row: row["cost_usd"]["value"])
    assert {name: best[name] for name in found["value"]} == found["value"]
    assert found["evidence"]["value"]["id"] == best["id"]
    cheaper = [row for row in rows if row["cost_usd"]["value"] < best["cost_usd"]["value"]]
    if cheaper:
        nearest = max(cheaper, key=lambda row: row["cost_usd"]["value"])
        assert found["evidence"]["next"]["id"] == nearest["id"]
        assert found["next"]["why_not"]["code"] in {"deadline_missed", "out_of_memory", "at_risk"}
    else:
        assert found["next"] is None


def test_a_budget_bounds_a_cluster_too(catalogue: Catalogue) -> None:
    lists = {"question": JOB, "clusters": CLUSTERS, "prices": PRICES}
    found = solved(catalogue, "cluster", **lists, limits={"days": 1, "cost_usd": 1})
    assert found["value"] is None
    assert found["next"]["why_not"]["over_usd"] > 0


def test_a_budget_buys_the_flop_of_the_question_s_own_model(catalogue: Catalogue) -> None:
    found = solved(catalogue, "model", limits={"cost_usd": 100_000})
    tokens = solved(catalogue, "recipe.training_tokens", limits={"cost_usd": 100_000})
    recipe = {**QUESTION["recipe"], "training_tokens": tokens["value"]}
    run = answer(read_question({**QUESTION, "recipe": recipe}, catalogue), catalogue)
    assert found["value"]["total_flop"] == float(run.flop.total_flop or 0)
    assert found["value"] == to_wire(optimal_size(found["value"]["total_flop"]))
    assert found["evidence"]["value"]["cost_usd"]["value"] <= 100_000


def test_no_size_where_even_the_question_s_own_model_does_not_fit(catalogue: Catalogue) -> None:
    question = {**QUESTION, "model": "llama-3.1-405b"}
    found = solved(catalogue, "model", question=question, limits={"days": 3})
    assert found["value"] is None
    assert found["next"]["why_not"]["code"] == "out_of_memory"


def test_a_capped_size_says_which_it_would_have_been(catalogue: Catalogue) -> None:
    limits = {"total_flop": 1e24, "inference_per_token_flop": 16e9}
    found = solved(catalogue, "model", question=None, limits=limits)
    assert found["value"]["parameters"] == 8e9
    assert found["next"]["why_not"]["code"] == "inference_limit_exceeded"
    assert found["next"]["value"] == optimal_size(1e24).parameters


@pytest.mark.parametrize("wanted", [1 << 20, 1 << 22, 5_000_000, 1 << 25])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen2.5-0.5b"])
def test_a_batch_is_near_what_is_wanted_and_no_nearer_one_is_faster(
    catalogue: Catalogue, wanted: int, model: str
) -> None:
    recipe = {"sequence_length": 4096, "recompute": "full", "global_batch_tokens": wanted}
    question = {**QUESTION, "model": model, "recipe": recipe, "layout": {}}
    found = solved(catalogue, "recipe.global_batch", question=question)
    plan = found["value"]
    assert plan["micro_batch"] * plan["accumulation"] * plan["data"] == plan["global_batch"]
    assert plan["global_batch"] * plan["sequence_length"] == plan["global_batch_tokens"]
    assert abs(plan["global_batch_tokens"] / wanted - 1) <= max(0.02, 64 * 4096 / 2 / wanted)
    pace = found["evidence"]["value"]["tokens_per_s_per_gpu"]["value"]
    beyond = found["next"]["value"]
    assert beyond > 0 == beyond % 64  # sequences, over 64 replicas
    for micro_batch in range(1, 33):
        accumulation = max(1, round(wanted / 4096 / 64 / micro_batch))
        batch = 64 * micro_batch * accumulation
        if abs(batch * 4096 / wanted - 1) > 0.02:
            continue
        other = {**recipe, "micro_batch": micro_batch, "global_batch": batch, "global_batch_tokens": None}
        alone = answer(read_question({**question, "recipe": other}, catalogue), catalogue)
        if micro_batch <= 8 and alone.verdict == "fits":
            assert alone.step.tokens_per_s_per_gpu.value <= pace * (1 + 1e-9)


def test_a_batch_far_from_usual_ones_is_warned_about(catalogue: Catalogue) -> None:
    told = []
    for wanted in (1 << 20, 1 << 23, 1 << 28):
        recipe = {**QUESTION["recipe"], "sequence_length": 4096, "global_batch_tokens": wanted, "training_tokens": 1e13}
        found = solved(catalogue, "recipe.global_batch", question={**QUESTION, "recipe": recipe})
        told.append([line for line in found["warnings"] if line.startswith("a batch of")])
    assert [len(lines) for lines in told] == [1, 0, 2]


def test_a_longer_deadline_never_takes_more_gpus(catalogue: Catalogue) -> None:
    gpus = [solved(catalogue, "cluster.gpus", limits={"days": days})["value"] for days in (1, 2, 4, 8)]
    assert all(sooner >= later for sooner, later in pairwise(gpus))


def test_more_money_buys_more_tokens(catalogue: Catalogue) -> None:
    values: list[Any] = [
        solved(catalogue, "recipe.training_tokens", limits={"cost_usd": usd})["value"] for usd in (1e3, 1e4, 1e5)
    ]
    assert all(few < many for few, many in pairwise(values))
    assert values[2] == pytest.approx(100 * values[0], rel=0.01)
