"""POST /v1/sensitivity: some fields of a question varied, a row a value, as JSON, as CSV or as a workbook."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.accept import preferred
from service.api.answers import JSON, json_answer
from service.api.body import CSV_BODY, read_body
from service.api.catalogues import catalogue_of
from service.api.list_schemas import XLSX
from service.api.queries import REV, takes_only
from service.api.sensitivity_schemas import sensitivity_operation
from service.api.steps import finished
from service.workflows.sensitivity import Varied, varying
from service.workflows.sensitivity_table import table_csv, table_workbook, whole_table

router = APIRouter(tags=["estimates"], dependencies=[takes_only(REV)])

FORMS = {"": "", ".csv": CSV_BODY, ".xlsx": XLSX}
"""Media type of each path by its ending; the plain one gives what the caller accepts."""

SPOKEN = {"": "", ".csv": ", as CSV", ".xlsx": ", as a workbook"}

SAVED_AS = {"Content-Disposition": 'attachment; filename="sensitivity.xlsx"'}


async def _shown(varied: Varied, media_type: str) -> Response:
    if media_type == JSON:
        return json_answer(whole_table(varied))
    if media_type == CSV_BODY:
        return Response(table_csv(varied), media_type=f"{CSV_BODY}; charset=utf-8; header=present")
    file = await run_in_threadpool(table_workbook, varied)
    return Response(file, media_type=XLSX, headers=SAVED_AS)


def _route(form: str) -> Callable[[Request], Awaitable[Response]]:
    async def vary(request: Request) -> Response:
        media_type = form or preferred(request.headers.get("accept", ""), (JSON, CSV_BODY, XLSX))
        body = await read_body(request)
        return await _shown(await finished(request, varying(body, await catalogue_of(request))), media_type)

    return vary


for _suffix, _form in FORMS.items():
    _name = _suffix.removeprefix(".").capitalize()
    router.add_api_route(
        f"/v1/sensitivity{_suffix}",
        _route(_form),
        methods=["POST"],
        operation_id=f"createSensitivity{f'As{_name}' if _name else ''}",
        summary=f"What changes if a field of the question changes{SPOKEN[_suffix]}",
        openapi_extra=sensitivity_operation(_form),
    )
