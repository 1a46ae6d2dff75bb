"""What is to be mended? Each finding about a request becomes a Problem: the field, the broken rule, the fix.

A problem names fields and bounds that the service knows, never the caller's text.
"""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from service.errors import MOST_PROBLEMS, Problem, did_you_mean, nearest
from service.workflows.expectation import Schema, expectation_of, names_at, schema_at

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


def unknown_field(path: str, name: str, known: set[str], whole: str = "the question") -> Problem:
    """The problem of a field that nobody reads; a field is never ignored.

    Args:
        path: dotted path of the object that holds it
        name: the unknown name, compared but never repeated
        known: names the object may hold
        whole: what the body as a whole is

    Returns:
        a problem that lists the nearest known names
    """
    names = sorted(known)
    fix = did_you_mean(nearest(name, names)) or f"leave it out; the fields are {', '.join(names)}"
    place = path or whole
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


def not_json(path: str) -> Problem:
    """The problem of a value that cannot come from JSON at all.

    Args:
        path: dotted path of the object that holds it

    Returns:
        a problem that says what JSON can spell
    """
    return Problem(
        field=path,
        code="not_json",
        message=f"{path or 'the question'} holds a value that JSON cannot spell",
        fix="use plain JSON values: text without lone surrogates, numbers, true, false, null, lists, objects",
    )


def problems_of(root: Schema, error: ValidationError, path: str) -> list[Problem]:
    """What pydantic found, as problems.

    Args:
        root: JSON schema of the noun that was judged
        error: pydantic's findings
        path: dotted path of the noun in the request

    Returns:
        one problem for each finding, the first ones where there are many
    """
    details = error.errors(include_url=False, include_context=False, include_input=True)
    values = {detail["loc"][:-1]: detail["input"] for detail in reversed(details)}
    wrong = [detail for detail in details[: 2 * MOST_PROBLEMS] if not _of_another_branch(detail, values)]
    return [_problem(root, detail, path) for detail in wrong[:MOST_PROBLEMS]]


def _problem(root: Schema, detail: ErrorDetails, path: str) -> Problem:
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


def _of_another_branch(detail: ErrorDetails, values: Mapping[tuple[int | str, ...], object]) -> bool:
    """Whether a finding judges the value as the kind of union member that it plainly is not.

    Args:
        detail: the finding
        values: the first value that was judged at each place, by the location of what holds it
    """
    branch = next((i for i, step in enumerate(detail["loc"]) if _is_branch(step)), None)
    if branch is None:
        return False
    is_object = isinstance(values.get(detail["loc"][:branch]), Mapping)
    return is_object == str(detail["loc"][branch]).startswith("literal[")


def _is_branch(step: int | str) -> bool:
    """Whether pydantic put this step into a location to name a member of a union."""
    return isinstance(step, str) and (step.startswith("literal[") or step[:1].isupper())


def _join(path: str, steps: list[int | str]) -> str:
    return ".".join([path, *map(str, steps)] if path else map(str, steps))
