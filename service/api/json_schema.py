"""What are the parts of the contract made of? JSON schemas, and references to those that have a name."""

from typing import Any

Schema = dict[str, Any]
"""A JSON schema, or another part of an OpenAPI document."""


def ref(name: str) -> Schema:
    """The schema of a component, by its name.

    Args:
        name: name of the component

    Returns:
        a reference to it
    """
    return {"$ref": f"#/components/schemas/{name}"}


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
    return {"application/json": {"schema": schema}}


def json_response(schema: Schema, description: str = "The answer.") -> Schema:
    """The successful response of an operation that answers in JSON.

    Args:
        schema: what it holds
        description: what it is

    Returns:
        the responses part of an OpenAPI operation
    """
    return {"200": {"description": description, "content": json_content(schema)}}
