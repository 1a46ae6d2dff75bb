"""How a table of varied fields stands in the contract: what is sent, and the rows that come back in each form."""

from typing import Any

from service.api.body import CSV_BODY
from service.api.comparison_schemas import NUMBER, QUESTIONED
from service.api.json_schema import JSON, Schema, asked_in_body, object_schema, parameter_ref, ref, untitled
from service.api.list_schemas import TABLES, XLSX
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


def sensitivity_schemas(row: Schema, question: Schema, versions: Schema) -> dict[str, Schema]:
    """The schemas that the routes refer to.

    Args:
        row: schema of the dataclass of a row
        question: schema of what POST /v1/estimates takes
        versions: schema of what an answer rests on

    Returns:
        JSON schemas by component name
    """
    tabling = {name: untitled(schema) for name, schema in schema_of(Tabling)["properties"].items()}
    values = {"description": "Values, each as the body of a question takes it.", "type": "array", "minItems": 1}
    vary = {
        "description": "Values by dotted field, at most 1,000 rows in all; null gives a field its default.",
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"enum": list(variable_fields())},
        "additionalProperties": values,
    }
    properties = {name: schema for name, schema in row["properties"].items() if name != "numbers"}
    rows = {
        "type": "array",
        "description": "The question as it was asked, then one row a value.",
        "maxItems": MOST_ROWS,
        "items": ref("VariedRow"),
    }
    fields = {"type": "array", "description": "The varied fields.", "items": {"type": "string"}}
    return {
        "SensitivityRequest": object_schema(
            "A question, and the fields that are varied.", [QUESTION, VARY], {QUESTION: question, VARY: vary, **tabling}
        ),
        "VariedRow": {
            **row,
            "required": list(properties),
            "properties": properties,
            "additionalProperties": {
                "description": "A number; null where it is not known.",
                "anyOf": NUMBER,
            },
        },
        "SensitivityAnswer": object_schema(
            "The rows.", ["fields", "rows", "versions"], {"fields": fields, "rows": rows, "versions": versions}
        ),
    }


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
