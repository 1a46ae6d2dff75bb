"""How the lists of the catalogue stand in the contract: a row, a page and a filter for each, from the same columns."""

from collections.abc import Mapping

from service.api.json_schema import Schema, json_response, ref
from service.api.list_schemas import list_schemas
from service.workflows.catalogue_lists import LISTINGS
from service.workflows.revisions import COLUMNS

SINGULAR: Mapping[str, str] = {
    "models": "Model",
    "gpus": "Gpu",
    "clusters": "Cluster",
    "prices": "Price",
    "rate-cards": "RateCard",
    "regions": "Region",
}
"""What one row of a list is called in the names of schemas and operations."""


VERSION: Schema = {
    "name": "revision",
    "in": "query",
    "description": "An older version of the row, by its revision; the one that holds where absent.",
    "schema": {"type": "integer", "minimum": 1},
}


def catalogue_schemas() -> dict[str, Schema]:
    """The schemas that the lists refer to.

    Returns:
        JSON schemas by component name
    """
    schemas: dict[str, Schema] = {}
    for plural, listing in LISTINGS.items():
        schemas |= list_schemas(SINGULAR[plural], f"One of the {plural} of the catalogue", listing.columns)
    return schemas | list_schemas("Revision", "One change of the catalogue", COLUMNS)


def row_operation(plural: str) -> Schema:
    """What the contract adds to the reading of one row.

    Args:
        plural: the list it stands in

    Returns:
        parts of an OpenAPI operation
    """
    meaning = "Its id." if plural == "prices" else "Its slug or any other name, in any spelling."
    return {"parameters": [named_row(meaning), VERSION], "responses": json_response(ref(f"{SINGULAR[plural]}Row"))}


def named_row(meaning: str) -> Schema:
    """The part of a path that names one row.

    Args:
        meaning: which names mean it

    Returns:
        an OpenAPI parameter
    """
    return {"name": "name", "in": "path", "required": True, "description": meaning, "schema": {"type": "string"}}
