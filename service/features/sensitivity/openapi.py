"""OpenAPI of sensitivity tables: the request, and rows in each form."""

from collections.abc import Iterator, Mapping
from typing import Any

from service.api.openapi import (
    CSV_BODY,
    JSON,
    NAME,
    TABLES,
    XLSX,
    Schema,
    bare,
    described,
    nullable,
    object_schema,
    parameter_ref,
    ref,
    request_body,
    untitled,
)
from service.api.queries import REV
from service.features.compare.openapi import NUMBER, QUESTIONED
from service.features.compare.schemas import QUESTION
from service.features.sensitivity.schemas import MOST_ROWS, VARY, SensitivityOptions
from service.validation.fields import variable_fields
from service.validation.specs import schema_of

Schemas = Mapping[str, Schema]

INPUT = "-Input"
"""Suffixes of spec names in requests."""

QUESTION_PLACES = "QuestionRequest"
"""Component of what POST /v1/estimates takes."""

NAMED = {"preset": NAME}
"""A model and a cluster may be a preset with changes."""


def dotted(spelled: Schemas, path: tuple[str, ...]) -> Schema:
    """Schema of a field of a question."""
    found: list[Schema] = [spelled[QUESTION_PLACES]]
    for step in path:
        inside = [one["properties"][step] for one in _objects(spelled, found) if step in one["properties"]]
        found = list({repr(bare(one)): one for one in inside}.values())
    options = [bare(option) for schema in found for option in schema.get("anyOf", (schema,))]
    different = list({repr(option): option for option in options}.values())
    return {"description": found[0].get("description", ""), "anyOf": different}


def _objects(spelled: Schemas, schemas: list[Schema]) -> Iterator[Schema]:
    """The objects that some schemas allow."""
    for schema in schemas:
        for option in schema.get("anyOf", (schema,)):
            held = spelled[option["$ref"].rpartition("/")[2]] if "$ref" in option else option
            if "properties" in held:
                yield held


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
    """Schemas of sensitivity tables."""
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
    tabling = {name: untitled(schema) for name, schema in schema_of(SensitivityOptions)["properties"].items()}
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
    """OpenAPI of an operation."""
    content: dict[str, Any] = {JSON: {"schema": ref("SensitivityAnswer")}}
    content |= {media: {"schema": TABLES[media]} for media in (CSV_BODY, XLSX)}
    kept = {media: schema for media, schema in content.items() if form in ("", media)}
    return {
        "description": "What is wrong with the request is refused as a whole. What one value makes impossible is a row "
        "with status 422 and its reason; not fitting is an answer like any other.",
        "parameters": [parameter_ref(REV)],
        "requestBody": request_body(ref("SensitivityRequest"), VARIATIONS),
        "responses": {"200": {"description": "The rows.", "content": kept}},
    }
