"""POST and GET of /v1/compare: the same job on many clusters at many prices, as JSON, as CSV or as a workbook.

The routes are asynchronous, and let others be answered between one row and the next.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.accept import preferred
from service.api.answers import JSON, json_answer
from service.api.body import CSV_BODY, read_body
from service.api.catalogues import catalogue_of
from service.api.comparison_schemas import compare_operation, flat_compare_operation
from service.api.list_schemas import XLSX
from service.api.queries import REV, takes_only
from service.api.steps import finished
from service.errors import Refused
from service.workflows.comparison import Compared, comparing
from service.workflows.comparison_flat import body_of_flat_comparison, told_flat
from service.workflows.comparison_table import comparison_csv, comparison_workbook, whole_comparison

router = APIRouter(tags=["estimates"])

FORMS = {"": "", ".csv": CSV_BODY, ".xlsx": XLSX}
"""Media type of each path by its ending; the plain one gives what the caller accepts."""

SAVED_AS = {"Content-Disposition": 'attachment; filename="compare.xlsx"'}


async def _compared(request: Request) -> Compared:
    body = await read_body(request)
    return await finished(request, comparing(body, await catalogue_of(request)))


async def _compared_flat(request: Request) -> Compared:
    given = [(name, text) for name, text in request.query_params.multi_items() if name != REV]
    catalogue = await catalogue_of(request)
    try:
        return await finished(request, comparing(body_of_flat_comparison(given), catalogue))
    except Refused as refused:
        raise Refused(*map(told_flat, refused.problems)) from None


async def _shown(compared: Compared, media_type: str) -> Response:
    if media_type == JSON:
        return json_answer(whole_comparison(compared))
    if media_type == CSV_BODY:
        return Response(comparison_csv(compared), media_type=f"{CSV_BODY}; charset=utf-8; header=present")
    file = await run_in_threadpool(comparison_workbook, compared)
    return Response(file, media_type=XLSX, headers=SAVED_AS)


def _route(compared: Callable[[Request], Awaitable[Compared]], form: str) -> Callable[[Request], Awaitable[Response]]:
    async def compare(request: Request) -> Response:
        media_type = form or preferred(request.headers.get("accept", ""), (JSON, CSV_BODY, XLSX))
        return await _shown(await compared(request), media_type)

    return compare


def _add_routes(suffix: str, form: str) -> None:
    name, spoken = suffix.removeprefix(".").capitalize(), {"": "", ".csv": ", as CSV", ".xlsx": ", as a workbook"}
    as_form = f"As{name}" if name else ""
    summary = f"The same job on many clusters at many prices{spoken[suffix]}"
    operations: tuple[tuple[str, Any, Any, list[Any]], ...] = (
        ("POST", _compared, compare_operation(form), [takes_only(REV)]),
        ("GET", _compared_flat, flat_compare_operation(form), []),
    )
    for method, compared, operation, dependencies in operations:
        router.add_api_route(
            f"/v1/compare{suffix}",
            _route(compared, form),
            methods=[method],
            dependencies=dependencies,
            operation_id=f"{'create' if method == 'POST' else 'get'}Comparison{as_form}",
            summary=summary,
            openapi_extra=operation,
        )


for _suffix, _form in FORMS.items():
    _add_routes(_suffix, _form)
