"""Named questions with their answers, in all of their revisions; their share links and budget workbooks."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from service.answers.shares import Share, ShareList
from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import JSON, add_list, json_answer
from service.api.caching import IfMatch, etag_of, idempotent
from service.api.compute import queued
from service.api.inputs import Database, address_of, database_of, view_of, with_address
from service.api.openapi import (
    BINARY,
    ETAG,
    MERGE_PATCH,
    SHARE_LINK,
    SHEET_KEY,
    XLSX,
    content,
    examples,
    located,
    requires,
)
from service.api.pages import GUIDE
from service.api.requests import JsonBody, PatchBody, RowRevisionDep, StrictRoute, answer
from service.features.scenarios import scenarios
from service.features.scenarios.budgets import Budget, example_budget, scenario_budget
from service.features.scenarios.scenarios import ScenarioChange, listed_shares
from service.features.scenarios.schemas import ScenarioPatch, ScenarioRequest, ShareRequest, ShownScenario
from service.features.scenarios.workbook import budget_report, workbook_sheets
from service.store.scenarios import SavedQuestion
from service.tabular import open_document
from service.tabular.lists import ListTypes
from service.tabular.report import POLICY
from service.tabular.sheets import Names, Sheet, excel_file
from service.validation.reading import to_bytes

router = APIRouter(tags=["scenarios"], route_class=StrictRoute)

ONE = "/v1/scenarios/{scenario_id}"
SCENARIO_ID = "scn_ZIjOyq1grjPPQTBxcVsEqg"
ScenarioId = Annotated[str, Path(description="Id of the scenario.", examples=[SCENARIO_ID])]
ShareId = Annotated[str, Path(description="Id of the links.", examples=["shr_k3J9x0aZ1bQp"])]

WORKBOOKS: dict[str, tuple[str, Callable[[Sequence[Sheet], Names], bytes], str]] = {
    "xlsx": (XLSX, excel_file, "an Excel workbook"),
    "ods": (open_document.MEDIA_TYPE, open_document.open_document_file, "an OpenDocument spreadsheet"),
}


def file_name(title: str) -> str:
    """A name of a file that every system takes, made of a title.

    >>> file_name("Llama 3.1 8B: on one node/rack")
    'Llama-3.1-8B-on-one-node-rack'
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", title).strip("-.")[:80] or "budget"


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _add_budgets(ending: str) -> None:
    media_type, write, label = WORKBOOKS[ending]

    def workbook(budget: Budget) -> Response:
        headers = _attachment(f"{file_name(budget.title)}.{ending}")
        return Response(write(*workbook_sheets(budget)), media_type=media_type, headers=headers)

    def budget(request: Request, database: Database, scenario_id: ScenarioId, revision: RowRevisionDep) -> Response:
        """Return a workbook whose formulas ask again after a change; the catalogue is pinned until rev is cleared."""
        history, caller = request.app.state.history, caller_of(request)
        return workbook(scenario_budget(database, history, caller, scenario_id, revision, address_of(request)))

    def guide_budget(request: Request) -> Response:  # with the address of this service, so that it works unchanged
        return workbook(example_budget(address_of(request), request.app.state.catalogue))

    router.add_api_route(
        f"{ONE}.{ending}",
        budget,
        operation_id=f"getScenarioAs{ending.capitalize()}",
        summary=f"One saved question as {label} that asks the service",
        response_class=Response,
        response_description="Fields on one sheet, numbers with live formulas on another.",
        responses=content(media_type, BINARY),
        openapi_extra=requires("sheet", SHEET_KEY, SHARE_LINK),
    )
    router.add_api_route(f"/guide/budget.{ending}", guide_budget, include_in_schema=False)


def _add_snippet(name: str) -> None:
    def snippet(request: Request) -> Response:
        text = (GUIDE / name).read_text(encoding="utf-8")
        return PlainTextResponse(with_address(text, request), headers=_attachment(name))

    router.add_api_route(f"/guide/{name}", snippet, include_in_schema=False)


@router.get(
    f"{ONE}.html",
    summary="The budget of one saved question as a page to print",
    response_class=Response,
    response_description="Summary, months and other ways to run the job, on one page.",
    responses=content("text/html", BINARY),
    openapi_extra=requires("sheet", SHEET_KEY, SHARE_LINK),
)
def get_scenario_report(
    request: Request, database: Database, scenario_id: ScenarioId, revision: RowRevisionDep
) -> Response:
    """Return numbers as they were saved; the page refers to no other file."""
    history, caller = request.app.state.history, caller_of(request)
    budget = scenario_budget(database, history, caller, scenario_id, revision, address_of(request))
    return HTMLResponse(budget_report(budget), headers={"Content-Security-Policy": POLICY})


for _ending in WORKBOOKS:
    _add_budgets(_ending)
for _name in ("traincost.gs", "traincost.pq", "clients.ts"):
    _add_snippet(_name)


SCENARIOS = ListTypes(singular="Scenario", row_meaning="One of the scenarios", columns=scenarios.COLUMNS)
add_list(
    router,
    "scenarios",
    SCENARIOS,
    "The saved questions",
    lambda request: scenarios.listed_scenarios(database_of(request), caller_of(request)),
)


def _scenario_response(saved: SavedQuestion, *, status: int = 200, location: str | None = None) -> Response:
    content = to_bytes(scenarios.scenario_record(saved))
    headers = {"ETag": etag_of(content), **({} if location is None else {"Location": location})}
    return Response(content, status_code=status, headers=headers, media_type=JSON)


async def _change(caller: CallerDep, scenario_id: ScenarioId, is_current: IfMatch) -> ScenarioChange:
    return ScenarioChange(scenario_id, is_current, caller)


Change = Annotated[ScenarioChange, Depends(_change)]


@router.post(
    "/v1/scenarios",
    status_code=201,
    summary="Keep a question under a name",
    response_model=answer(ShownScenario),
    response_description="The scenario.",
    responses=located(201, "Where it is read; handing this on shares it.", ETag=ETAG),
    openapi_extra=examples("createScenario"),
)
@queued
@idempotent
def create_scenario(request: Request, database: Database, body: JsonBody[ScenarioRequest]) -> Response:
    """Answer the question and store it with its answer."""
    saved = scenarios.create_scenario(database, view_of(request), caller_of(request), body)
    return _scenario_response(saved, status=201, location=f"{scenarios.PATH}/{saved.scenario.id}")


@router.get(
    ONE,
    summary="One saved question",
    response_model=answer(ShownScenario),
    response_description="The scenario.",
    openapi_extra=requires("read", SHARE_LINK),
)
def get_scenario(request: Request, database: Database, scenario_id: ScenarioId, revision: RowRevisionDep) -> Response:
    """Return its current or a former revision."""
    return _scenario_response(scenarios.find_scenario(database, caller_of(request), scenario_id, revision))


@router.put(
    ONE,
    summary="Replace a saved question",
    response_model=answer(ShownScenario),
    response_description="Its new revision.",
    responses={200: {"headers": {"ETag": ETAG}}},
    openapi_extra=examples("createScenario"),
)
@queued
def replace_scenario(request: Request, database: Database, change: Change, body: JsonBody[ScenarioRequest]) -> Response:
    """Answer the question again, under the current versions."""
    return _scenario_response(scenarios.replace_scenario(database, request.app.state.history.view, change, body))


@router.patch(
    ONE,
    summary="Change some of a saved question",
    response_model=answer(ShownScenario),
    response_description="Its new revision.",
    responses={200: {"headers": {"ETag": ETAG}}},
    openapi_extra=examples("updateScenario", MERGE_PATCH, JSON),
)
@queued
def update_scenario(request: Request, database: Database, change: Change, body: PatchBody[ScenarioPatch]) -> Response:
    """Answer only a changed question again."""
    return _scenario_response(scenarios.patch_scenario(database, request.app.state.history.view, change, body))


@router.delete(ONE, status_code=204, summary="Remove a saved question", response_description="It is gone.")
@queued
def delete_scenario(request: Request, change: Change) -> Response:
    """Delete it with its revisions; the stored answer remains readable."""
    scenarios.delete_scenario(database_of(request), change)
    return Response(status_code=204)


@router.post(
    f"{ONE}/share",
    summary="Links that show a saved question to anyone who has them",
    description="Its JSON and its budgets can be read without a key until the links end, or are revoked, or the key "
    "that made them is. They show the scenario as it is then, and end with it.",
    response_model=answer(Share),
    openapi_extra=examples("shareScenario"),
)
@queued
def share_scenario(
    request: Request, database: Database, scenario_id: ScenarioId, body: JsonBody[ShareRequest]
) -> Response:
    """Create links, and store a row for them without the links."""
    keys, caller = request.app.state.keys, caller_of(request)
    return json_answer(scenarios.share_scenario(database, keys, caller, scenario_id, body, address_of(request)))


@router.get(
    f"{ONE}/shares",
    summary="The links of a saved question",
    response_model=answer(ShareList),
    openapi_extra=requires("write"),
)
def list_shares(database: Database, caller: CallerDep, scenario_id: ScenarioId) -> Response:
    """Those that hold and, for thirty days, those that have ended.

    Links that an earlier version signed are not among them.
    """
    return json_answer(listed_shares(database, caller, scenario_id))


@router.delete(
    f"{ONE}/shares/{{share_id}}",
    status_code=204,
    summary="Revoke links of a saved question",
    response_description="They are revoked.",
)
@queued
def revoke_share(request: Request, scenario_id: ScenarioId, share_id: ShareId) -> Response:
    """They open nothing from then on; they stay in the list, revoked, for thirty days."""
    scenarios.revoke_share(database_of(request), caller_of(request), scenario_id, share_id)
    return Response(status_code=204)
