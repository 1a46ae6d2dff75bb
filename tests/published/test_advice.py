"""The estimate warns where a document advises against, and only there."""

import pytest

from service.estimator import Model, Recipe
from tests.ask import ask
from tests.published.cases import Case, cases, model_fields

ABOUT_TOKENS = ("200 billion", "compute-optimal")


@pytest.mark.parametrize("case", cases("advice", "batch_warnings"))
def test_batch_outside_the_sweet_spot(case: Case) -> None:
    recipe = Recipe(sequence_length=4096, training_tokens=15e12, **case.inputs)
    warnings = ask(Model(**model_fields("llama-3-8b")), recipe).warnings
    assert any("4 to 60 million" in warning for warning in warnings) is case.expected


@pytest.mark.parametrize("case", cases("advice", "token_warnings"))
def test_too_few_training_tokens(case: Case) -> None:
    recipe = Recipe(sequence_length=4096, global_batch=1024, training_tokens=case.inputs["training_tokens"])
    warnings = ask(Model(**model_fields(case.inputs["model"])), recipe).warnings
    assert [words for words in ABOUT_TOKENS if any(words in warning for warning in warnings)] == case.expected
