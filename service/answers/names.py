"""Names on the wire that differ from Python's, and marks of schemas in the contract."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WIRE_NAMES = {"six_n": "6n", "memory_class": "class"}
"""Field names that are no Python identifiers or are keywords, by their Python name."""

INLINE = {"inline": True}
"""Metadata of a mapping whose items are serialised among the fields of its object."""

EACH = "x-each"
"""Mark of an object whose fields the contract describes as separate parameters."""

COMPONENT = "x-component"
"""Key of the component name of a schema, which the contract publishes once and refers to at each use."""

OWN_DESCRIPTION = "x-component-description"
"""Key of the description of a component, beside that of its use."""


def component(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema under its name in the contract."""
    return {COMPONENT: name, OWN_DESCRIPTION: schema.get("description"), **schema}


@dataclass(frozen=True)
class Described:
    """Marks a value of an answer with its schema in the contract."""

    schema: Mapping[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        return dict(self.schema)


class Published(Described):
    """Marks a value with the name of the component that describes it; a request defines the component."""

    def __init__(self, name: str) -> None:
        super().__init__({COMPONENT: name})


INLINED = "x-inlined"
"""Key of a mapping whose items are serialised among the fields of its object."""

NUMBERS = Described(
    {
        INLINED: True,
        "additionalProperties": {
            "description": "A requested number; null where it is not known.",
            "anyOf": [{COMPONENT: "Interval"}, *({"type": kind} for kind in ("number", "boolean", "null"))],
        },
    },
)
"""Marks the numbers of a row."""


def mapping_of_fields(description: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of values by the dotted names of their fields."""
    values = {
        "description": "A value of a field of a question.",
        "anyOf": [
            *({"type": kind} for kind in ("string", "number", "boolean", "object", "null")),
            {"type": "array", "items": {}},
        ],
    }
    return {
        "type": "object",
        "description": description,
        **({"propertyNames": {"enum": list(names)}} if names else {}),
        "additionalProperties": component("FieldValue", values),
    }
