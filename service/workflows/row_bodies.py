"""Which row does the body of a request spell? The columns of its list, gathered into the nouns that they stand for.

A body has the columns that GET of a row shows, so that a row can be read, edited and sent back. Null means not known,
as everywhere; `owner`, `revision` and the `id` of a price follow from the rest and are never set by it.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from service.catalogue import ModelRow, Row
from service.catalogue.provenance import is_date
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.workflows.columns import columns_of
from service.workflows.findings import unknown_field
from service.workflows.nouns import read_noun
from service.workflows.plain_text import composed, text_problems

Flat = Mapping[str, Any]

FOLLOWING = ("id", "owner", "revision")
"""Columns that follow from the rest of the row."""


def read_row(kind: type, flat: Flat) -> Row:
    """The row that a flat body spells, judged by the bounds of its nouns.

    Args:
        kind: class of the row
        flat: columns and their values, without those that follow from the rest

    Returns:
        the row

    Raises:
        Refused: one problem for each unknown column and each wrong value
    """
    names = body_columns(kind)
    unknown = [name for name in flat if name not in names]
    problems = [unknown_field("", name, set(names), "the row") for name in unknown[:MOST_PROBLEMS]]
    given = {name: composed(value) for name, value in flat.items() if value is not None and name in names}
    problems += text_problems(given)
    problems += [*_origin_problems(given), *(_absence_problems(given) if kind is ModelRow else ())]
    if problems:
        raise Refused(*problems)
    try:
        row: Row = read_noun(kind, _nested(kind, given), "")
    except Refused as refused:
        raise Refused(
            *(replace(problem, field=_column_at(kind, problem.field)) for problem in refused.problems)
        ) from None
    return row


@cache
def body_columns(kind: type) -> tuple[str, ...]:
    """The columns that a body may give.

    Args:
        kind: class of the row

    Returns:
        their names
    """
    return tuple(column.name for column in columns_of(kind) if column.name not in FOLLOWING)


@cache
def columns_below(kind: type, field: str) -> tuple[str, ...]:
    """The columns that together are one noun of a row.

    Args:
        kind: class of the row
        field: the field that holds the noun

    Returns:
        their names
    """
    return tuple(column.name for column in columns_of(kind) if column.path[0] == field)


def _nested(kind: type, given: Flat) -> dict[str, Any]:
    """The body with the columns of each noun inside it; a noun that may be absent is, where no column is given."""
    nested: dict[str, Any] = {}
    for column in columns_of(kind):
        *outer, last = column.path
        place = nested
        for step in outer:
            place = place.setdefault(step, {})
        if column.name in given:
            place[last] = given[column.name]
    return {name: None if value == {} and _may_be_absent(kind, name) else value for name, value in nested.items()}


def _may_be_absent(kind: type, field: str) -> bool:
    return NoneType in get_args(get_type_hints(kind)[field])


def _column_at(kind: type, field: str) -> str:
    """The column that a problem of the nested row is about, with the place inside its value."""
    steps = tuple(field.split("."))
    for column in columns_of(kind):
        if steps[: len(column.path)] == column.path:
            return ".".join((column.name, *steps[len(column.path) :]))
    return ""


DATES = ("as_of", "purchase_as_of")
"""Columns that hold a date."""


def _not_a_date(name: str) -> Problem:
    message = f"{name} is no date, so nobody could tell which number is the newer one"
    return Problem(field=name, code="not_a_date", message=message, fix="give 2025, 2025-03 or 2025-03-17")


def _origin_problems(given: Flat) -> list[Problem]:
    """What is wrong with where the numbers come from, before a row refuses to be made of it."""
    problems: list[Problem] = []
    source, as_of = given.get("source"), given.get("as_of")
    if isinstance(source, str) and not source.strip():
        message = "source is blank; a number without a source is none that others can rely on"
        problems.append(Problem(field="source", code="wrong_length", message=message, fix="say where it comes from"))
    problems += [_not_a_date(name) for name in DATES if isinstance(given.get(name), str) and not is_date(given[name])]
    today = datetime.now(UTC).date().isoformat()
    if isinstance(as_of, str) and is_date(as_of) and as_of > today[: len(as_of)]:
        message = "as_of lies in the future; the newest row counts, so what holds later would count already today"
        problems.append(Problem(field="as_of", code="out_of_range", message=message, fix=f"give {today} or earlier"))
    return problems


def _absence_problems(given: Flat) -> list[Problem]:
    """What is wrong with a model that is neither there nor excused, or both."""
    is_there = any(name in given for name in columns_below(ModelRow, "model"))
    if is_there and "not_estimated" in given:
        message = "not_estimated says why there is no model, and the columns of one are given"
        return [Problem(field="not_estimated", code="contradiction", message=message, fix="leave one of them out")]
    if not is_there and "not_estimated" not in given:
        message = "the row holds no model, so nothing could be estimated with it"
        fix = "give vocab_size, hidden_size, num_hidden_layers and the other columns of the model, or hf_config"
        return [Problem(field="vocab_size", code="required", message=message, fix=fix)]
    return []
