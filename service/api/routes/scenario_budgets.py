"""GET /v1/scenarios/{id}.xlsx and .ods: a saved question as a spreadsheet whose numbers ask the service.

They stand before /v1/scenarios/{id}, whose ids have no ending of a file.
"""

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.addresses import address_of
from service.api.callers import caller_of
from service.api.database import Database
from service.api.json_schema import ETAG, Schema
from service.api.list_schemas import XLSX
from service.api.queries import one_of, takes_only
from service.api.scenario_schemas import read_operation
from service.workflows import open_document_file as open_document
from service.workflows.budget import budget_sheets
from service.workflows.excel_file import excel_file
from service.workflows.row_versions import REVISION, read_revision
from service.workflows.scenario_budget import scenario_budget
from service.workflows.sheets import Sheet

router = APIRouter(tags=["scenarios"], dependencies=[takes_only(REVISION)])

FORMS: dict[str, tuple[str, Callable[[Sequence[Sheet]], bytes], str]] = {
    "xlsx": (XLSX, excel_file, "an Excel workbook"),
    "ods": (open_document.MEDIA_TYPE, open_document.open_document_file, "an OpenDocument spreadsheet"),
}
"""By the ending of a path: media type, what writes it, what it is called."""


def _operation(media_type: str) -> Schema:
    file = {
        "description": "Fields on one sheet, numbers with live formulas on another.",
        "headers": {"ETag": ETAG},
        "content": {media_type: {"schema": {"type": "string", "format": "binary"}}},
    }
    return {"parameters": read_operation()["parameters"], "responses": {"200": file}}


def _add_route(ending: str) -> None:
    media_type, written, called = FORMS[ending]

    def budget(request: Request, database: Database, scenario_id: str) -> Response:
        asked = one_of(request, REVISION)
        revision = None if asked is None else read_revision(asked)
        history, caller = request.app.state.history, caller_of(request)
        found = scenario_budget(database, history, caller, scenario_id, revision, address_of(request))
        saved_as = {"Content-Disposition": f'attachment; filename="budget.{ending}"'}
        return Response(written(budget_sheets(found)), media_type=media_type, headers=saved_as)

    budget.__doc__ = "Change a field, and every number is asked anew; the catalogue is pinned until rev is cleared."
    router.add_api_route(
        f"/v1/scenarios/{{scenario_id}}.{ending}",
        budget,
        operation_id=f"getScenarioAs{ending.capitalize()}",
        summary=f"One saved question as {called} that asks the service",
        openapi_extra=_operation(media_type),
    )


for _ending in FORMS:
    _add_route(_ending)
