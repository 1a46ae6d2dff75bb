"""How a list stands in the contract: a row, a page and a filter, all from the same columns, and its three forms."""

from collections.abc import Sequence

from service.api.json_schema import CSV_BODY, Schema, json_response, parameter_ref, query_parameter, ref
from service.tabular.columns import Column
from service.tabular.queries import DEFAULT_ROWS, MOST_ROWS

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

PARQUET = "application/vnd.apache.parquet"

MEANING = (
    "Each column is a filter of its own name: given twice, either value will do; empty, rows of which it is not known; "
    "a GPU by any of its names."
)

SORT = "sort"

TABLES: dict[str, Schema] = {
    CSV_BODY: {"type": "string", "description": "RFC 4180, with a header."},
    XLSX: {"type": "string", "format": "binary", "description": "One sheet; texts never run as formulas."},
    PARQUET: {"type": "string", "format": "binary", "description": "Typed columns, each with what it means."},
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
    return {f"{singular}Row": row_schema(meaning, columns), f"{singular}Page": _page(singular)}


def list_parameters(singular: str, columns: Sequence[Column], sort: str | None = None) -> dict[str, Schema]:
    """The parameters that a list takes beside those of every list: a filter for each column, and an order.

    Args:
        singular: what one row is called in the names of schemas
        columns: columns of the list
        sort: its order where the caller gives none; None for that of the keys

    Returns:
        OpenAPI parameters by component name
    """
    filters = {_component(singular, column.name): _filter(column) for column in columns}
    return {**filters, _component(singular, SORT): _order(columns, sort)}


def paging_parameters() -> dict[str, Schema]:
    """The parameters of every list.

    Returns:
        OpenAPI parameters by component name
    """
    limit = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS}
    cursor = "next_cursor of the page before, with the same sort; the first page where absent."
    return {
        "limit": query_parameter("limit", "Rows on a page, at most.", limit | {"default": DEFAULT_ROWS}),
        "table_limit": query_parameter("limit", "Rows of the table, at most; all of them where absent.", limit),
        "cursor": query_parameter("cursor", cursor, {"type": "string", "minLength": 1}),
    }


def list_operation(singular: str, columns: Sequence[Column]) -> Schema:
    """What the contract adds to a list.

    Args:
        singular: what one row is called in the names of schemas
        columns: columns of the list

    Returns:
        parts of an OpenAPI operation
    """
    return {
        "description": f"{MEANING} More rows than one page holds are asked for by next_cursor.",
        "parameters": _parameters(singular, columns, "limit"),
        "responses": json_response(ref(f"{singular}Page")),
    }


def table_operation(media_type: str, singular: str, columns: Sequence[Column]) -> Schema:
    """What the contract adds to a list as a table.

    Args:
        media_type: one of TABLES
        singular: what one row is called in the names of schemas
        columns: columns of the list

    Returns:
        parts of an OpenAPI operation
    """
    content = {media_type: {"schema": TABLES[media_type]}}
    return {
        "description": MEANING,
        "parameters": _parameters(singular, columns, "table_limit"),
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


def _component(singular: str, name: str) -> str:
    return f"{singular}-{name}"


def _parameters(singular: str, columns: Sequence[Column], limit: str) -> list[Schema]:
    own = [_component(singular, name) for name in (*(column.name for column in columns), SORT)]
    return [parameter_ref(name) for name in (*own, limit, "cursor")]


def _filter(column: Column) -> Schema:
    kind = next((name for name in ("integer", "number", "boolean") if name in column.types), "string")
    choices = {"enum": [*column.choices, ""]} if column.choices and kind == "string" else {}
    schema = {"type": "array", "items": {"type": kind, **choices}}
    return query_parameter(column.name, column.schema["description"], schema)


def _order(columns: Sequence[Column], sort: str | None) -> Schema:
    names = [sign + column.name for column in columns for sign in ("", "-")]
    meaning = (
        "Columns to sort by, the first one first, `-` before one that descends; what is not known comes last, and rows "
        f"that agree in all of them stand by {columns[0].name}; {sort or columns[0].name} where absent."
    )
    schema = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string", "enum": names}}
    return query_parameter(SORT, meaning, schema)
