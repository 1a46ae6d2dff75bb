"""The routes of every list: its pages as JSON, and the same rows whole as CSV and as a workbook.

They run in threads: a workbook of 500 rows takes 50 ms, which no estimate should wait for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.accept import preferred
from service.api.answers import json_answer
from service.api.json_schema import CSV_BODY, JSON_BODY
from service.api.list_schemas import PARQUET, XLSX, list_operation, table_operation
from service.api.turns import on_few_threads
from service.tabular.columns import Column
from service.tabular.lists import Listed, csv_of, page_of, parquet_of, workbook_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """What a list is called, and where its rows come from."""

    plural: str
    """Its name in the path."""
    singular: str
    """What one row is called in the names of schemas and operations."""
    meaning: str
    """What it lists, in words."""
    columns: Sequence[Column]
    """Its columns, the key first."""
    held: Callable[[Request], Listed]
    """The list, as it is when somebody asks."""
    as_parquet: bool = False
    """Whether it is served as Parquet too."""


def add_list(router: APIRouter, routes: Routes) -> None:
    """Serve a list in every form.

    Args:
        router: where its routes are added
        routes: the list
    """
    held, plural, described = routes.held, routes.plural, (routes.singular, routes.columns)

    async def page(request: Request) -> Response:
        if routes.as_parquet and preferred(request.headers.get("accept", ""), (JSON_BODY, PARQUET)) == PARQUET:
            return await columnar(request)
        return json_answer(await run_in_threadpool(lambda: page_of(held(request), _parameters(request))))

    async def table(request: Request) -> Response:
        text = await on_few_threads(request, lambda: csv_of(held(request), _parameters(request)))
        return Response(text, media_type=f"{CSV_BODY}; charset=utf-8; header=present")

    async def workbook(request: Request) -> Response:
        file = await on_few_threads(request, lambda: workbook_of(held(request), _parameters(request)))
        saved_as = {"Content-Disposition": f'attachment; filename="{plural.rpartition("/")[2]}.xlsx"'}
        return Response(file, media_type=XLSX, headers=saved_as)

    async def columnar(request: Request) -> Response:
        file = await on_few_threads(request, lambda: parquet_of(held(request), _parameters(request)))
        saved_as = {"Content-Disposition": f'attachment; filename="{plural.rpartition("/")[2]}.parquet"'}
        return Response(file, media_type=PARQUET, headers=saved_as)

    columns = (".parquet", columnar, "as Parquet, all of them", table_operation(PARQUET, *described))
    for suffix, endpoint, spoken, operation in (
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
            summary=f"{routes.meaning}, {spoken}",
            openapi_extra=operation,
        )


def _parameters(request: Request) -> list[tuple[str, str]]:
    return request.query_params.multi_items()
