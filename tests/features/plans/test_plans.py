"""Plans keep their limits, rank by the objective, and explain why another layout is not the best."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import exp
from typing import Any

import pytest

from service.answers.plans import PlanAnswer
from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.estimator import estimate
from service.estimator.run.totals import PLAN_RESIDUALS
from service.features.plans.search_plans import search
from service.validation.questions import read_question
from service.validation.reading import to_wire

CATALOGUE = shipped_catalogue()
BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 128, "training_tokens": 1e12},
    "cluster": {"gpu": "h100", "gpus": 32},
    "price": {"usd_per_gpu_hour": 2.0},
    "layout": {"context": 1, "virtual_pipeline": [1, 2], "sequence_parallel": True, "tensor": [2, 4, 8]},
}


def planned(**changes: Any) -> PlanAnswer:
    *_, answer = search({**BODY, **changes}, CATALOGUE)
    assert isinstance(answer, PlanAnswer)
    return answer


RANGE = {"gpus": [8, 32]}


@cache
def ranged(objective: str) -> PlanAnswer:
    """Plans on any number of GPUs of a range."""
    return planned(objective=objective, limits=RANGE, top=50)


def codes(**changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        planned(**changes)
    return [(problem.field, problem.code) for problem in refused.value.problems]


def test_a_plan_is_what_an_estimate_of_it_says() -> None:
    for row in planned(top=5).plans:
        wire: Any = to_wire(row)
        asked = read_question({**BODY, "recipe": wire["recipe"], "layout": wire["layout"]}, CATALOGUE)
        answer = estimate(asked.question)
        assert answer.verdict == "fits"
        assert answer.totals is not None
        assert answer.step.step_seconds == row.step_seconds
        given = answer.totals
        for own, plan in ((getattr(given, name), getattr(row, name)) for name in TAKEN):
            assert (own.value, own.basis) == (plan.value, plan.basis)
            assert (plan.low, plan.high) == (min(own.low, own.value * LOW), max(own.high, own.value * HIGH))
            assert plan.high - plan.low > own.high - own.low


TAKEN = ("days", "gpu_hours", "cost_usd", "energy_kwh")
LOW, HIGH = (exp(end) for end in PLAN_RESIDUALS)


def test_plans_name_what_their_intervals_rest_on() -> None:
    basis = "times what their best plan takes"
    assert any(basis in words and f"{HIGH:.2f}" in words for words in planned().assumptions)
    without = {name: value for name, value in BODY["recipe"].items() if name != "training_tokens"}
    assert not any(basis in words for words in planned(recipe=without).assumptions)


def test_a_layout_that_is_asked_about_has_its_own_interval() -> None:
    named = planned(why_not={"layout": {"tensor": 8}, "recipe": {"recompute": "full"}}).why_not
    assert named is not None
    assert named.plan is not None
    wire: Any = to_wire(named.plan)
    asked = read_question({**BODY, "recipe": wire["recipe"], "layout": wire["layout"]}, CATALOGUE)
    totals = estimate(asked.question).totals
    assert totals is not None
    assert named.plan.gpu_hours == totals.gpu_hours


def test_plans_are_ranked_and_say_why_they_are_slower() -> None:
    plans = planned(top=8).plans
    assert [row.rank for row in plans] == list(range(1, 9))
    days = [row.days.value for row in plans if row.days]
    assert days == sorted(days)
    assert plans[0].reason is None
    assert all(row.reason for row in plans if row.step_seconds.value > plans[0].step_seconds.value)


def test_lists_restrict_and_values_pin() -> None:
    plans = planned(top=100, recipe={**BODY["recipe"], "micro_batch": [1, 2], "recompute": "full"}).plans
    assert {row.layout.tensor for row in plans} <= {2, 4, 8}
    assert {row.recipe.micro_batch for row in plans} <= {1, 2}
    assert {str(row.recipe.recompute) for row in plans} == {"full"}


@pytest.mark.parametrize("objective", ["time", "cost", "gpus", "energy"])
def test_the_best_has_least_of_what_is_asked_for(objective: str) -> None:
    plans = ranged(objective).plans
    least: dict[str, Callable[[Any], float]] = {
        "time": lambda row: row.days.value,
        "cost": lambda row: row.cost_usd.value,
        "gpus": lambda row: row.cluster.gpus,
        "energy": lambda row: row.energy_kwh.value,
    }
    found = [least[objective](row) for row in plans]
    assert found == sorted(found)


def test_every_number_of_gpus_in_the_range_is_tried() -> None:
    sizes = {row.cluster.gpus for row in ranged("gpus").pareto}
    assert {32} <= sizes <= {8, 16, 32}


def test_limits_are_kept() -> None:
    free = ranged("time")
    days = sorted(row.days.value for row in free.plans if row.days)
    limit = days[len(days) // 2]
    kept = planned(limits={**RANGE, "days": limit}, top=20)
    assert kept.plans
    assert all(row.days is not None and row.days.value <= limit for row in (*kept.plans, *kept.pareto))
    roomy = planned(limits={"headroom_fraction": 0.4})
    assert roomy.plans
    assert all(row.headroom_bytes >= 0.4 * 79 * 2**30 for row in roomy.plans)
    none = planned(limits={"days": 0.001})
    assert none.plans == ()
    assert any("none of the fastest of them keeps to the limits" in said for said in none.warnings)


def test_of_the_front_no_plan_beats_another() -> None:
    front = ranged("time").pareto
    assert len(front) > 2
    points = [(row.days.value, row.cost_usd.value, -row.headroom_bytes) for row in front if row.days and row.cost_usd]
    for point in points:
        assert not any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points)


def test_clusters_compete() -> None:
    clusters = ["dgx-a100", {"gpu": "h100", "gpus": 8}, {"gpu": "h200", "gpus": 8}]
    answer = planned(cluster=None, clusters=clusters, top=30)
    assert {row.cluster.gpu for row in answer.plans} <= {"a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm5-141gb"}
    assert answer.plans[0].cluster.gpu.startswith("h200")


def test_why_not_tells_rule_memory_or_time() -> None:
    refused = planned(why_not={"layout": {"tensor": 7}}).why_not
    assert refused is not None
    assert refused.errors
    assert refused.plan is None
    heavy = planned(why_not={"layout": {"zero_stage": 0}, "recipe": {"micro_batch": 4}}).why_not
    assert heavy is not None
    assert "GiB are missing on the fullest GPU" in heavy.reason
    slow = planned(why_not={"layout": {"tensor": 8}, "recipe": {"recompute": "full"}}).why_not
    assert slow is not None
    assert "longer, most of it in" in slow.reason
    assert slow.plan is not None


def test_why_not_tells_the_limit_that_is_missed() -> None:
    for limits, words in (
        ({"headroom_fraction": 0.9}, "limits.headroom_fraction asks for"),
        ({"days": 0.5}, "limits.days allows 0.5"),
        ({"cost_usd": 1.0}, "limits.cost_usd allows 1"),
    ):
        missed = planned(limits=limits, why_not={"layout": {"tensor": 8}, "recipe": {"recompute": "full"}}).why_not
        assert missed is not None
        assert words in missed.reason


def test_where_nothing_fits_the_nearest_is_named() -> None:
    answer = planned(model="llama-3.1-405b", cluster={"gpu": "h100", "gpus": 8}, layout={})
    assert answer.plans == answer.pareto == ()
    assert answer.counts.fitting == 0 < answer.counts.scored
    assert answer.nearest is not None
    assert answer.nearest.headroom_bytes < 0
    assert any("no layout fits" in said for said in answer.warnings)


def test_what_the_stack_cannot_do_is_left_out_of_a_list_and_refused_alone() -> None:
    recipe = {**BODY["recipe"], "stack": "fsdp1"}
    plans = planned(recipe=recipe, layout={"tensor": [1, 2], "schedule": ["1f1b", "dualpipe"]}).plans
    assert {(row.layout.tensor, row.layout.schedule) for row in plans} == {(1, "1f1b")}
    assert codes(recipe=recipe, layout={"tensor": 2, "zero_stage": 3}) == [("layout", "stack_has_the_axis")]


def test_what_the_implementation_does_not_offload_is_left_out_of_a_list() -> None:
    recipe = {**BODY["recipe"], "stack": {"name": "megatron-core", "implementation": "local"}}
    plans = planned(recipe=recipe, layout={"offload": ["none", "activations"]}).plans
    assert {row.layout.offload for row in plans} == {"none"}


def test_a_deadline_needs_tokens() -> None:
    recipe = {name: value for name, value in BODY["recipe"].items() if name != "training_tokens"}
    assert codes(recipe=recipe, limits={"days": 3}) == [("limits.days", "limit_needs_tokens")]


def test_counts_only_grow_while_a_search_goes_on() -> None:
    *steps, answer = search({**BODY, "limits": {"gpus": [16, 32]}}, CATALOGUE)
    scored = [step.scored for step in steps if not isinstance(step, PlanAnswer)]
    assert len(scored) > 2
    assert scored == sorted(scored)
    assert isinstance(answer, PlanAnswer)
    assert answer.counts == replace(answer.counts, scored=scored[-1])
