"""How the lists of the catalogue stand in the contract: a row, a page and a filter for each, from the same columns."""

from collections.abc import Mapping

from service.api.json_schema import Schema, json_response, ref
from service.api.list_schemas import list_schemas
from service.workflows.catalogue_lists import LISTINGS

SINGULAR: Mapping[str, str] = {"models": "Model", "gpus": "Gpu", "clusters": "Cluster", "prices": "Price"}
"""What one row of a list is called in the names of schemas and operations."""


def catalogue_schemas() -> dict[str, Schema]:
    """The schemas that the lists refer to.

    Returns:
        JSON schemas by component name
    """
    schemas: dict[str, Schema] = {}
    for plural, listing in LISTINGS.items():
        schemas |= list_schemas(SINGULAR[plural], f"One of the {plural} of the catalogue", listing.columns)
    return schemas


def row_operation(plural: str) -> Schema:
    """What the contract adds to the reading of one row.

    Args:
        plural: the list it stands in

    Returns:
        parts of an OpenAPI operation
    """
    meaning = "Its id." if plural == "prices" else "Its slug or any other name, in any spelling."
    name = {"name": "name", "in": "path", "required": True, "description": meaning, "schema": {"type": "string"}}
    return {"parameters": [name], "responses": json_response(ref(f"{SINGULAR[plural]}Row"))}
