"""What are the parts of the contract made of? JSON schemas, and references to those that have a name."""

from collections.abc import Sequence
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
    """The schema of a component, by its name.

    Args:
        name: name of the component

    Returns:
        a reference to it
    """
    return {"$ref": f"#/components/schemas/{name}"}


def object_schema(description: str, required: Sequence[str], properties: Schema) -> Schema:
    """The schema of an object that has no other fields than these.

    Args:
        description: what it is
        required: fields that are always there
        properties: schemas of all fields

    Returns:
        the schema
    """
    told = {"required": list(required)} if required else {}
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        **told,
        "properties": properties,
    }


def untitled(schema: Schema) -> Schema:
    """A schema without its title, which would only repeat the name of a field.

    Args:
        schema: the schema

    Returns:
        the same, else
    """
    return {key: value for key, value in schema.items() if key != "title"}


def undefaulted(schema: Schema) -> Schema:
    """A schema without its default, where what is left out stays as it is.

    Args:
        schema: the schema

    Returns:
        the same, else
    """
    return {key: value for key, value in schema.items() if key != "default"}


def bare(schema: Schema) -> Schema:
    """A schema without what stands only where it is used.

    Args:
        schema: the schema

    Returns:
        the same without description and default
    """
    return {key: value for key, value in schema.items() if key not in {"description", "default"}}


def described(description: str, schema: Schema) -> Schema:
    """A schema under the meaning that it has where it is used.

    Args:
        description: what it means there
        schema: the schema

    Returns:
        the same with that description
    """
    return {"description": description, **bare(schema)}


def nullable(schema: Schema) -> Schema:
    """A schema that takes null too.

    Args:
        schema: the schema

    Returns:
        the same, and null
    """
    options = schema.get("anyOf", [bare(schema)])
    told = {key: schema[key] for key in ("description", "default") if key in schema}
    return told | {"anyOf": options if NULL in options else [*options, NULL]}


def parameter_ref(name: str) -> Schema:
    """The query parameter of a component, by its name.

    Args:
        name: name of the component

    Returns:
        a reference to it
    """
    return {"$ref": f"#/components/parameters/{name}"}


def query_parameter(name: str, description: str, schema: Schema) -> Schema:
    """A parameter of the query.

    Args:
        name: its name
        description: what it says
        schema: what it takes

    Returns:
        an OpenAPI parameter
    """
    return {"name": name, "in": "query", "description": description, "schema": schema}


def path_parameter(name: str, description: str, example: str, choices: Sequence[str] = ()) -> Schema:
    """A parameter of the path.

    Args:
        name: its name
        description: what it says
        example: one that is there
        choices: what it takes; empty where that is no closed list

    Returns:
        an OpenAPI parameter
    """
    schema = {"type": "string", **({"enum": list(choices)} if choices else {})}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
        "example": example,
    }


def json_content(schema: Schema) -> Schema:
    """The content of a body that is JSON.

    Args:
        schema: what it holds

    Returns:
        the content part of an OpenAPI request body or response
    """
    return {JSON: {"schema": schema}}


def json_response(schema: Schema, description: str = "The answer.") -> Schema:
    """The successful response of an operation that answers in JSON.

    Args:
        schema: what it holds
        description: what it is

    Returns:
        the responses part of an OpenAPI operation
    """
    return {"200": {"description": description, "content": json_content(schema)}}


def asked_in_body(schema: Schema, examples: Schema, *media_types: str) -> Schema:
    """The request body of an operation.

    Args:
        schema: what the body holds
        examples: OpenAPI examples by name
        media_types: what it may call itself; JSON alone where none is named

    Returns:
        the requestBody part of an OpenAPI operation
    """
    content = {"schema": schema, "examples": examples}
    return {"required": True, "content": dict.fromkeys(media_types or (JSON,), content)}
