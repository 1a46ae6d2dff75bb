"""Recompute saves the memory and costs the FLOP and seconds that the documents publish."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from service.estimator import Layout, Model, Recipe
from tests.ask import ask
from tests.published.cases import Case, cases, model_fields
from tests.published.test_activations import one_layer_bytes

GPT_3 = Model(**model_fields("gpt-3-175b"))
EAGER = Recipe(sequence_length=2048, attention="eager", dropout_fraction=0.1)
SELECTIVE = replace(EAGER, recompute="selective")


def _memory_saved() -> float:
    return 1 - one_layer_bytes(GPT_3, SELECTIVE, Layout()) / one_layer_bytes(GPT_3, EAGER, Layout())


def _cost_over_matrix_products() -> float:
    flop = ask(GPT_3, SELECTIVE).flop
    attention = 2 * (flop.conventions.full - flop.conventions.causal)
    products = (flop.conventions.full - attention) * SELECTIVE.sequence_length
    unmasked = 2 * flop.recompute_per_step_flop
    return unmasked / products


MEASURES: dict[str, Callable[[], float]] = {
    "memory saved": _memory_saved,
    "paper's cost": lambda: ask(GPT_3, SELECTIVE).flop.recompute_korthikanti_fraction or 0.0,
    "exact cost over matrix products": _cost_over_matrix_products,
}


@pytest.mark.parametrize("case", cases("recompute", "selective"))
def test_selective_recompute(case: Case) -> None:
    assert case.agrees(MEASURES[case.inputs["measure"]]())


@pytest.mark.parametrize("case", cases("recompute", "full"))
def test_full_recompute_adds_a_forward_pass(case: Case) -> None:
    model = Model(**model_fields(case.inputs["model"]))
    flop = ask(model, Recipe(sequence_length=case.inputs["s"], recompute="full")).flop
    assert case.agrees(flop.recompute_fraction)
    assert flop.hardware_per_step_flop == flop.per_step_flop + flop.recompute_per_step_flop


@pytest.mark.parametrize("case", cases("recompute", "step_time"))
def test_full_recompute_takes_longer(case: Case) -> None:
    model = Model(**model_fields(case.inputs["model"]))
    layout, gpus = Layout(tensor=case.inputs["tensor"]), case.inputs["gpus"]
    plain = Recipe(sequence_length=case.inputs["s"], global_batch=512)
    seconds, longer = (
        ask(model, recipe, layout, gpus=gpus).step.step_seconds.value
        for recipe in (plain, replace(plain, recompute="full"))
    )
    assert case.agrees(longer / seconds - 1)


@pytest.mark.parametrize("case", cases("recompute", "utilisation"))
def test_hfu_counts_recompute_and_mfu_does_not(case: Case) -> None:
    step = ask(GPT_3, Recipe(sequence_length=2048, recompute=case.inputs["recompute"])).step
    assert case.agrees(step.hfu_fraction.value / step.mfu_fraction.value)
    assert 0 < step.mfu_fraction.value <= step.hfu_fraction.value < 1
