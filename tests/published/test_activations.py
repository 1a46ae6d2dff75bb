"""Activations of one layer are the published forms, to the byte, and grow as the documents say."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from service.estimator import Layout, Model, Recipe
from tests.ask import STATES, ask, bytes_of, gpt
from tests.published.cases import Case, cases, model_fields

FORMS: dict[str, Callable[[int, int, int, int, int], float]] = {
    "34 s b h + 5 a s^2 b": lambda s, b, h, a, _: 34 * s * b * h + 5 * a * s**2 * b,
    "s b h (10 + 24/t + 5 a s / (h t))": lambda s, b, h, a, t: s * b * h * (10 + 24 / t + 5 * a * s / (h * t)),
    "s b h (34 + 5 a s / h) / t": lambda s, b, h, a, t: s * b * h * (34 + 5 * a * s / h) / t,
    "34 s b h / t": lambda s, b, h, _, t: 34 * s * b * h / t,
    "2 s b h": lambda s, b, h, _, __: 2 * s * b * h,
    "2 s b h / t": lambda s, b, h, _, t: 2 * s * b * h / t,
    "34 s b h + 4 a s b": lambda s, b, h, a, _: 34 * s * b * h + 4 * a * s * b,
}


def one_layer_bytes(model: Model, recipe: Recipe, layout: Layout) -> float:
    """Activation bytes that one more layer adds to a rank."""
    sums = [
        bytes_of(ask(replace(model, num_hidden_layers=layers), recipe, layout, gpus=layout.tensor), "activations")
        for layers in (2, 3)
    ]
    return sums[1] - sums[0]


@pytest.mark.parametrize("case", cases("activations", "layers"))
def test_one_gpt_layer(case: Case) -> None:
    given = case.inputs
    s, b, h, a, t = given["s"], given["b"], given["h"], given["a"], given.get("t", 1)
    assert FORMS[given["form"]](s, b, h, a, t) == pytest.approx(case.expected, rel=1e-12)
    recipe = Recipe(
        sequence_length=s,
        micro_batch=b,
        dropout_fraction=0.1,
        attention=given.get("attention", "eager"),
        recompute=given.get("recompute", "none"),
    )
    layout = Layout(tensor=t, sequence_parallel=given.get("sequence_parallel"))
    model = gpt(hidden=h, layers=1, heads=a, vocabulary=1024)
    assert one_layer_bytes(model, recipe, layout) == case.expected


@pytest.mark.parametrize("case", cases("activations", "grouped"))
def test_one_layer_with_grouped_heads_and_gated_mlp(case: Case) -> None:
    s, b = case.inputs["s"], case.inputs["b"]
    model = Model(**model_fields(case.inputs["model"]))
    units = 4 + 1 + 2 * 1 / 4 + 1 + 3 * 3.5
    assert units * 2 * b * s * model.hidden_size + 4 * model.num_attention_heads * s * b == case.expected
    recipe = Recipe(sequence_length=s, micro_batch=b, stack=case.inputs["stack"])
    assert one_layer_bytes(model, recipe, Layout()) == case.expected


@pytest.mark.parametrize("case", cases("activations", "growth"))
def test_growth_with_batch_and_sequence(case: Case) -> None:
    sizes = {"s": case.inputs["s"], "b": 1}
    grown = {**sizes, case.inputs["change"]: sizes[case.inputs["change"]] * case.inputs["times"]}
    model = gpt(hidden=4096, layers=8, heads=32, vocabulary=50257)
    small, large = (
        bytes_of(
            ask(model, Recipe(sequence_length=n["s"], micro_batch=n["b"], attention=case.inputs["attention"])),
            "activations",
        )
        for n in (sizes, grown)
    )
    assert case.agrees(large / small)


@pytest.mark.parametrize("case", cases("activations", "constants"))
def test_what_batch_and_length_leave_alone(case: Case) -> None:
    changes = {name: value for name, value in case.inputs.items() if name != "kind"}
    kinds = STATES if case.inputs["kind"] == "states" else ("activations",)
    model, recipe = Model(**model_fields("llama-3-8b")), Recipe(sequence_length=2048)
    before = bytes_of(ask(model, recipe), *kinds)
    assert case.agrees(bytes_of(ask(model, replace(recipe, **changes)), *kinds) / before)


def activation_share(name: str, tokens: int) -> float:
    """Activations over activations and states, in the setting of the documents: eager attention with dropout."""
    recipe = Recipe(sequence_length=tokens, gradient_dtype="bf16", attention="eager", dropout_fraction=0.1)
    answer = ask(Model(**model_fields(name)), recipe)
    activations = bytes_of(answer, "activations")
    return activations / (activations + bytes_of(answer, *STATES))


@pytest.mark.parametrize("case", cases("activations", "shares"))
def test_share_of_activations(case: Case) -> None:
    share = activation_share(case.inputs["model"], case.inputs["s"])
    if "over" in case.inputs:
        share /= activation_share(case.inputs["over"], case.inputs["s"])
    assert case.agrees(share)
