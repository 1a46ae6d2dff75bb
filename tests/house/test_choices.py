"""Is every name that a question accepts a row of a table, and the other way round?"""

from typing import Any, get_args

import pytest

from service.estimator import choices, question
from service.estimator.optimizers import OPTIMIZERS
from service.estimator.precision import PRECISIONS
from service.estimator.stacks import STACKS

TABLES = {
    "PrecisionName": PRECISIONS,
    "OptimizerName": OPTIMIZERS,
    "StackName": STACKS,
}

CHOSEN = {
    "recipe.precision": "PrecisionName",
    "recipe.gradient_dtype": "GradientDtype",
    "recipe.optimizer": "OptimizerName",
    "recipe.recompute": "RecomputeName",
    "recipe.recompute.modules": "RecomputeModule",
    "recipe.recompute.method": "RecomputeMethod",
    "recipe.attention": "AttentionName",
    "recipe.method": "MethodName",
    "recipe.stack": "StackName",
    "layout.schedule": "ScheduleName",
    "layout.context_method": "ContextMethod",
    "layout.offload": "OffloadName",
}
"""Field of a question, and the type that bounds it."""


@pytest.mark.parametrize(("names", "table"), TABLES.items(), ids=TABLES)
def test_names_are_the_rows_of_their_table(names: str, table: dict[str, Any]) -> None:
    assert set(get_args(getattr(question, names))) == table.keys()


@pytest.mark.parametrize(("field", "names"), CHOSEN.items(), ids=CHOSEN)
def test_names_are_the_choices_that_are_listed(field: str, names: str) -> None:
    assert {row.name for row in choices()[field]} == set(get_args(getattr(question, names)))


def test_zero_stages_are_the_choices_that_are_listed() -> None:
    assert {row.name for row in choices()["layout.zero_stage"]} == {"0", "1", "2", "3"}
