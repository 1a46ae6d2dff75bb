"""Bytes of weights, gradients, master copy and optimizer states are those that the documents publish."""

from typing import Any

import pytest

from service.estimator import Layout, Model, Recipe
from service.estimator.question import Method
from tests.ask import STATES, ask, bytes_of, model_of
from tests.published.cases import Case, cases

BILLION = model_of(10**9, hidden=2000, layers=12, width=8000)
LAYOUT_FIELDS = ("zero_stage", "data")


def held(model: Model, inputs: dict[str, Any], *kinds: str) -> float:
    """Bytes of some kinds on one GPU, for one token so that nothing else decides when the peak falls."""
    layout = Layout(**{name: inputs[name] for name in LAYOUT_FIELDS if name in inputs})
    chosen = {name: value for name, value in inputs.items() if name not in LAYOUT_FIELDS}
    recipe = Recipe(sequence_length=1, vocabulary_multiple=1, **chosen)
    return bytes_of(ask(model, recipe, layout, gpus=inputs.get("data", 1)), *kinds)


@pytest.mark.parametrize("case", cases("states", "totals"))
def test_states_of_a_whole_model(case: Case) -> None:
    shape = ("hidden", "layers", "width")
    model = model_of(case.inputs["parameters"], **{name: case.inputs[name] for name in shape})
    recipe = {name: value for name, value in case.inputs.items() if name not in (*shape, "parameters")}
    assert case.agrees(held(model, recipe, *STATES) / 1e9)


@pytest.mark.parametrize("case", cases("states", "kinds"))
def test_states_by_kind(case: Case) -> None:
    measured = {kinds: held(BILLION, case.inputs, *kinds.split(" + ")) / 1e9 for kinds in case.expected}
    assert measured == pytest.approx(case.expected, rel=1e-12)


@pytest.mark.parametrize("case", cases("states", "formats"))
def test_bytes_of_a_format(case: Case) -> None:
    assert case.agrees(held(BILLION, {"precision": case.inputs["precision"]}, case.inputs["kind"]) / 1e9)


@pytest.mark.parametrize("case", cases("states", "optimizers"))
def test_optimizer_with_its_master_copy(case: Case) -> None:
    assert case.agrees(held(BILLION, case.inputs, "master_weights", "optimizer_states") / 1e9)


@pytest.mark.parametrize("case", cases("states", "shards"))
def test_shards_of_the_data_group(case: Case) -> None:
    chosen = {name: case.inputs[name] for name in LAYOUT_FIELDS}
    whole = held(BILLION, {"zero_stage": 0, "data": case.inputs["data"]}, case.inputs["kind"])
    assert case.agrees(held(BILLION, chosen, case.inputs["kind"]) / whole)


@pytest.mark.parametrize("case", cases("states", "quantized"))
def test_bits_of_a_quantized_weight(case: Case) -> None:
    method = Method(name="qlora", quantization=case.inputs["quantization"])
    matrices = 12 * (4 * 2000**2 + 3 * 2000 * 8000)
    assert case.agrees(8 * held(BILLION, {"method": method, "stack": "transformers"}, "quantized_weights") / matrices)
