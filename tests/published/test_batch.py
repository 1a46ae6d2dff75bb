"""Batch sizes multiply, refuse and add up to runs as the documents say."""

import pytest

from service.errors import Refused
from service.estimator import Layout, Model, Recipe
from service.estimator.degrees import degrees_of
from tests.ask import ask
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
