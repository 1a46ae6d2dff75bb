"""Answers as JSON and tables, content negotiation, and the routes of a list.

Threads select the rows of a list. A compute process writes long files: a workbook of 500 rows takes 50 ms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.computing.compute import compute
from service.api.computing.compute_process import Large
from service.api.computing.write_queue import on_compute_threads
from service.api.openapi import CSV_BODY, JSON_BODY, PARQUET, XLSX, list_operation, table_operation
from service.tabular.columns import Column
from service.tabular.lists import Listed, Table, csv_of, page_of, parquet_of, table_of, workbook_of
from service.validation.serialization import to_bytes

JSON = "application/json"

MOST_ROWS_ON_A_THREAD = 100
"""Longest file that a thread writes, in some milliseconds."""

FORM_OF: Mapping[str, Literal["json", "csv", "xlsx"]] = {JSON: "json", CSV_BODY: "csv", XLSX: "xlsx"}
"""Form of a table by media type."""


def json_answer(value: Any) -> Response:
    """A JSON response."""
    return Response(to_bytes(value), media_type=JSON)


def table_answer(content: bytes, media_type: str, name: str) -> Response:
    """A table as a response."""
    if media_type == CSV_BODY:
        return Response(content, media_type=f"{CSV_BODY}; charset=utf-8; header=present")
    saved_as = {"Content-Disposition": f'attachment; filename="{name}.xlsx"'} if media_type == XLSX else None
    return Response(content, media_type=media_type, headers=saved_as)


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The offered media type with the highest weight in an Accept header.

    >>> preferred("text/csv, application/json;q=0.5", ("application/json", "text/csv"))
    'text/csv'
    >>> preferred("*/*", ("application/json", "text/csv"))
    'application/json'
    """
    ranges = [item.partition(";") for item in accept.lower().split(",")]
    weights = {media.strip(): _weight(parameters) for media, _, parameters in ranges}
    return max(offered, key=lambda media: next((weights[name] for name in _ranges(media) if name in weights), 0.0))


def _ranges(media: str) -> tuple[str, ...]:
    """Media ranges that match a media type, the most specific first."""
    return media, f"{media.partition('/')[0]}/*", "*/*"


def _weight(parameters: str) -> float:
    """The q of a media range; 1 without a valid one."""
    weights = [text.strip().removeprefix("q=") for text in parameters.split(";") if text.strip().startswith("q=")]
    try:
        return float(weights[0]) if weights else 1.0
    except ValueError:
        return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Names, columns and rows of a list."""

    plural: str
    """Name of the list in the path."""
    singular: str
    """Name of one row in schemas and operations."""
    meaning: str
    """Summary of the list."""
    columns: Sequence[Column]
    """Columns, the key first."""
    rows: Callable[[Request], Listed]
    """The current rows for a request."""
    as_parquet: bool = False
    """Whether the list is available as Parquet."""


def add_list(router: APIRouter, routes: Routes) -> None:
    """Add the routes of a list: JSON, CSV, XLSX and, where set, Parquet."""
    rows, plural, described = routes.rows, routes.plural, (routes.singular, routes.columns)

    async def page(request: Request) -> Response:
        if routes.as_parquet and preferred(request.headers.get("accept", ""), (JSON_BODY, PARQUET)) == PARQUET:
            return await columnar(request)
        return json_answer(await run_in_threadpool(lambda: page_of(rows(request), _parameters(request))))

    async def file_of(request: Request, write: Callable[[Table], Any]) -> Any:
        selected = await on_compute_threads(request, lambda: table_of(rows(request), _parameters(request)))
        if len(selected.rows) <= MOST_ROWS_ON_A_THREAD:
            return await on_compute_threads(request, write, selected)
        return await compute(request, write, Large(selected))

    async def table(request: Request) -> Response:
        text = await file_of(request, csv_of)
        return Response(text, media_type=f"{CSV_BODY}; charset=utf-8; header=present")

    async def workbook(request: Request) -> Response:
        file = await file_of(request, workbook_of)
        saved_as = {"Content-Disposition": f'attachment; filename="{plural.rpartition("/")[2]}.xlsx"'}
        return Response(file, media_type=XLSX, headers=saved_as)

    async def columnar(request: Request) -> Response:
        file = await file_of(request, parquet_of)
        saved_as = {"Content-Disposition": f'attachment; filename="{plural.rpartition("/")[2]}.parquet"'}
        return Response(file, media_type=PARQUET, headers=saved_as)

    columns = (".parquet", columnar, "as Parquet, all of them", table_operation(PARQUET, *described))
    for suffix, endpoint, form_name, operation in (
        ("", page, "page by page", list_operation(*described)),
        (".csv", table, "as CSV, all of them", table_operation(CSV_BODY, *described)),
        (".xlsx", workbook, "as an Excel workbook, all of them", table_operation(XLSX, *described)),
        *((columns,) if routes.as_parquet else ()),
    ):
        form = suffix.removeprefix(".").capitalize()
        router.add_api_route(
            f"/v1/{plural}{suffix}",
            endpoint,
            operation_id=f"list{routes.singular}s{'As' if form else ''}{form}",
            summary=f"{routes.meaning}, {form_name}",
            openapi_extra=operation,
        )


def _parameters(request: Request) -> list[tuple[str, str]]:
    return request.query_params.multi_items()
