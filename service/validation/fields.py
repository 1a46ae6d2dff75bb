"""Fields of a question that can be varied, by dotted name."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from service.errors import Problem, did_you_mean, nearest
from service.validation.flat import ALIASES, NAMING, flat_fields
from service.validation.question_parts import PARTS

NOTHING: Mapping[str, Any] = {}

NAMED_BY: Mapping[str, str] = {"model": "preset", "cluster": "preset"}
"""Field that names a whole part; for nested parts it is their first field."""


@cache
def variable_fields() -> Mapping[str, tuple[str, ...]]:
    """Every field that can be varied, including whole parts."""
    paths = [field.path for field in flat_fields().values()]
    every = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    return {".".join(path): path for path in sorted(every) if path[-1] != "preset"}


def unknown_variable(name: str, place: str) -> Problem:
    """The problem of an unknown field name."""
    known, flat = variable_fields(), flat_fields()
    last = name.rpartition(".")[2].lower()
    own = flat.get(ALIASES.get(last, last))
    likely = [".".join(own.path)] if own is not None and own.path[-1] != "preset" else nearest(name, known)
    near = likely or [".".join(flat[one].path) for one in nearest(last, flat)]
    fix = did_you_mean(near) or f"give the dotted name of a field, e.g. recipe.micro_batch; parts: {', '.join(PARTS)}"
    message = f"{place} names a field that does not exist; it would change nothing, so it is refused"
    return Problem(field=place, code="unknown_field", message=message, fix=fix)


def with_value(
    body: Mapping[str, Any], path: Sequence[str], value: Any, filled: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """A question's body with one field replaced; a name in place of an object becomes that object.

    >>> with_value({"model": "a"}, ("model", "num_hidden_layers"), 2)["model"]
    {'preset': 'a', 'num_hidden_layers': 2}
    >>> with_value({}, ("recipe", "stack", "cuda_graphs"), True, {"recipe": {"stack": "fsdp1"}})["recipe"]
    {'stack': {'name': 'fsdp1', 'cuda_graphs': True}}
    """
    step, *rest = path
    if not rest:
        others = {name: item for name, item in body.items() if name != step}
        return others if value is None else {**others, step: value}
    default = filled.get(step)
    whole = _as_object(body.get(step), default, step)
    return {**body, step: with_value(whole, rest, value, default if isinstance(default, Mapping) else NOTHING)}


def value_at(whole: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value of a field in the JSON of a question."""
    value: Any = whole
    for step in path:
        if not isinstance(value, Mapping):
            return value if step in NAMING and isinstance(value, str) else None
        value = value.get(step)
    return value


def _as_object(part: Any, default: Any, step: str) -> Mapping[str, Any]:
    """A part as an object; for an absent one, the name of its default."""
    if isinstance(part, Mapping):
        return part
    if part is not None:
        return {_naming(step): part}
    if isinstance(default, str):
        return {_naming(step): default}
    return {name: default[name] for name in NAMING if name in default} if isinstance(default, Mapping) else {}


def _naming(step: str) -> str:
    """The field that a plain name sets."""
    if step in NAMED_BY:
        return NAMED_BY[step]
    inner = (path[-1] for path in variable_fields().values() if len(path) > 2 and path[-2] == step)
    return next((name for name in inner if name in NAMING), "name")
