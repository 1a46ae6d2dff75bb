"""A plain GPT has the parameters that the published form in h, v and L counts."""

import pytest

from service.estimator import Model, count_parameters
from tests.ask import gpt
from tests.published.cases import Case, cases


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
