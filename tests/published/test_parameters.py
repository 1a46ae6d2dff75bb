"""A plain GPT has the parameters that the published form in h, v and L counts, and adapters those of their paper."""

import pytest

from service.estimator import Model, Recipe, count_parameters
from service.estimator.question import Method
from tests.ask import ask, gpt
from tests.published.cases import Case, cases, model_fields


def model(case: Case) -> Model:
    """The GPT of a case; heads do not change the count."""
    return gpt(hidden=case.inputs["h"], layers=case.inputs["L"], heads=8, vocabulary=case.inputs["v"])


@pytest.mark.parametrize("case", cases("parameters", "form"))
def test_form_in_width_layers_and_vocabulary(case: Case) -> None:
    h, layers, v = (case.inputs[name] for name in ("h", "L", "v"))
    assert h * v + layers * (12 * h**2 + 13 * h) + 2 * h == case.expected
    assert count_parameters(model(case)).total == case.expected


@pytest.mark.parametrize("case", cases("parameters", "dominant"))
def test_square_of_the_width_dominates(case: Case) -> None:
    h, layers = case.inputs["h"], case.inputs["L"]
    assert case.agrees(12 * layers * h**2 / count_parameters(model(case)).total)


@pytest.mark.parametrize("case", cases("parameters", "adapters"))
def test_adapters_alone_are_trained(case: Case) -> None:
    method = Method(name="lora", rank=case.inputs["rank"], targets=tuple(case.inputs["targets"]))
    counts = ask(Model(**model_fields(case.inputs["model"])), Recipe(sequence_length=2048, method=method)).parameters
    assert case.agrees(counts.trained)
    assert counts.trained == counts.adapters
