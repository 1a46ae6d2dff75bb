"""Schemas, parameters and responses that operations share in the OpenAPI document."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]
"""A JSON schema, or another part of an OpenAPI document."""

JSON = "application/json"
EVENTS = "text/event-stream"
JSON_BODY = JSON
MERGE_PATCH = "application/merge-patch+json"
CSV_BODY = "text/csv"
TEXT_BODY = "text/plain"
NULL: Schema = {"type": "null"}
ETAG: Schema = {"description": "Version of what is answered.", "schema": {"type": "string"}}
"""Header of every answer to GET, for If-None-Match; of a row, for If-Match too."""


def ref(name: str) -> Schema:
    """The schema of a component, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def bare(schema: Schema) -> Schema:
    """A schema without the description and default of its use."""
    return {key: value for key, value in schema.items() if key not in {"description", "default"}}


def described(description: str, schema: Schema) -> Schema:
    """A schema with the description of its use."""
    return {"description": description, **bare(schema)}


def nullable(schema: Schema) -> Schema:
    """A schema that also accepts null."""
    options = schema.get("anyOf", [bare(schema)])
    annotations = {key: schema[key] for key in ("description", "default") if key in schema}
    return annotations | {"anyOf": options if NULL in options else [*options, NULL]}


def query_parameter(name: str, description: str, schema: Schema) -> Schema:
    """A parameter of the query."""
    return {"name": name, "in": "query", "description": description, "schema": schema}


def path_parameter(name: str, description: str, example: str, choices: Sequence[str] = ()) -> Schema:
    """A parameter of the path."""
    schema = {"type": "string", **({"enum": list(choices)} if choices else {})}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
        "example": example,
    }


def examples(bodies: Mapping[str, Any], *media_types: str, text: Schema | None = None, required: bool = True) -> Schema:
    """Examples of the bodies of an operation, for `openapi_extra`; `text` describes a body of text/plain."""
    content = {name: {"examples": dict(bodies)} for name in media_types or (JSON,)}
    return {"requestBody": {"required": required, "content": content | ({} if text is None else {TEXT_BODY: text})}}


def example(summary: str, body: Any, *media_types: str, required: bool = True) -> Schema:
    """One example of the body of an operation, for `openapi_extra`."""
    return examples({"example": {"summary": summary, "value": body}}, *media_types, required=required)


def events(meaning: str) -> dict[int | str, Schema]:
    """An answer that may also come as server-sent events, for `responses`."""
    return {200: {"content": {EVENTS: {"schema": {"description": f"Events: {meaning}"}}}}}


def json_content(schema: Schema) -> Schema:
    """The content of a body that is JSON."""
    return {JSON: {"schema": schema}}


def json_response(schema: Schema, description: str = "The answer.") -> Schema:
    """The successful response of an operation that answers in JSON."""
    return {"200": {"description": description, "content": json_content(schema)}}


def request_body(schema: Schema, examples: Schema, *media_types: str) -> Schema:
    """The request body of an operation."""
    content = {"schema": schema, "examples": examples}
    return {"required": True, "content": dict.fromkeys(media_types or (JSON,), content)}


XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

PARQUET = "application/vnd.apache.parquet"

TABLES: dict[str, Schema] = {
    CSV_BODY: {"type": "string", "description": "RFC 4180, with a header."},
    XLSX: {"type": "string", "format": "binary", "description": "One sheet; texts never run as formulas."},
    PARQUET: {"type": "string", "format": "binary", "description": "Typed columns, each with what it means."},
}
"""Schemas of a list as a table, by media type."""


def table_response(media_type: str, description: str) -> dict[int | str, Schema]:
    """An answer that is a table, for `responses`."""
    return {200: {"description": description, "content": {media_type: {"schema": TABLES[media_type]}}}}


CONFIG: Schema = {
    "type": "object",
    "description": "The config.json.",
    "required": ["model_type"],
    "additionalProperties": True,
    "properties": {"model_type": {"type": "string", "description": "Which architecture the other keys describe."}},
}
