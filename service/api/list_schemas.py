"""How a list stands in the contract: a row, a page and a filter, all from the same columns, and its three forms."""

from collections.abc import Sequence

from service.api.body import CSV_BODY
from service.api.json_schema import Schema, json_response, ref
from service.workflows.columns import Column
from service.workflows.list_query import DEFAULT_ROWS, MOST_ROWS

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

CURSOR: Schema = {
    "name": "cursor",
    "in": "query",
    "description": "next_cursor of the page before, with the same sort; the first page where absent.",
    "schema": {"type": "string", "minLength": 1},
}

TABLES: dict[str, Schema] = {
    CSV_BODY: {"type": "string", "description": "RFC 4180, with a header."},
    XLSX: {"type": "string", "format": "binary", "description": "One sheet; texts never run as formulas."},
}
"""What a list is as a table, by media type."""


def list_schemas(singular: str, meaning: str, columns: Sequence[Column]) -> dict[str, Schema]:
    """The schemas that a list refers to.

    Args:
        singular: what one row is called in the names of schemas
        meaning: what one row is, in words
        columns: columns of the list

    Returns:
        JSON schemas by component name
    """
    return {
        f"{singular}Row": row_schema(meaning, columns),
        f"{singular}Page": _page(singular),
        f"{singular}Filter": _filter(columns),
    }


def list_operation(singular: str, columns: Sequence[Column], sort: str | None = None) -> Schema:
    """What the contract adds to a list.

    Args:
        singular: what one row is called in the names of schemas
        columns: columns of the list
        sort: its order where the caller gives none; None for that of the keys

    Returns:
        parts of an OpenAPI operation
    """
    return {
        "parameters": [*_selection(singular, columns, sort), _limit({"default": DEFAULT_ROWS}), CURSOR],
        "responses": json_response(ref(f"{singular}Page")),
    }


def table_operation(media_type: str, singular: str, columns: Sequence[Column], sort: str | None = None) -> Schema:
    """What the contract adds to a list as a table.

    Args:
        media_type: one of TABLES
        singular: what one row is called in the names of schemas
        columns: columns of the list
        sort: its order where the caller gives none; None for that of the keys

    Returns:
        parts of an OpenAPI operation
    """
    content = {media_type: {"schema": TABLES[media_type]}}
    return {
        "parameters": [*_selection(singular, columns, sort), _limit({}), CURSOR],
        "responses": {"200": {"description": "Every row that passes the filters.", "content": content}},
    }


def row_schema(meaning: str, columns: Sequence[Column]) -> Schema:
    """The schema of one row.

    Args:
        meaning: what it is, in words
        columns: columns of its list

    Returns:
        JSON schema of an object that holds every column
    """
    properties = {column.name: dict(column.schema) for column in columns}
    return {
        "type": "object",
        "description": f"{meaning}; null means not known, never zero.",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _page(singular: str) -> Schema:
    items = {"type": "array", "description": "The rows.", "maxItems": MOST_ROWS, "items": ref(f"{singular}Row")}
    meaning = "Where the next page begins, for `cursor`; null after the last row."
    return {
        "type": "object",
        "description": "Some rows of a list.",
        "additionalProperties": False,
        "required": ["items", "next_cursor"],
        "properties": {"items": items, "next_cursor": {"type": ["string", "null"], "description": meaning}},
    }


def _filter(columns: Sequence[Column]) -> Schema:
    return {
        "type": "object",
        "description": "Columns and the values that they must have; no value means that nothing is known.",
        "additionalProperties": False,
        "properties": {column.name: _filtered(column) for column in columns},
    }


def _filtered(column: Column) -> Schema:
    kind = next((name for name in ("integer", "number", "boolean") if name in column.types), "string")
    choices = {"enum": list(column.choices)} if column.choices and kind == "string" else {}
    return {"type": kind, **choices, "description": column.schema["description"]}


def _selection(singular: str, columns: Sequence[Column], sort: str | None) -> list[Schema]:
    """The parameters that say which rows are meant, and in which order."""
    filters = {
        "name": "filter",
        "in": "query",
        "description": "Each column is a parameter of its own name; twice, either will do; gpu by any of its names.",
        "style": "form",
        "explode": True,
        "schema": ref(f"{singular}Filter"),
    }
    names = [sign + column.name for column in columns for sign in ("", "-")]
    order = {
        "name": "sort",
        "in": "query",
        "description": "Columns to sort by, the first one first, `-` before one that descends; what is not known comes "
        f"last, and rows that agree in all of them stand by {columns[0].name}; {sort or columns[0].name} where absent.",
        "style": "form",
        "explode": False,
        "schema": {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"enum": names}},
    }
    return [filters, order]


def _limit(more: Schema) -> Schema:
    schema = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, **more}
    return {"name": "limit", "in": "query", "description": "Rows at most.", "schema": schema}
