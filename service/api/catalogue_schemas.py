"""How the lists of the catalogue stand in the contract: a row, a page and a filter for each, from the same columns."""

from collections.abc import Mapping

from service.api.json_schema import Schema, json_response, ref
from service.workflows.catalogue_lists import LISTINGS, Listing
from service.workflows.columns import Column
from service.workflows.list_query import DEFAULT_ROWS, MOST_ROWS

SINGULAR: Mapping[str, str] = {
    "models": "Model",
    "gpus": "Gpu",
    "clusters": "Cluster",
    "prices": "Price",
    "rate-cards": "RateCard",
}
"""What one row of a list is called in the names of schemas and operations."""

CURSOR: Schema = {
    "name": "cursor",
    "in": "query",
    "description": "next_cursor of the page before; the first page where absent.",
    "schema": {"type": "string", "minLength": 1},
}

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
        name = SINGULAR[plural]
        schemas |= {f"{name}Row": _row(plural, listing), f"{name}Page": _page(name), f"{name}Filter": _filter(listing)}
    return schemas


def list_operation(plural: str) -> Schema:
    """What the contract adds to a list.

    Args:
        plural: the list

    Returns:
        parts of an OpenAPI operation
    """
    return {
        "parameters": [_filters(plural), limit_parameter({"default": DEFAULT_ROWS}), CURSOR],
        "responses": json_response(ref(f"{SINGULAR[plural]}Page")),
    }


def table_operation(plural: str) -> Schema:
    """What the contract adds to the CSV twin of a list.

    Args:
        plural: the list

    Returns:
        parts of an OpenAPI operation
    """
    content = {"text/csv": {"schema": {"type": "string", "description": "RFC 4180, with a header."}}}
    return {
        "parameters": [_filters(plural), limit_parameter({}), CURSOR],
        "responses": {"200": {"description": "Every row that passes the filters.", "content": content}},
    }


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


def _row(plural: str, listing: Listing) -> Schema:
    properties = {column.name: dict(column.schema) for column in listing.columns}
    return {
        "type": "object",
        "description": f"One of the {plural} of the catalogue; null means not known, never zero.",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _page(name: str) -> Schema:
    items = {"type": "array", "description": "The rows.", "maxItems": MOST_ROWS, "items": ref(f"{name}Row")}
    meaning = "Where the next page begins, for `cursor`; null after the last row."
    return {
        "type": "object",
        "description": "Some rows of a list.",
        "additionalProperties": False,
        "required": ["items", "next_cursor"],
        "properties": {"items": items, "next_cursor": {"type": ["string", "null"], "description": meaning}},
    }


def _filter(listing: Listing) -> Schema:
    return {
        "type": "object",
        "description": "Columns and the values that they must have; no value means that nothing is known.",
        "additionalProperties": False,
        "properties": {column.name: _filtered(column) for column in listing.columns},
    }


def _filtered(column: Column) -> Schema:
    kind = next((name for name in ("integer", "number", "boolean") if name in column.types), "string")
    choices = {"enum": list(column.choices)} if column.choices and kind == "string" else {}
    return {"type": kind, **choices, "description": column.schema["description"]}


def _filters(plural: str) -> Schema:
    return {
        "name": "filter",
        "in": "query",
        "description": "Each column is a parameter of its own name; twice, either will do; gpu by any of its names.",
        "style": "form",
        "explode": True,
        "schema": ref(f"{SINGULAR[plural]}Filter"),
    }


def limit_parameter(more: Schema) -> Schema:
    """How many rows a page may hold.

    Args:
        more: what else its schema says

    Returns:
        an OpenAPI parameter
    """
    schema = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, **more}
    return {"name": "limit", "in": "query", "description": "Rows at most.", "schema": schema}
