"""What are the parts of the contract made of? JSON schemas, and references to those that have a name."""

from collections.abc import Sequence
from typing import Any

Schema = dict[str, Any]
"""A JSON schema, or another part of an OpenAPI document."""

JSON = "application/json"
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


def parameter_ref(name: str) -> Schema:
    """The query parameter of a component, by its name.

    Args:
        name: name of the component

    Returns:
        a reference to it
    """
    return {"$ref": f"#/components/parameters/{name}"}


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
