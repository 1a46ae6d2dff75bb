"""A sweep of plans is so many searches, each row the best plan of its own, or why there is none."""

from typing import Any

import pytest

from service.answers.plans import PlanAnswer
from service.catalogue import Catalogue
from service.errors import Refused
from service.features.plans.search_plans import search
from service.features.sweeps.rows import Rows, Sweep, columns_of, sweep_from_bytes, sweep_to_bytes
from service.features.sweeps.schemas import read_sweep

Body = dict[str, Any]

PLANNED: Body = {
    "kind": "plan",
    "models": ["qwen3-0.6b"],
    "clusters": [{"gpu": "h100-sxm5-80gb", "gpus": 8}],
    "recipes": [{"sequence_length": 4096, "global_batch": 64, "training_tokens": 1e10, "recompute": ["none", "full"]}],
    "layouts": [{"zero_stage": [0, 1], "virtual_pipeline": 1}, {"tensor": 7}],
    "prices": [None, {"usd_per_gpu_hour": 2.5}],
}


def rows(sweep: Sweep) -> list[dict[str, Any]]:
    names = [column.name for column in columns_of(sweep)]
    return [dict(zip(names, cells, strict=True)) for cells in Rows(sweep).of(0, sweep.axes.rows)]


def test_each_row_of_plans_is_the_best_plan(catalogue: Catalogue) -> None:
    sweep = read_sweep(PLANNED, catalogue)
    assert sweep_from_bytes(sweep_to_bytes(sweep)) == sweep
    found = rows(sweep)
    body = {
        "model": "qwen3-0.6b",
        "cluster": PLANNED["clusters"][0],
        "recipe": PLANNED["recipes"][0],
        "layout": PLANNED["layouts"][0],
        "price": PLANNED["prices"][1],
        "top": 1,
    }
    *_, planned = search(body, catalogue)
    assert isinstance(planned, PlanAnswer)
    best, row = planned.plans[0], found[1]
    assert (row["verdict"], row["recompute"], row["schedule"]) == ("fits", best.recipe.recompute, best.layout.schedule)
    assert row["layouts_generated"] == planned.counts.generated
    assert row["layouts_fitting"] == planned.counts.fitting
    assert best.cost_usd is not None
    assert (row["cost_usd"], row["step_seconds"]) == (best.cost_usd.value, best.step_seconds.value)
    assert {name: row[name] for name in ("data", "tensor", "zero_stage", "micro_batch")} == {
        "data": best.layout.data,
        "tensor": best.layout.tensor,
        "zero_stage": best.layout.zero_stage,
        "micro_batch": best.recipe.micro_batch,
    }
    assert found[0]["cost_usd"] is None
    assert found[0]["step_seconds"] == row["step_seconds"]


def test_a_row_without_a_plan_says_why(catalogue: Catalogue) -> None:
    limits = {"limits": {"cost_usd": 1.0}}
    found = rows(read_sweep({**PLANNED, "plan": limits, "layouts": [{"tensor": 8}, {"tensor": 7}]}, catalogue))
    unpriced, tight, *impossible = found
    assert (unpriced["status"], unpriced["reason"]) == (422, "a budget needs a price; give price")
    assert (tight["status"], tight["verdict"], tight["step_seconds"]) == (200, None, None)
    assert "none of the fastest of them keeps to the limits" in tight["reason"]
    assert all(row["step_seconds"] is None and row["reason"] for row in impossible)


def test_what_plans_cannot_be_ranked_without_is_named(catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        read_sweep({**PLANNED, "recipes": [{"sequence_length": 4096}]}, catalogue)
    assert [(one.field, one.code) for one in refused.value.problems] == [("recipes.0.global_batch", "plan_needs_batch")]
    with pytest.raises(Refused) as refused:
        read_sweep({**PLANNED, "plan": {"limits": {"gpus": [16, 8]}}}, catalogue)
    assert [one.field for one in refused.value.problems] == ["plan.limits.gpus"]
