"""POST /v1/sensitivity: some fields of a question varied, one row a value, as JSON, CSV or a workbook."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import FORM_OF, JSON, preferred, table_answer
from service.api.catalogues import catalogue_of
from service.api.computing.compute import compute
from service.api.openapi import CSV_BODY, XLSX
from service.api.queries import REV, takes_only
from service.api.requests import read_body
from service.features.sensitivity.openapi import sensitivity_operation
from service.features.sensitivity.tables import sensitivity_bytes

router = APIRouter(tags=["estimates"], dependencies=[takes_only(REV)])

FORMS = {"": "", ".csv": CSV_BODY, ".xlsx": XLSX}
"""Media type of each path by its ending; the plain one gives what the caller accepts."""

SUMMARY_SUFFIXES = {"": "", ".csv": ", as CSV", ".xlsx": ", as a workbook"}


def _route(form: str) -> Callable[[Request], Awaitable[Response]]:
    async def vary(request: Request) -> Response:
        media_type = form or preferred(request.headers.get("accept", ""), (JSON, CSV_BODY, XLSX))
        body, catalogue = await read_body(request), await catalogue_of(request)
        table = await compute(request, sensitivity_bytes, body, catalogue, FORM_OF[media_type])
        return table_answer(table, media_type, "sensitivity")

    return vary


for _suffix, _form in FORMS.items():
    _name = _suffix.removeprefix(".").capitalize()
    router.add_api_route(
        f"/v1/sensitivity{_suffix}",
        _route(_form),
        methods=["POST"],
        operation_id=f"createSensitivity{f'As{_name}' if _name else ''}",
        summary=f"What changes if a field of the question changes{SUMMARY_SUFFIXES[_suffix]}",
        openapi_extra=sensitivity_operation(_form),
    )
