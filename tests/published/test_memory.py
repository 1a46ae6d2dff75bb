"""Memory, states, activations and what recompute saves and costs are those that the documents publish."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from service.estimator import Layout, Model, Recipe
from service.estimator.question import Method
from tests.ask import STATES, ask, bytes_of, gpt, lines, model_of
from tests.published.cases import Case, cases, model_fields


@pytest.mark.parametrize("case", cases("memory", "verdicts"))
def test_verdict_on_80_gb(case: Case) -> None:
    model = model_of(
        case.inputs["parameters"],
        hidden=case.inputs["hidden"],
        layers=case.inputs["layers"],
        width=case.inputs["width"],
    )
    recipe = Recipe(sequence_length=2048, precision=case.inputs["precision"])
    answer = ask(model, recipe, Layout(zero_stage=case.inputs.get("zero_stage")), gpus=case.inputs["gpus"])
    assert answer.verdict == case.expected
    assert (answer.memory.headroom_bytes > 0) is (case.expected == "fits")


@pytest.mark.parametrize("case", cases("memory", "sums"))
def test_peak_is_the_sum_of_its_parts(case: Case) -> None:
    answer = ask(Model(**model_fields("llama-3-8b")), Recipe(sequence_length=4096, **case.inputs))
    held = lines(answer)
    assert set(held) == set(case.expected)
    assert sum(held.values()) == answer.memory.allocated_peak_bytes.value


@pytest.mark.parametrize("case", cases("memory", "beside_tensors"))
def test_bytes_beside_tensors(case: Case) -> None:
    memory = ask(Model(**model_fields("llama-3-8b")), Recipe(sequence_length=4096), gpus=case.inputs["gpus"]).memory
    assert case.agrees(memory.device_peak_bytes.value - memory.reserved_peak_bytes.value)


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
    precision, kind = {"precision": case.inputs["precision"]}, case.inputs["kind"]
    fewer = replace(BILLION, num_hidden_layers=11)
    layer = held(BILLION, precision, kind) - held(fewer, precision, kind)
    assert case.agrees(layer / (4 * 2000**2 + 3 * 2000 * 8000 + 2 * 2000))


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
