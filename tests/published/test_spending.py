"""Energy, carbon, money and goodput of published runs follow from their GPU-hours as their makers state them."""

from functools import cache
from typing import Any

import pytest

from service.catalogue import Catalogue, shipped_catalogue
from service.estimator.answer import Interval
from service.estimator.estimate import estimate
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.cost import Usage, carbon_kg_co2e, charges_of, sum_of
from service.estimator.run.totals import lost_shares_of, usage_of
from service.validation.questions import read_question
from tests.ask import known
from tests.published.cases import Case, cases

KG_A_TONNE = 1000
KWH_A_MWH = 1000


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return shipped_catalogue()


def published_run(given: dict[str, Any], catalogue: Catalogue) -> tuple[ResolvedQuestion, Usage]:
    """A run of so many GPU-hours: everything from there on is the estimator's."""
    named = {"boards": "busy_power_fraction", "hosts": "host_power_fraction"}
    places = ("gpu", "pue", "boards", "hosts", "grid_region", "grid_kg_co2e_per_kwh")
    cluster = {named.get(name, name): given[name] for name in places if name in given}
    price = {"price": {"usd_per_gpu_hour": given["usd_per_gpu_hour"]}} if "usd_per_gpu_hour" in given else {}
    body = {
        "model": "llama-3.1-8b",
        "recipe": {"sequence_length": 4096, "precision": "fp16-mixed"},
        "cluster": {"gpus": 1024, "restart_seconds": 0, **cluster},
        **price,
    }
    resolved = resolve(read_question(body, catalogue).question)
    hours = float(given["gpu_hours"])
    total = Interval(hours, hours, hours, "measured")
    return resolved, usage_of(resolved, total, lost_shares_of(resolved, 1.0))


@pytest.mark.parametrize("case", cases("spending", "energy"))
def test_energy_is_the_published_one(case: Case, catalogue: Catalogue) -> None:
    _, used = published_run(case.inputs, catalogue)
    assert case.agrees(used.energy_kwh.value / KWH_A_MWH)


@pytest.mark.parametrize("case", cases("spending", "carbon"))
def test_carbon_is_the_published_one(case: Case, catalogue: Catalogue) -> None:
    resolved, used = published_run(case.inputs, catalogue)
    grid = known(resolved.question.cluster.grid_kg_co2e_per_kwh)
    assert case.agrees(carbon_kg_co2e(used.energy_kwh.value, grid) / KG_A_TONNE)


@pytest.mark.parametrize("case", cases("spending", "money"))
def test_cost_is_the_published_one(case: Case, catalogue: Catalogue) -> None:
    lines = [charge.line() for charge in charges_of(*published_run(case.inputs, catalogue))]
    assert [line.kind for line in lines] == ["gpus"]
    assert case.agrees(sum_of(line.usd for line in lines).value)


@cache
def llama_405b(asynchronous: bool | None, write_bytes_per_s: float | None) -> Any:
    """Totals of Llama 3.1 405B on 16,384 H100, checkpoints written in the given way."""
    told = {"asynchronous": asynchronous, "write_bytes_per_s": write_bytes_per_s}
    checkpoint = {"checkpoint": {name: value for name, value in told.items() if value is not None}}
    body = {
        "model": "llama-3.1-405b",
        "recipe": {"sequence_length": 8192, "global_batch": 2048, "training_tokens": 15.6e12, **checkpoint},
        "layout": {"tensor": 8, "pipeline": 16, "stage_layers": [7, *[8] * 14, 7]},
        "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 16_384},
    }
    return estimate(read_question(body, shipped_catalogue()).question).totals


@pytest.mark.parametrize("case", cases("spending", "goodput"))
def test_goodput_is_the_published_one(case: Case) -> None:
    told = case.inputs.get("checkpoint", {})
    totals = llama_405b(told.get("asynchronous"), told.get("write_bytes_per_s"))
    if case.inputs.get("measure") == "interruption_hours":
        assert case.agrees(totals.goodput.interruption_seconds / 3600)
    else:
        assert case.agrees(totals.goodput_fraction)
        assert llama_405b(None, None).goodput_fraction < 0.9 < totals.goodput_fraction
