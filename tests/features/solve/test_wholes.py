"""Open nouns and plans: the cheapest cluster of a list, the size that makes most of a budget, the plan of a batch."""

from itertools import pairwise
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.features.compare.compare import compare
from service.features.estimates.answers import answer
from service.planner.sizing import optimal_size
from service.validation.questions import read_question
from service.validation.serialization import to_wire
from tests.features.solve.test_solve import JOB, QUESTION, solved

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
    for micro_batch in range(1, found["next"]["value"]):
        accumulation = max(1, round(wanted / 4096 / 64 / micro_batch))
        batch = 64 * micro_batch * accumulation
        if abs(batch * 4096 / wanted - 1) > 0.02:
            continue
        other = {**recipe, "micro_batch": micro_batch, "global_batch": batch, "global_batch_tokens": None}
        alone = answer(read_question({**question, "recipe": other}, catalogue), catalogue)
        if micro_batch <= 8:
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
