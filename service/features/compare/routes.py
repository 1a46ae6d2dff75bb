"""POST and GET of /v1/compare: one job on many clusters at many prices, as JSON, CSV or a workbook."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import FORM_OF, JSON, preferred, table_answer
from service.api.catalogues import catalogue_of
from service.api.computing.compute import compute
from service.api.openapi import CSV_BODY, XLSX
from service.api.queries import REV, takes_only
from service.api.requests import read_body
from service.features.compare.openapi import compare_operation, flat_compare_operation
from service.features.compare.tables import TableForm, comparison_bytes, flat_comparison_bytes

router = APIRouter(tags=["estimates"])

FORMS = {"": "", ".csv": CSV_BODY, ".xlsx": XLSX}
"""Media type of each path by its ending; the plain one gives what the caller accepts."""


async def _compared(request: Request, form: TableForm) -> bytes:
    found: bytes = await compute(request, comparison_bytes, await read_body(request), await catalogue_of(request), form)
    return found


async def _compared_flat(request: Request, form: TableForm) -> bytes:
    given = [(name, text) for name, text in request.query_params.multi_items() if name != REV]
    found: bytes = await compute(request, flat_comparison_bytes, given, await catalogue_of(request), form)
    return found


def _route(
    compared: Callable[[Request, TableForm], Awaitable[bytes]], media_type: str
) -> Callable[[Request], Awaitable[Response]]:
    async def compare(request: Request) -> Response:
        chosen = media_type or preferred(request.headers.get("accept", ""), (JSON, CSV_BODY, XLSX))
        return table_answer(await compared(request, FORM_OF[chosen]), chosen, "compare")

    return compare


def _add_routes(suffix: str, form: str) -> None:
    name, suffixes = suffix.removeprefix(".").capitalize(), {"": "", ".csv": ", as CSV", ".xlsx": ", as a workbook"}
    as_form = f"As{name}" if name else ""
    summary = f"The same job on many clusters at many prices{suffixes[suffix]}"
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
