"""Batch sizes, ramps, energy, carbon, money and goodput of published runs follow as their makers state them."""

from functools import cache
from typing import Any

import pytest

from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Refused
from service.estimator import Layout, Model, Recipe
from service.estimator.answer import Interval
from service.estimator.degrees import degrees_of
from service.estimator.estimate import estimate
from service.estimator.question import RunStage
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.cost import Usage, carbon_kg_co2e, charges_of, sum_of
from service.estimator.run.totals import lost_shares_of, usage_of
from service.estimator.schedule import batches_of
from service.validation.questions import read_question
from tests.ask import ask, known
from tests.published.cases import Case, cases, model_fields

MODEL = Model(**model_fields("llama-3-8b"))


@pytest.mark.parametrize("case", cases("batch", "tokens"))
def test_batch_in_tokens(case: Case) -> None:
    batch, tokens = case.inputs["bs"], case.inputs["seq"]
    by_sequences = ask(MODEL, Recipe(sequence_length=tokens, global_batch=batch)).resolved.recipe
    by_tokens = ask(MODEL, Recipe(sequence_length=tokens, global_batch_tokens=case.expected)).resolved.recipe
    assert by_sequences.global_batch_tokens == case.expected
    assert by_tokens == by_sequences


@pytest.mark.parametrize("case", cases("batch", "groups"))
def test_global_batch_is_micro_batch_times_accumulation_times_replicas(case: Case) -> None:
    replicas = case.inputs["dp"]
    recipe = Recipe(sequence_length=2048, micro_batch=case.inputs["mbs"], global_batch=case.expected)
    resolved = ask(MODEL, recipe, gpus=replicas).resolved
    assert resolved.layout.data == replicas
    assert degrees_of(resolved.recipe, resolved.layout).accumulation == case.inputs["grad_acc"]


@pytest.mark.parametrize("case", cases("batch", "refusals"))
def test_a_batch_that_does_not_divide_is_refused(case: Case) -> None:
    recipe = Recipe(sequence_length=2048, micro_batch=case.inputs["mbs"], global_batch=case.inputs["gbs"])
    with pytest.raises(Refused) as refused:
        ask(MODEL, recipe, Layout(data=case.inputs["dp"]), gpus=case.inputs["dp"])
    (problem,) = refused.value.problems
    code, *neighbours = case.expected
    assert problem.code == code
    assert all(number in problem.fix.replace(",", "").split() for number in neighbours)


@pytest.mark.parametrize("case", cases("batch", "runs"))
def test_steps_of_published_runs(case: Case) -> None:
    recipe = Recipe(
        sequence_length=case.inputs["seq"],
        global_batch=case.inputs["bs"],
        training_tokens=case.inputs["training_tokens"],
    )
    answer = ask(Model(**model_fields(case.inputs["model"])), recipe)
    assert answer.totals is not None
    assert case.agrees(answer.totals.steps)
    assert answer.resolved.recipe.global_batch_tokens == pytest.approx(case.inputs["batch_tokens"], rel=0.05)


RAMPS = cases("batch", "ramps")


def recipe_of(case: Case) -> Recipe:
    return Recipe(
        sequence_length=case.inputs["seq"],
        global_batch=case.inputs["bs"],
        training_tokens=case.inputs["training_tokens"],
        stages=tuple(RunStage(**stage) for stage in case.inputs["stages"]),
    )


def counted(stages: list[tuple[float, tuple[int, ...], int]]) -> list[int]:
    """Steps of each stage, one by one: its end in tokens, its batches in turn, its length."""
    steps, tokens, before = [0] * len(stages), 0, 0
    for index, (until, batches, length) in enumerate(stages):
        share = (until - before) / len(batches)
        while tokens < until:
            tokens += length * batches[min(len(batches) - 1, int((tokens - before) / share))]
            steps[index] += 1
        before = tokens
    return steps


@pytest.mark.parametrize("case", RAMPS)
def test_steps_of_each_stage_are_counted_one_by_one(case: Case) -> None:
    replicas = case.inputs.get("dp", 1)
    model = Model(**model_fields(case.inputs["model"]))
    answer = ask(model, recipe_of(case), Layout(data=replicas), gpus=replicas)
    assert answer.totals is not None
    steps = [stage.steps for stage in answer.totals.stages]
    assert steps == case.expected
    recipe = answer.resolved.recipe
    stages = [(one.until_tokens, batches_of(one), one.sequence_length or 0) for one in recipe.stages]
    assert steps == counted([*stages, (case.inputs["training_tokens"], (case.inputs["bs"],), case.inputs["seq"])])
    assert answer.totals.steps == sum(steps)


def test_a_ramp_takes_more_steps_and_more_time_than_the_final_batch_throughout() -> None:
    (case,) = (param.values[0] for param in RAMPS if "as finely" in str(param.id))
    assert isinstance(case, Case)
    model, layout = Model(**model_fields("deepseek-v3")), Layout(data=128)
    ramped, plain = (
        ask(model, recipe, layout, gpus=128).totals
        for recipe in (recipe_of(case), Recipe(sequence_length=4096, global_batch=15360, training_tokens=14.8e12))
    )
    assert ramped is not None
    assert plain is not None
    assert plain.steps == 235_240
    assert ramped.steps == 242_940
    assert plain.gpu_hours.value < ramped.gpu_hours.value < 1.05 * plain.gpu_hours.value


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
