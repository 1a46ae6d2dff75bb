"""/v1/scenarios: named questions, each with its answer, in all of their revisions.

These routes reach the database, so they run in threads; those that write wait for their turn first.

/v1/scenarios/{id}.xlsx and .ods are mounted before /v1/scenarios/{id}; no id has a file ending.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import JSON, add_list
from service.api.caching import IfMatch, etag_of, idempotent
from service.api.catalogues import Database, database_of, view_of
from service.api.computing.write_queue import queued
from service.api.openapi import ETAG, XLSX, Schema
from service.api.queries import address_of, one_of, takes_only
from service.api.requests import JsonObject, MergePatch
from service.features.catalogue.versions import REVISION, read_revision
from service.features.scenarios import scenarios
from service.features.scenarios.budgets import budget_sheets, scenario_budget
from service.features.scenarios.openapi import (
    create_operation,
    delete_operation,
    patch_operation,
    read_operation,
    replace_operation,
)
from service.features.scenarios.scenarios import ScenarioChange
from service.store.scenarios import SavedQuestion
from service.tabular import sheets as open_document
from service.tabular.contract import ListTypes
from service.tabular.sheets import Sheet, excel_file
from service.validation.serialization import to_bytes

router = APIRouter(tags=["scenarios"])

ONE = "/v1/scenarios/{scenario_id}"
NONE_OTHER = [takes_only()]


SCENARIOS = ListTypes(singular="Scenario", row_meaning="One of the scenarios", columns=scenarios.COLUMNS)
add_list(
    router,
    "scenarios",
    SCENARIOS,
    "The saved questions",
    lambda request: scenarios.listed_scenarios(database_of(request), caller_of(request)),
)


def _scenario(found: SavedQuestion, *, status: int = 200, location: str | None = None) -> Response:
    content = to_bytes(scenarios.scenario_record(found))
    headers = {"ETag": etag_of(content), **({} if location is None else {"Location": location})}
    return Response(content, status_code=status, headers=headers, media_type=JSON)


async def _change(caller: CallerDep, scenario_id: str, is_current: IfMatch) -> ScenarioChange:
    return ScenarioChange(scenario_id, is_current, caller)


Change = Annotated[ScenarioChange, Depends(_change)]
"""Route argument: the scenario to change and its revision."""


@router.post(
    "/v1/scenarios",
    status_code=201,
    operation_id="createScenario",
    summary="Keep a question under a name",
    dependencies=NONE_OTHER,
    openapi_extra=create_operation(),
)
@queued
@idempotent
def create(request: Request, database: Database, body: JsonObject) -> Response:
    """Answer the question and store it with its answer."""
    saved = scenarios.create_scenario(database, view_of(request), caller_of(request), body)
    return _scenario(saved, status=201, location=f"{scenarios.PATH}/{saved.scenario.id}")


@router.get(
    ONE,
    operation_id="getScenario",
    summary="One saved question",
    dependencies=[takes_only(REVISION)],
    openapi_extra=read_operation(),
)
def read(request: Request, database: Database, scenario_id: str) -> Response:
    """Return its current or a former revision."""
    revision_text = one_of(request, REVISION)
    revision = None if revision_text is None else read_revision(revision_text)
    return _scenario(scenarios.find_scenario(database, caller_of(request), scenario_id, revision))


@router.put(
    ONE,
    operation_id="replaceScenario",
    summary="Say a saved question anew",
    dependencies=NONE_OTHER,
    openapi_extra=replace_operation(),
)
@queued
def replace(request: Request, database: Database, change: Change, body: JsonObject) -> Response:
    """Answer the question again, under the current versions."""
    return _scenario(scenarios.replace_scenario(database, request.app.state.history.view, change, body))


@router.patch(
    ONE,
    operation_id="updateScenario",
    summary="Change some of a saved question",
    dependencies=NONE_OTHER,
    openapi_extra=patch_operation(),
)
@queued
def update(request: Request, database: Database, change: Change, patch: MergePatch) -> Response:
    """Answer only a changed question again."""
    return _scenario(scenarios.patch_scenario(database, request.app.state.history.view, change, patch))


@router.delete(
    ONE,
    status_code=204,
    operation_id="deleteScenario",
    summary="Remove a saved question",
    dependencies=NONE_OTHER,
    openapi_extra=delete_operation(),
)
@queued
def delete(request: Request, change: Change) -> Response:
    """Delete it with its revisions; the stored answer remains readable."""
    scenarios.delete_scenario(database_of(request), change)
    return Response(status_code=204)


budget_router = APIRouter(tags=["scenarios"], dependencies=[takes_only(REVISION)])

FORMS: dict[str, tuple[str, Callable[[Sequence[Sheet]], bytes], str]] = {
    "xlsx": (XLSX, excel_file, "an Excel workbook"),
    "ods": (open_document.MEDIA_TYPE, open_document.open_document_file, "an OpenDocument spreadsheet"),
}
"""Media type, writer and name by suffix of the path."""


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
        revision_text = one_of(request, REVISION)
        revision = None if revision_text is None else read_revision(revision_text)
        history, caller = request.app.state.history, caller_of(request)
        found = scenario_budget(database, history, caller, scenario_id, revision, address_of(request))
        saved_as = {"Content-Disposition": f'attachment; filename="budget.{ending}"'}
        return Response(written(budget_sheets(found)), media_type=media_type, headers=saved_as)

    budget.__doc__ = "Change a field, and every number is asked anew; the catalogue is pinned until rev is cleared."
    budget_router.add_api_route(
        f"/v1/scenarios/{{scenario_id}}.{ending}",
        budget,
        operation_id=f"getScenarioAs{ending.capitalize()}",
        summary=f"One saved question as {called} that asks the service",
        openapi_extra=_operation(media_type),
    )


for _ending in FORMS:
    _add_route(_ending)
