"""Callers may do what their scopes allow, and nothing else. Every operation is tried by every kind of caller."""

from typing import Any

from service.api.openapi import SCOPE
from tests.api.authorization import ROWS, rows
from tests.api.matrix import CALLERS, Tried


def test_every_operation_has_a_row_and_every_row_an_operation(document: dict[str, Any]) -> None:
    told = {one["operationId"]: one.get(SCOPE) for methods in document["paths"].values() for one in methods.values()}
    assert told == {name: scope for name, (scope, _) in ROWS.items()}
    assert len([*rows()]) == len(ROWS)


def test_every_cell_holds_what_it_has_to(tried: Tried) -> None:
    assert tried.wrong == []
    assert tried.cells == len(ROWS) * len(CALLERS)


def test_an_object_of_others_is_answered_as_one_that_is_not_there(tried: Tried) -> None:
    assert tried.told_apart == []
