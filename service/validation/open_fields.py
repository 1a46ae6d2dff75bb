"""Open fields of a question: those of its layout, micro-batch and recompute that a search chooses."""

from collections.abc import Mapping
from typing import Any

from service.errors import MOST_PROBLEMS, Problem, Refused, refuse
from service.estimator.question import Layout, Recipe
from service.validation.forms import MOST_VALUES
from service.validation.question_parts import VALUE_IS_A_LIST, Planned
from service.validation.reading import field_names, read_spec

SEARCHED: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "layout": (Layout, field_names(Layout)),
    "recipe": (Recipe, ("micro_batch", "recompute")),
}
"""Parts of a question with the fields that the search chooses."""

NOT_PLANNED = Problem(
    field="layout.auto",
    code="layout_is_not_planned_here",
    message="layout.auto is set, and layouts are planned for estimates, cells, scenarios and timelines alone: a search "
    "takes a thousand times as long as an answer",
    fix="ask POST /v1/estimates with layout.auto, and give resolved.layout and resolved.recipe of its answer here",
)

PLANNED_FIELDS = field_names(Planned)


def split_layout(body: Mapping[str, Any]) -> tuple[dict[str, tuple[Any, ...]] | None, Mapping[str, Any]]:
    """The allowed values of open fields, None where the layout is given, and the question without both."""
    layout = body.get("layout")
    if not isinstance(layout, Mapping) or "auto" not in layout:
        return None, body
    own = {name: layout[name] for name in PLANNED_FIELDS if layout.get(name) is not None}
    rest = {**body, "layout": {name: value for name, value in layout.items() if name not in PLANNED_FIELDS}}
    return constraints_of(rest) if read_spec(Planned, own, "layout").auto else (None, rest)


def constraints_of(parts: Mapping[str, Any]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """Split a question into the allowed values of searched fields and the rest."""
    allowed: dict[str, tuple[Any, ...]] = {}
    rest = dict(parts)
    problems: list[Problem] = []
    for part, (spec, names) in SEARCHED.items():
        given = parts.get(part)
        if not isinstance(given, Mapping):
            continue
        rest[part] = {name: value for name, value in given.items() if name not in names}
        for name in names:
            if given.get(name) is None:
                continue
            try:
                allowed[name] = _values(part, spec, name, given[name])
            except Refused as refused:
                problems += refused.problems
    refuse(problems[:MOST_PROBLEMS])
    return allowed, rest


def _values(part: str, spec: type, name: str, given: Any) -> tuple[Any, ...]:
    values = given if isinstance(given, list) and name not in VALUE_IS_A_LIST else [given]
    if not 1 <= len(values) <= MOST_VALUES:
        field, fix = f"{part}.{name}", f"list 1 to {MOST_VALUES}, or leave it out"
        message = f"{field} lists {len(values)} values to choose from"
        raise Refused(Problem(field=field, code="wrong_length", message=message, fix=fix))
    needed = {"sequence_length": 1} if spec is Recipe else {}
    return tuple(getattr(read_spec(spec, {**needed, name: value}, part), name) for value in values)
