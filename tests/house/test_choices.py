"""Each name that a question accepts is a row of a table, and each row is a name that it accepts."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from service.catalogue.choices import choices
from service.estimator import question
from service.estimator.other_tools.comparison import TOOLS
from service.estimator.software.precision import OPTIMIZERS, PRECISIONS, QUANTIZATIONS, SHORT_NAMES
from service.estimator.software.stacks import CROSS_ENTROPIES, STACKS
from service.validation.question_parts import QUESTION_SPECS

TABLES = {
    "PrecisionName": PRECISIONS,
    "OptimizerName": OPTIMIZERS,
    "StackName": STACKS,
    "CrossEntropyName": CROSS_ENTROPIES,
    "QuantizationName": QUANTIZATIONS,
    "ToolName": TOOLS,
}


def _named(path: str) -> str:
    """The path of a noun that a name alone can stand for, instead of that of its name."""
    return path.removesuffix(".granularity").removesuffix(".name")


def _closed(hint: Any, path: str) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Each field below a type hint that takes values of a closed list, and those values."""
    if get_origin(hint) is Literal:
        yield path, get_args(hint)
    elif is_dataclass(hint):
        for field in fields(hint):
            yield from _closed(get_type_hints(hint)[field.name], _named(f"{path}.{field.name}"))
    else:
        for inner in get_args(hint):
            yield from _closed(inner, path)


CHOSEN = dict(found for part, noun in QUESTION_SPECS for found in _closed(noun, part))
"""Field of a question, and the values that its type admits; how much is recomputed may be said by a name alone."""

ASKED_FOR = {"method": get_args(question.ToolName)}
"""Query parameters that take names."""

NAMED = {field for field, values in CHOSEN.items() if any(isinstance(value, str) for value in values)}
"""Fields that take names, whose meaning has to be said; a number may mean itself."""


def test_closed_lists_are_found() -> None:
    assert {"recipe.precision", "recipe.recompute", "recipe.recompute.modules", "layout.zero_stage"} <= CHOSEN.keys()
    assert CHOSEN["recipe.recompute"] == ("none", "selective", "full")


@pytest.mark.parametrize(("kind", "table"), TABLES.items(), ids=TABLES)
def test_names_are_the_rows_of_their_table(kind: str, table: dict[str, Any]) -> None:
    assert set(get_args(getattr(question, kind))) - SHORT_NAMES.keys() == table.keys()


def test_every_field_of_names_is_listed_and_no_other_field_than_a_closed_one() -> None:
    assert NAMED | ASKED_FOR.keys() <= choices().keys() <= CHOSEN.keys() | ASKED_FOR.keys()


@pytest.mark.parametrize("field", choices())
def test_names_are_the_choices_that_are_listed(field: str) -> None:
    assert {row.name for row in choices()[field]} == set(map(str, (CHOSEN | ASKED_FOR)[field]))


def test_every_precision_is_run_by_a_stack() -> None:
    assert {name for stack in STACKS.values() for name in stack.precisions} == PRECISIONS.keys()
