"""Sizes and clusters that are told against their neighbours: asked again one by one, whatever the question."""

import pytest
from hypothesis import HealthCheck, given, settings

from service.catalogue import Catalogue
from tests.features.solve.offers import Offers, asked_cluster, offers, wrong_cluster
from tests.features.solve.sizes import SizeCase, asked_size, size_cases, wrong_size
from tests.features.solve.test_solve import refusal, solved

FEW = settings(max_examples=10, suppress_health_check=list(HealthCheck))
MONEY = "inference_usd_per_million_tokens"
SERVING = {"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 3.6, "mfu_fraction": 0.5}


@given(case=size_cases())
@FEW
def test_no_other_size_makes_more_of_the_budget(catalogue: Catalogue, case: SizeCase) -> None:
    assert wrong_size(case, asked_size(case, catalogue), catalogue) == []


@given(case=offers())
@FEW
def test_no_cheaper_cluster_keeps_the_limits(catalogue: Catalogue, case: Offers) -> None:
    assert wrong_cluster(case, asked_cluster(case, catalogue), catalogue) == []


def test_what_tokens_may_cost_is_what_they_cost(catalogue: Catalogue) -> None:
    """3.6 dollars an hour are a thousandth of one a second, which runs half of 989.4e12 FLOP: 2e-18 dollars a FLOP."""
    limits = {"total_flop": 1e24, MONEY: 0.032}
    found = solved(catalogue, "model", question=None, limits=limits, serving=SERVING)
    value = found["value"]
    assert value["parameters"] == pytest.approx(8e9 * 0.9894, rel=1e-6)
    assert value["inference_usd_per_million_tokens"] == pytest.approx(0.032)
    assert value["is_capped"]
    assert "dollars" in found["next"]["why_not"]["message"]
    assert any("50%" in line and "3.6 dollars" in line for line in found["assumptions"])


def test_the_question_s_gpu_and_price_serve_where_nothing_else_is_said(catalogue: Catalogue) -> None:
    limits = {"cost_usd": 1e6, MONEY: 0.01}
    own = solved(catalogue, "model", limits=limits)
    same = {"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 2.5, "mfu_fraction": 0.33}
    assert solved(catalogue, "model", limits=limits, serving=same)["value"] == own["value"]
    dear = solved(catalogue, "model", limits=limits, serving={"usd_per_gpu_hour": 25.0})
    assert dear["value"]["parameters"] == pytest.approx(own["value"]["parameters"] / 10, rel=1e-6)


def test_the_tighter_of_two_limits_of_use_counts(catalogue: Catalogue) -> None:
    both = {"total_flop": 1e24, MONEY: 0.032, "inference_per_token_flop": 1e9}
    found = solved(catalogue, "model", question=None, limits=both, serving=SERVING)
    assert found["value"]["parameters"] == 5e8


def test_a_limit_of_use_bounds_no_other_field(catalogue: Catalogue) -> None:
    body = {"unknown": "cluster.gpus", "limits": {MONEY: 1.0}, "serving": SERVING}
    question = {"model": "llama-3.1-8b", "recipe": {"sequence_length": 4096}, "cluster": {"gpu": "h100"}}
    assert refusal(catalogue, {**body, "question": question}) == [(f"limits.{MONEY}", "limit_not_read")]
