"""A contract that says each thing once: short nullable types, and components for what several places repeat."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from service.api.openapi import Schema

NULL = {"type": "null"}

EXAMPLES = ("example", "examples")
"""Keys below which no schemas are."""


def compacted(value: Any) -> Any:
    """A part of the document in which a type or null is one list of types."""
    if isinstance(value, list):
        return [compacted(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: item if key in EXAMPLES else compacted(item) for key, item in value.items()}
    options = inner.get("anyOf")
    if not isinstance(options, list):
        return inner
    others = {key: item for key, item in inner.items() if key != "anyOf"}
    if all(option.keys() == {"type"} and isinstance(option["type"], str) for option in options):
        return others | {"type": [option["type"] for option in options]}
    values = [option for option in options if option != NULL]
    if len(values) == 1 < len(options) and isinstance(values[0].get("type"), str) and not values[0].keys() & VALUES:
        return others | values[0] | {"type": [values[0]["type"], "null"]}
    return inner


VALUES = {"enum", "const"}
"""Keywords that list values, and so exclude null."""


BOUNDS = frozenset({
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
})  # fmt: skip
"""Keywords that bound what callers may send; answers keep to them anyway."""


def without_bounds(value: Any) -> Any:
    """The schema of an answer without the bounds of its values."""
    if isinstance(value, list):
        return [without_bounds(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {name: without_bounds(one) for name, one in item.items()} if key == "properties" else without_bounds(item)
        for key, item in value.items()
        if key == "properties" or key not in BOUNDS
    }


COMPONENTS = "#/components/"


def share_parameters(paths: Mapping[str, Any], shared: dict[str, Schema]) -> None:
    """Move parameters that several operations have into the shared ones, in place."""
    _share([operation.get("parameters", []) for operation in _operations(paths)], "parameters", shared)


def share_responses(paths: Mapping[str, Any], shared: dict[str, Schema]) -> None:
    """Move responses that several operations give into the shared ones, in place."""
    _share([operation["responses"] for operation in _operations(paths)], "responses", shared)


def _operations(paths: Mapping[str, Any]) -> Iterator[Any]:
    for operations in paths.values():
        yield from operations.values()


def _share(places: list[Any], kind: str, shared: dict[str, Schema]) -> None:
    """Replace what several places repeat by references to components."""
    every = [(place, key) for place in places for key in (place if isinstance(place, dict) else range(len(place)))]
    used = Counter(_text(place[key]) for place, key in every)
    names = {_text(part): name for name, part in shared.items()}
    for place, key in every:
        text = _text(place[key])
        if "$ref" in place[key] or used[text] == 1:
            continue
        if text not in names:
            names[text] = _free_name(_name_of(place[key]), shared)
            shared[names[text]] = place[key]
        place[key] = {"$ref": f"{COMPONENTS}{kind}/{names[text]}"}


def _text(part: Schema) -> str:
    return json.dumps(part, sort_keys=True)


def _name_of(part: Schema) -> str:
    """Name of a parameter; of a response, the type of its answer."""
    if "name" in part:
        name: str = part["name"]
        return name
    for media_type, content in part.get("content", {}).items():
        reference = content["schema"].get("$ref")
        subtype = media_type.rpartition("/")[2].rpartition(".")[2].rpartition("-")[2].capitalize()
        return reference.rpartition("/")[2] if reference else f"{subtype}File"
    return "Done"


def _free_name(name: str, taken: Mapping[str, Schema]) -> str:
    return next(one for one in (name, *(f"{name}{number}" for number in range(2, 100))) if one not in taken)
