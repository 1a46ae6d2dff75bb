"""How does an answer leave? As the one JSON text that it has."""

from collections.abc import Mapping
from typing import Any, Literal

from fastapi.responses import Response

from service.api.json_schema import CSV_BODY
from service.api.list_schemas import XLSX
from service.validation.serialization import to_bytes

JSON = "application/json"

FORM_OF: Mapping[str, Literal["json", "csv", "xlsx"]] = {JSON: "json", CSV_BODY: "csv", XLSX: "xlsx"}
"""How a table is sent, by its media type."""


def json_answer(value: Any) -> Response:
    """The response that carries an answer.

    Args:
        value: a dataclass of the workflows, or anything else with a wire form

    Returns:
        the response, status 200

    Raises:
        NotFinite: a number is NaN or infinite
    """
    return Response(to_bytes(value), media_type=JSON)


def table_answer(content: bytes, media_type: str, name: str) -> Response:
    """The response that carries a table.

    Args:
        content: the table, written
        media_type: what it is
        name: what a workbook is saved as, without an ending

    Returns:
        the response, status 200
    """
    if media_type == CSV_BODY:
        return Response(content, media_type=f"{CSV_BODY}; charset=utf-8; header=present")
    saved_as = {"Content-Disposition": f'attachment; filename="{name}.xlsx"'} if media_type == XLSX else None
    return Response(content, media_type=media_type, headers=saved_as)
