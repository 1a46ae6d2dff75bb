"""Problems: each finding about a request with its field, the broken rule and the fix."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from service.catalogue.bounds import limit_text
from service.errors import MOST_PROBLEMS, SECRET, Problem, Refused, did_you_mean, nearest, quoted
from service.validation.json_text import PLAIN_NAME
from service.validation.other_names import meant_by

Schema = Mapping[str, Any]
Part = TypeVar("Part")


class Collector:
    """Problems of the parts of a request, so that one refusal names all of them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, *problems: Problem) -> None:
        self.problems += problems

    def read(self, reader: Callable[..., Part], *arguments: Any) -> Part | None:
        """Read a part of the request; None where it is refused."""
        try:
            return reader(*arguments)
        except Refused as refused:
            self.add(*refused.problems)
            return None

    def refuse(self) -> None:
        if self.problems:
            raise Refused(*self.problems[:MOST_PROBLEMS])


def refused_at(field: str, refused: Refused, part: str = "") -> Refused:
    """A refusal with its problems below a field of the request, in the place of `part` where they name that."""

    def moved(problem: Problem) -> Problem:
        if not part:
            return replace(problem, field=f"{field}.{problem.field}".removesuffix("."))
        is_inside = problem.field.startswith(part)
        return replace(problem, field=f"{field}{problem.field.removeprefix(part)}") if is_inside else problem

    return Refused(*map(moved, refused.problems))


class DistinctCollector(Collector):
    """Distinct problems of parts that are read several times, each with something else."""

    def add(self, *problems: Problem) -> None:
        """Collect problems that are new."""
        self.problems = [*dict.fromkeys([*self.problems, *problems])]


def schema_at(root: Schema, steps: Sequence[int | str]) -> Schema:
    schema = root
    for step in steps:
        options = [_follow(root, option) for option in schema.get("anyOf", (schema,))]
        inside = (one.get("items") if isinstance(step, int) else one.get("properties", {}).get(step) for one in options)
        schema = next((one for one in inside if one is not None), {})
    return {**_follow(root, schema), **schema}


def expectation_of(schema: Schema) -> str:
    """What a schema allows, in words."""
    if "anyOf" in schema:
        options = [expectation_of(option) for option in schema["anyOf"] if option.get("type") != "null"]
        return " or ".join(options)
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if "const" in schema:
        return str(schema["const"])
    words = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "object": "an object"}
    kind = schema.get("type", "object")
    if kind == "array":
        return f"a list of {schema.get('minItems', 0)} to {schema.get('maxItems', 'any number of')} values"
    if kind == "string":
        return f"text of {schema.get('minLength', 0)} to {schema.get('maxLength', 'any number of')} characters"
    marks = (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"), ("exclusiveMaximum", "to below"))
    bounds = "".join(f" {mark} {limit_text(schema[key])}" for key, mark in marks if key in schema)
    return words[kind] + bounds.replace("above 0 to below", "above 0 and below")


def _follow(root: Schema, schema: Schema) -> Schema:
    reference: str = schema.get("$ref", "")
    return root["$defs"][reference.rpartition("/")[2]] if reference else schema


CODES = {
    "missing": "required",
    "int_type": "not_a_whole_number",
    "float_type": "not_a_number",
    "bool_type": "not_true_or_false",
    "string_type": "not_text",
    "tuple_type": "not_a_list",
    "dataclass_type": "not_an_object",
    "literal_error": "not_a_choice",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
    "too_short": "wrong_length",
    "too_long": "wrong_length",
    "string_too_short": "wrong_length",
    "string_too_long": "wrong_length",
}
"""Stable codes by pydantic's error type; others become `invalid`."""

ANY_TEXT = {"wrong_length", "not_text", "invalid"}
"""Codes of values that may be long or private texts, which no problem repeats."""


def inside(path: str, name: str) -> str:
    """The path of a field that a request names; that of its object where the name is not plain."""
    if not PLAIN_NAME.fullmatch(name) or SECRET.search(name):
        return path
    return f"{path}.{name}" if path else name


def unknown_field(path: str, name: str, known: Collection[str], whole: str = "the question") -> Problem:
    """The problem of an unknown field; a field is never ignored."""
    names = sorted(known)
    fix = meant_by(name, names) or f"leave it out; the fields are {', '.join(names)}"
    return Problem(
        field=inside(path, name),
        code="unknown_field",
        message=f"{path or whole} has no field {quoted(name)}; it would change nothing, so it is refused",
        fix=fix,
    )


def not_an_object(path: str, names: Sequence[str]) -> Problem:
    """The problem of a value that is not a JSON object."""
    return Problem(
        field=path,
        code="not_an_object",
        message=f"{path or 'the question'} is not a JSON object",
        fix=f"give an object with the fields {', '.join(names)}",
    )


def not_json(path: str) -> Problem:
    """The problem of a value that JSON cannot represent."""
    return Problem(
        field=path,
        code="not_json",
        message=f"{path or 'the question'} holds a value that JSON cannot spell",
        fix="use plain JSON values: text without lone surrogates, numbers, true, false, null, lists, objects",
    )


def problems_of(root: Schema, error: ValidationError, path: str) -> list[Problem]:
    """pydantic's errors as problems."""
    details = error.errors(include_url=False, include_context=False, include_input=True)
    values = {detail["loc"][:-1]: detail["input"] for detail in reversed(details)}
    wrong = [detail for detail in details[: 2 * MOST_PROBLEMS] if not _of_another_branch(detail, values)]
    return [_problem(root, detail, path) for detail in wrong[:MOST_PROBLEMS]]


def _problem(root: Schema, detail: ErrorDetails, path: str) -> Problem:
    if detail["type"] == "unexpected_keyword_argument":
        *steps, name = detail["loc"]
        place = [step for step in steps if not _is_branch(step)]
        schema = schema_at(root, place)
        options = [_follow(root, option) for option in schema.get("anyOf", (schema,))]
        known = {field for option in options for field in option.get("properties", ())}
        return unknown_field(_join(path, place), str(name), known)
    steps = [step for step in detail["loc"] if not _is_branch(step)]
    schema = schema_at(root, steps)
    expected, meaning, value = expectation_of(schema), schema.get("description", "").rstrip("."), detail["input"]
    code = CODES.get(detail["type"], "invalid")
    name = next((step for step in reversed(steps) if isinstance(step, str)), path)
    named = f"an item of {name}" if steps[-1:] != [name] else f"{name} ({meaning})" if meaning else str(name)
    quotes = ", without quotes" if isinstance(value, str) and "number" in code else ""
    wrong = f"is not {expected}" if code in ANY_TEXT else f"is {quoted(value)}, not {expected}"
    likely = ""
    if code == "not_a_choice":
        wrong = f"is {quoted(value)}, which is none of its choices"
        likely = did_you_mean(nearest(value, choices_of(schema)) if isinstance(value, str) else ())
    return Problem(
        field=_join(path, steps),
        code=code,
        message=f"{named} {'is missing and has no default' if code == 'required' else wrong}",
        fix=f"{likely} if not, give {expected}" if likely else f"give {expected}{quotes}",
    )


def choices_of(schema: Schema) -> list[str]:
    """The texts that a schema allows by name."""
    return [str(value) for option in schema.get("anyOf", [schema]) for value in option.get("enum", ())]


def _of_another_branch(detail: ErrorDetails, values: Mapping[tuple[int | str, ...], object]) -> bool:
    """Whether an error concerns a union member of another kind than the value."""
    branch = next((i for i, step in enumerate(detail["loc"]) if _is_branch(step)), None)
    if branch is None:
        return False
    is_object = isinstance(values.get(detail["loc"][:branch]), Mapping)
    return is_object == str(detail["loc"][branch]).startswith("literal[")


def _is_branch(step: int | str) -> bool:
    """Whether a step of pydantic's location names a member of a union."""
    return isinstance(step, str) and (step.startswith("literal[") or step[:1].isupper())


def _join(path: str, steps: list[int | str]) -> str:
    return ".".join([path, *map(str, steps)] if path else map(str, steps))
