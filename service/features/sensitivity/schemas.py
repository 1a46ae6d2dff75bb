"""Requests for a sensitivity table: the fields to vary, and how."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.answers.names import mapping_of_fields
from service.answers.rows import MOST_ROWS
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.question import Name
from service.features.compare.schemas import QUESTION
from service.validation.flat import unknown_variable, variable_fields
from service.validation.forms import DescribedAs, ReadElsewhere, requiring
from service.validation.problems import Collector, not_an_object
from service.validation.question_parts import PARTS, QuestionRequest
from service.validation.reading import field_names, read_spec

VARY = "vary"


class _Values(ReadElsewhere):
    """Lists of values by the dotted names of fields."""

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = mapping_of_fields("", [*variable_fields()])
        values = {"type": "array", "minItems": 1, "items": schema["additionalProperties"]}
        return schema | {"minProperties": 1, "additionalProperties": {"description": "Values of the field.", **values}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityRequest:
    """A question, and the fields that are varied."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring(QUESTION, VARY)

    question: Annotated[Any, DescribedAs(QuestionRequest)] = None
    """What is asked."""
    vary: Annotated[Any, _Values()] = None
    """Values by dotted field, at most 1,000 rows in all; null gives a field its default."""
    mode: Literal["one_at_a_time", "grid"] = "one_at_a_time"
    """one_at_a_time: each value alone in the question as it was asked. grid: all combinations."""
    metrics: Annotated[tuple[Name, ...], Len(1, 40)] | None = None
    """Numbers of each row, by the names that cells give them; those that most callers want where absent."""


SENSITIVITY_FIELDS = field_names(SensitivityRequest)


def read_sensitivity(body: Mapping[str, Any]) -> SensitivityRequest:
    """Parse a request body, except for its question and its values."""
    problems = Collector()
    given = {name: value for name, value in body.items() if value is not None or name not in SENSITIVITY_FIELDS}
    request = problems.read(lambda: read_spec(SensitivityRequest, given, "", whole="the body"))
    values = body.get(VARY)
    if not isinstance(body.get(QUESTION), Mapping):
        problems.add(not_an_object(QUESTION, PARTS))
    if isinstance(values, Mapping) and values:
        problems.add(*_wrong_fields(values))
    else:
        message = "vary is not an object of fields and their values"
        fix = 'give vary, e.g. {"recipe.micro_batch": [1, 2, 4]}'
        problems.add(Problem(field=VARY, code="not_an_object", message=message, fix=fix))
    problems.refuse()
    if request is None:
        raise Refused
    sizes = [len(items) for items in request.vary.values()]
    count = 1 + (prod(sizes) if request.mode == "grid" else sum(sizes))
    if count > MOST_ROWS:
        message = f"the values make {count} rows, and one table takes {MOST_ROWS}"
        fix = "give fewer values, or vary one field at a time"
        raise Refused(Problem(field=VARY, code="too_many_rows", message=message, fix=fix))
    return request


def _wrong_fields(values: Mapping[str, Any]) -> list[Problem]:
    known = [name for name in values if name in variable_fields()]
    problems = [unknown_variable(name, VARY) for name in values if name not in variable_fields()][:MOST_PROBLEMS]
    problems += [
        Problem(VARY, "not_a_list", f"the values of {name} are not a list of one or more", "give a list of values")
        for name in known
        if not isinstance(values[name], list) or not values[name]
    ]
    return problems or [  # a part is not varied with a field of it
        Problem(
            field=VARY,
            code="told_twice",
            message=f"{name} lies within {outer}, which is varied too, so one would undo the other",
            fix="vary one of them at a time",
        )
        for name in known
        for outer in known
        if name.startswith(f"{outer}.")
    ]


def changes_of(request: SensitivityRequest) -> Iterator[Mapping[str, Any]]:
    """Changes of each row after the first."""
    if request.mode == "grid":
        yield from (dict(zip(request.vary, one, strict=True)) for one in product(*request.vary.values()))
        return
    yield from ({name: value} for name, items in request.vary.items() for value in items)
