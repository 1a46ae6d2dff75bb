"""How a table of varied fields stands in the contract: what is sent, and the rows that come back in each form."""

from collections.abc import Mapping
from typing import Any

from service.api.comparison_schemas import NUMBER, QUESTIONED
from service.api.json_schema import (
    CSV_BODY,
    JSON,
    Schema,
    asked_in_body,
    bare,
    described,
    nullable,
    object_schema,
    parameter_ref,
    ref,
    untitled,
)
from service.api.list_schemas import TABLES, XLSX
from service.api.partial_schemas import dotted
from service.api.queries import REV
from service.workflows.comparison_label import QUESTION
from service.workflows.nouns import schema_of
from service.workflows.sensitivity_label import MOST_ROWS, VARY, Tabling
from service.workflows.varied_fields import variable_fields

VARIATIONS: dict[str, Schema] = {
    "one-at-a-time": {
        "summary": "Micro-batch, recompute and precision, each alone",
        "value": {
            QUESTION: {**QUESTIONED, "recipe": {"sequence_length": 4096, "recompute": "full"}},
            VARY: {
                "recipe.micro_batch": [1, 2, 4],
                "recipe.recompute": ["none", "selective"],
                "recipe.precision": ["fp8-tensorwise"],
            },
        },
    },
    "grid": {
        "summary": "Every micro-batch on every number of GPUs",
        "value": {
            QUESTION: {**QUESTIONED, "recipe": {"sequence_length": 4096, "recompute": "full"}},
            VARY: {"recipe.micro_batch": [1, 2], "cluster.gpus": [8, 16, 32]},
            "mode": "grid",
            "metrics": ["fits", "device_peak_bytes", "tokens_per_s_per_gpu"],
        },
    },
}
"""Request bodies that POST /v1/sensitivity answers."""


def sensitivity_schemas(spelled: Mapping[str, Schema], versions: Schema) -> dict[str, Schema]:
    """The schemas that the routes refer to.

    Args:
        spelled: schemas of the nouns, of the forms in which a request takes them, and of a row, by component name
        versions: schema of what an answer rests on

    Returns:
        JSON schemas by component name
    """
    fields = {name: dotted(spelled, path) for name, path in variable_fields().items()}
    given = {name: nullable(field) for name, field in fields.items()}
    rows = {
        "type": "array",
        "description": "The question as it was asked, then one row a value.",
        "maxItems": MOST_ROWS,
        "items": ref("VariedRow"),
    }
    named = {"type": "array", "description": "The varied fields.", "items": {"type": "string"}}
    return {
        "SensitivityRequest": _request(fields),
        "VariedFields": object_schema("Varied fields, each with its value.", [], given),
        "VariedRow": _row(spelled["VariedRow"]),
        "SensitivityAnswer": object_schema(
            "The rows.", ["fields", "rows", "versions"], {"fields": named, "rows": rows, "versions": versions}
        ),
    }


def _request(fields: Schema) -> Schema:
    tabling = {name: untitled(schema) for name, schema in schema_of(Tabling)["properties"].items()}
    meaning = "Values by dotted field, at most 1,000 rows in all; null gives a field its default."
    values = {name: _values(field) for name, field in fields.items()}
    vary = object_schema(meaning, [], values) | {"minProperties": 1}
    asked = {QUESTION: described("What is asked.", ref("QuestionRequest")), VARY: vary, **tabling}
    return object_schema("A question, and the fields that are varied.", [QUESTION, VARY], asked)


def _values(field: Schema) -> Schema:
    """The list of values that a field takes one after another."""
    return {"description": field["description"], "type": "array", "minItems": 1, "items": bare(nullable(field))}


def _row(generated: Schema) -> Schema:
    properties = {name: schema for name, schema in generated["properties"].items() if name != "numbers"}
    properties["values"] = described(properties["values"]["description"], ref("VariedFields"))
    number = {"description": "A number; null where it is not known.", "anyOf": NUMBER}
    return {**generated, "required": list(properties), "properties": properties, "additionalProperties": number}


def sensitivity_operation(form: str) -> Schema:
    """What the contract adds to a route.

    Args:
        form: media type of its answer; empty where the caller chooses

    Returns:
        parts of an OpenAPI operation
    """
    content: dict[str, Any] = {JSON: {"schema": ref("SensitivityAnswer")}}
    content |= {media: {"schema": TABLES[media]} for media in (CSV_BODY, XLSX)}
    kept = {media: schema for media, schema in content.items() if form in ("", media)}
    return {
        "description": "What is wrong with the request is refused as a whole. What one value makes impossible is a row "
        "with status 422 and its reason; not fitting is an answer like any other.",
        "parameters": [parameter_ref(REV)],
        "requestBody": asked_in_body(ref("SensitivityRequest"), VARIATIONS),
        "responses": {"200": {"description": "The rows.", "content": kept}},
    }
