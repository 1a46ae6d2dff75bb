"""FLOP of forward, backward, a token and a run are those that the documents and vendors publish."""

import pytest

from service.estimator import Model, Recipe
from service.estimator.question import DocumentLength, Method
from service.estimator.samples import H100
from tests.ask import ask
from tests.published.cases import Case, cases, model_fields


def model(case: Case) -> Model:
    """The published model of a case, with the fields that the case changes."""
    changed = {name: value for name, value in case.inputs.items() if name in Model.__dataclass_fields__}
    return Model(**{**model_fields(case.inputs["model"]), **changed})


@pytest.mark.parametrize("case", cases("flop", "products"))
def test_two_four_six_for_each_parameter_and_token(case: Case) -> None:
    tokens, batch, parameters = case.inputs["s"], case.inputs["B"], case.inputs["P"]
    trained = model(case)
    answer = ask(trained, Recipe(sequence_length=tokens, global_batch=batch))
    widths = trained.num_attention_heads * trained.head_width
    attention = batch * trained.num_hidden_layers * 2 * tokens**2 * widths
    flop, each = answer.flop, parameters * tokens * batch
    assert flop.forward_per_step_flop == case.expected["forward"] * each + attention
    assert flop.backward_per_step_flop == case.expected["backward"] * each + 2 * attention
    assert flop.per_step_flop == case.expected["total"] * each + 3 * attention
    assert flop.conventions.six_n == case.expected["total"] * answer.parameters.active


@pytest.mark.parametrize("case", cases("flop", "per_token"))
def test_flop_of_a_token_by_the_causal_convention(case: Case) -> None:
    flop = ask(model(case), Recipe(sequence_length=case.inputs["s"])).flop
    assert case.agrees(flop.per_token_flop / 1e9)
    assert flop.per_token_flop == flop.conventions.causal


@pytest.mark.parametrize("case", cases("flop", "per_token_full"))
def test_flop_of_a_token_without_a_mask(case: Case) -> None:
    assert case.agrees(ask(model(case), Recipe(sequence_length=case.inputs["s"])).flop.conventions.full / 1e9)


@pytest.mark.parametrize("case", cases("flop", "adapters"))
def test_flop_of_a_token_that_trains_adapters(case: Case) -> None:
    inputs = case.inputs
    method = Method(name="lora", rank=inputs["rank"], targets=tuple(inputs["targets"]))
    documents = (DocumentLength(tokens=inputs["document"], count=1),)
    recipe = Recipe(sequence_length=inputs["s"], method=method, document_lengths=documents)
    assert case.agrees(ask(model(case), recipe).flop.per_token_flop / 1e9)


@pytest.mark.parametrize("case", cases("flop", "units"))
def test_units_of_compute(case: Case) -> None:
    recipe = Recipe(sequence_length=case.inputs["s"], training_tokens=case.inputs["training_tokens"])
    flop = ask(model(case), recipe).flop
    assert flop.total_flop is not None
    assert flop.total_pflop_days is not None
    assert case.agrees(flop.total_flop / flop.total_pflop_days)


@pytest.mark.parametrize("case", cases("flop", "throughput"))
def test_compute_is_throughput_times_seconds(case: Case) -> None:
    gpus = case.inputs["gpus"]
    recipe = Recipe(sequence_length=case.inputs["s"], training_tokens=case.inputs["training_tokens"])
    answer = ask(model(case), recipe, gpus=gpus)
    totals = answer.totals
    assert totals is not None
    assert answer.flop.total_flop is not None
    assert case.agrees(totals.at_peak_gpu_hours * 3600 * answer.step.peak_flop_per_s / answer.flop.total_flop)
    assert case.agrees(totals.gpu_hours.value / (totals.days.value * 24 * gpus))
    assert totals.at_peak_gpu_hours < totals.gpu_hours.low


@pytest.mark.parametrize("case", cases("flop", "rates"))
def test_rates_of_formats(case: Case) -> None:
    assert case.agrees(getattr(H100, case.inputs["fast"]) / getattr(H100, case.inputs["slow"]))
