"""How the lists of the catalogue stand in the contract: a row, a page and a filter for each, from the same columns."""

from service.api.access import SINGULAR
from service.api.json_schema import Schema, json_response, path_parameter, query_parameter, ref
from service.api.list_schemas import list_parameters, list_schemas, paging_parameters
from service.api.row_examples import PRICE_ID, ROWS
from service.workflows.catalogue_lists import LISTINGS
from service.workflows.revisions import COLUMNS, NEWEST_FIRST

OWNER = "owner"
"""Parameter by which an admin says whose row is meant."""
OWNED = query_parameter(
    OWNER,
    "Whose row is meant, where an admin asks and several owners have one of this name; your own where absent.",
    {"type": "string"},
)
VERSION = query_parameter(
    "revision",
    "An older version of the row, by its revision; the one that holds where absent.",
    {"type": "integer", "minimum": 1},
)


def catalogue_schemas() -> dict[str, Schema]:
    """The schemas that the lists refer to.

    Returns:
        JSON schemas by component name
    """
    schemas: dict[str, Schema] = {}
    for plural, listing in LISTINGS.items():
        schemas |= list_schemas(SINGULAR[plural], f"One of the {plural} of the catalogue", listing.columns)
    return schemas | list_schemas("Revision", "One change of the catalogue", COLUMNS)


def catalogue_parameters() -> dict[str, Schema]:
    """The parameters that the lists refer to.

    Returns:
        OpenAPI parameters by component name
    """
    parameters = paging_parameters() | list_parameters("Revision", COLUMNS, NEWEST_FIRST)
    for plural, listing in LISTINGS.items():
        parameters |= list_parameters(SINGULAR[plural], listing.columns)
    return parameters


def row_operation(plural: str) -> Schema:
    """What the contract adds to the reading of one row.

    Args:
        plural: the list it stands in

    Returns:
        parts of an OpenAPI operation
    """
    meaning = "Its id." if plural == "prices" else "Its slug or any other name, in any spelling."
    return {
        "parameters": [named_row(plural, meaning), VERSION, OWNED],
        "responses": json_response(ref(f"{SINGULAR[plural]}Row")),
    }


def named_row(plural: str, meaning: str) -> Schema:
    """The part of a path that names one row.

    Args:
        plural: the list that it stands in
        meaning: which names mean it

    Returns:
        an OpenAPI parameter
    """
    row = ROWS[plural]
    return path_parameter("name", meaning, row.get("slug", PRICE_ID))
