"""Is this part of a request one of the nouns (Model, Recipe, Layout, Cluster, Price), and if not, what is to be mended?

pydantic judges the values against the estimator's own dataclasses; this file turns each of its
findings into a Problem that names the field, the rule and the fix, and never the caller's text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from service.errors import Problem, Refused
from service.workflows.expectation import expectation_of, names_at, schema_at

Noun = TypeVar("Noun")

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
"""Our stable codes for pydantic's kinds of error; any other kind is `invalid`."""

MOST_FINDINGS = 20
"""Findings about one noun that become problems: nobody mends more at once, and each costs time to word."""

LONGEST_NAME = 200
LONGEST_GUESSED_NAME = 64
"""Characters up to which an unknown name is compared with the known ones."""


def read_noun(kind: type[Noun], value: object, path: str, *, beside: tuple[str, ...] = ()) -> Noun:
    """The noun that a JSON object spells.

    Args:
        kind: dataclass of the noun
        value: JSON value from the request
        path: dotted path of the value in the request, for the problems
        beside: further names that the request's form of this noun takes, to suggest when a name is unknown

    Returns:
        the noun, every field inside its bounds

    Raises:
        Refused: one problem for each unknown field and each wrong value
    """
    known = field_names(kind)
    if not isinstance(value, Mapping):
        raise Refused(not_an_object(path, known))
    unknown = [name for name in value if name not in known]
    problems = [unknown_field(path, name, {*known, *beside}) for name in unknown[:MOST_FINDINGS]]
    try:
        text = to_json({name: _not_equated(kind, name, item) for name, item in value.items() if name in known})
        noun: Noun = _validated(kind, text)
    except PydanticSerializationError:
        raise Refused(*problems, _not_json(path)) from None
    except ValidationError as error:
        raise Refused(*problems, *_problems(kind, error, path)) from None
    if problems:
        raise Refused(*problems)
    return noun


def read_name(value: object, path: str) -> str:
    """A name to look up in the catalogue.

    Args:
        value: JSON value from the request
        path: dotted path of the value

    Returns:
        the name

    Raises:
        Refused: the value is not text of 1 to 200 characters
    """
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME:
        return value
    message = f"{path.rpartition('.')[2]} is not a name of 1 to {LONGEST_NAME} characters"
    raise Refused(Problem(field=path, code="not_text", message=message, fix="give a name, in quotes"))


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a noun.

    Args:
        kind: dataclass of the noun

    Returns:
        their names, in order
    """
    return tuple(f.name for f in fields(kind))


def spelled(noun: Any) -> dict[str, Any]:
    """A flat noun as the JSON object that would spell it.

    Args:
        noun: a dataclass, such as a Model or a Cluster

    Returns:
        its fields by name
    """
    return {name: getattr(noun, name) for name in field_names(type(noun))}


@cache
def adapter_of(kind: type) -> TypeAdapter[Any]:
    """pydantic's validator of one noun, built once.

    Args:
        kind: dataclass of the noun

    Returns:
        its validator
    """
    return TypeAdapter(kind)


@cache
def schema_of(kind: type) -> Mapping[str, Any]:
    """JSON schema of one noun, built once.

    Args:
        kind: dataclass of the noun

    Returns:
        its schema
    """
    return adapter_of(kind).json_schema()


def unknown_field(path: str, name: str, known: set[str]) -> Problem:
    """The problem of a field that nobody reads; a field is never ignored.

    Args:
        path: dotted path of the object that holds it
        name: the unknown name, compared but never repeated
        known: names the object may hold

    Returns:
        a problem that lists the nearest known names
    """
    near = get_close_matches(name[:LONGEST_GUESSED_NAME].lower(), sorted(known), n=3, cutoff=0.6)
    fix = f"did you mean {' or '.join(near)}?" if near else f"leave it out; the fields are {', '.join(sorted(known))}"
    place = path or "the question"
    return Problem(
        field=path,
        code="unknown_field",
        message=f"{place} holds a field that does not exist there; it would change nothing, so it is refused",
        fix=fix,
    )


def not_an_object(path: str, names: Sequence[str]) -> Problem:
    """The problem of a value that should have been a JSON object.

    Args:
        path: dotted path of the value
        names: fields that the object would hold

    Returns:
        a problem that lists those fields
    """
    place = path or "the question"
    return Problem(
        field=path,
        code="not_an_object",
        message=f"{place} is not a JSON object",
        fix=f"give an object with the fields {', '.join(names)}",
    )


def _not_equated(kind: type, name: str, item: object) -> object:
    """The value, but as text where a choice of whole numbers is given true or 1.0: pydantic takes them for 1."""
    return str(item) if isinstance(item, (bool, float)) and name in _numbered_choices(kind) else item


@cache
def _numbered_choices(kind: type) -> frozenset[str]:
    """Fields that take one of a few whole numbers."""
    options = {name: schema.get("anyOf", (schema,)) for name, schema in schema_of(kind)["properties"].items()}
    return frozenset(
        n for n, some in options.items() if any(isinstance(v, int) for s in some for v in s.get("enum", ()))
    )


def _validated(kind: type, text: bytes) -> Any:
    return adapter_of(kind).validate_json(text, strict=True)


def _problems(kind: type, error: ValidationError, path: str) -> list[Problem]:
    details = error.errors(include_url=False, include_context=False, include_input=True)
    wrong = [detail for detail in details[: 2 * MOST_FINDINGS] if not _of_another_branch(detail, details)]
    return [_problem(kind, detail, path) for detail in wrong[:MOST_FINDINGS]]


def _problem(kind: type, detail: ErrorDetails, path: str) -> Problem:
    root = schema_of(kind)
    if detail["type"] == "unexpected_keyword_argument":
        *steps, name = detail["loc"]
        place = [step for step in steps if not _is_branch(step)]
        return unknown_field(_join(path, place), str(name), names_at(root, place))
    steps = [step for step in detail["loc"] if not _is_branch(step)]
    schema = schema_at(root, steps)
    wanted, meaning = expectation_of(schema), schema.get("description", "").rstrip(".")
    code = CODES.get(detail["type"], "invalid")
    name = next((step for step in reversed(steps) if isinstance(step, str)), path)
    named = f"an item of {name}" if steps[-1:] != [name] else f"{name} ({meaning})" if meaning else str(name)
    quotes = ", without quotes" if isinstance(detail["input"], str) and "number" in code else ""
    return Problem(
        field=_join(path, steps),
        code=code,
        message=f"{named} is missing and has no default" if code == "required" else f"{named} is not {wanted}",
        fix=f"give {wanted}{quotes}",
    )


def _of_another_branch(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """Whether a finding judges the value as the kind of union member that it plainly is not."""
    branch = next((i for i, step in enumerate(detail["loc"]) if _is_branch(step)), None)
    if branch is None:
        return False
    is_object = isinstance(_value_before(detail, details, branch), Mapping)
    return is_object == str(detail["loc"][branch]).startswith("literal[")


def _value_before(detail: ErrorDetails, details: list[ErrorDetails], branch: int) -> object:
    for other in details:
        if other["loc"][:branch] == detail["loc"][:branch] and len(other["loc"]) == branch + 1:
            return other["input"]
    return None


def _is_branch(step: int | str) -> bool:
    """Whether pydantic put this step into a location to name a member of a union."""
    return isinstance(step, str) and (step.startswith("literal[") or step[:1].isupper())


def _join(path: str, steps: list[int | str]) -> str:
    return ".".join([path, *map(str, steps)] if path else map(str, steps))


def _not_json(path: str) -> Problem:
    return Problem(
        field=path,
        code="not_json",
        message=f"{path or 'the question'} holds a value that JSON cannot spell",
        fix="use plain JSON values: text without lone surrogates, numbers, true, false, null, lists, objects",
    )
