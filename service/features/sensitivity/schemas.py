"""Requests for a sensitivity table: the fields to vary, and how."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len

from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.question import STRICT, Name
from service.features.compare.schemas import QUESTION
from service.features.solve.schemas import collected
from service.validation.fields import unknown_variable, variable_fields
from service.validation.problems import not_an_object, unknown_field
from service.validation.specs import field_names, read_spec

MOST_ROWS = 1_000
"""Most rows of a table, with the unchanged question."""

VARY = "vary"


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityOptions:
    """Combination of the values, and numbers of the rows."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    mode: Literal["one_at_a_time", "grid"] = "one_at_a_time"
    """one_at_a_time: each value alone in the question as it was asked. grid: all combinations."""
    metrics: Annotated[tuple[Name, ...], Len(1, 40)] | None = None
    """Numbers of each row, by the names that cells give them; those that most callers want where absent."""


SENSITIVITY_FIELDS = (QUESTION, VARY, *field_names(SensitivityOptions))
"""Fields of the body."""


@dataclass(frozen=True, slots=True)
class SensitivityRequest:
    """Parsed request for a table."""

    options: SensitivityOptions
    """Options of the table."""
    values: Mapping[str, list[Any]]
    """Values by dotted field."""
    question: Mapping[str, Any]
    """The unparsed question."""


def read_sensitivity(body: Mapping[str, Any]) -> SensitivityRequest:
    """Parse a request body, except for its question and its values."""
    unknown = [name for name in body if name not in SENSITIVITY_FIELDS][:MOST_PROBLEMS]
    problems = [unknown_field("", name, {*SENSITIVITY_FIELDS}, "the body") for name in unknown]
    given = {name: body[name] for name in field_names(SensitivityOptions) if body.get(name) is not None}
    options = collected(lambda: read_spec(SensitivityOptions, given, ""), problems)
    question, values = body.get(QUESTION), body.get(VARY)
    if not isinstance(question, Mapping):
        problems.append(not_an_object(QUESTION, ["model", "recipe", "layout", "cluster", "price"]))
    if not isinstance(values, Mapping) or not values:
        message = "vary is not an object of fields and their values"
        fix = 'give vary, e.g. {"recipe.micro_batch": [1, 2, 4]}'
        problems.append(Problem(field=VARY, code="not_an_object", message=message, fix=fix))
    else:
        problems += _wrong_fields(values)
    if problems or options is None or not isinstance(values, Mapping) or not isinstance(question, Mapping):
        raise Refused(*problems[:MOST_PROBLEMS])
    request = SensitivityRequest(options, values, question)
    _refuse_too_many(request)
    return request


def _wrong_fields(values: Mapping[str, Any]) -> list[Problem]:
    known = [name for name in values if name in variable_fields()]
    problems = [unknown_variable(name, VARY) for name in values if name not in variable_fields()][:MOST_PROBLEMS]
    problems += [_not_a_list(name) for name in known if not isinstance(values[name], list) or not values[name]]
    return problems or _overlapping(known)


def _not_a_list(name: str) -> Problem:
    message = f"the values of {name} are not a list of one or more"
    return Problem(field=VARY, code="not_a_list", message=message, fix="give a list of values")


def _overlapping(names: list[str]) -> list[Problem]:
    """Refuse to vary both a part and a field of it."""
    return [
        Problem(
            field=VARY,
            code="told_twice",
            message=f"{name} lies within {outer}, which is varied too, so one would undo the other",
            fix="vary one of them at a time",
        )
        for name in names
        for outer in names
        if name.startswith(f"{outer}.")
    ]


def _refuse_too_many(request: SensitivityRequest) -> None:
    sizes = [len(items) for items in request.values.values()]
    count = 1 + (prod(sizes) if request.options.mode == "grid" else sum(sizes))
    if count > MOST_ROWS:
        message = f"the values make {count} rows, and one table takes {MOST_ROWS}"
        fix = "give fewer values, or vary one field at a time"
        raise Refused(Problem(field=VARY, code="too_many_rows", message=message, fix=fix))


def changes_of(request: SensitivityRequest) -> Iterator[Mapping[str, Any]]:
    """Changes of each row after the first."""
    values = request.values
    if request.options.mode == "grid":
        yield from (dict(zip(values, combination, strict=True)) for combination in product(*values.values()))
        return
    yield from ({name: value} for name, items in values.items() for value in items)
