"""/v1/scenarios: questions under a name, each with its answer; GET /v1/estimates/{id}: that answer, as it was given.

These routes reach the database, so they run in threads; those that write wait for their turn first.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import JSON
from service.api.body import MERGE_PATCH, JsonObject, MergePatch
from service.api.conditional import etag_of
from service.api.database import Database, database_of
from service.api.lists import Routes, add_list
from service.api.preconditions import IfMatch
from service.api.queries import one_of, takes_only
from service.api.scenario_schemas import (
    change_operation,
    create_operation,
    delete_operation,
    read_operation,
)
from service.api.turns import in_turn
from service.errors import Stale
from service.store import Engine, Saved
from service.workflows import scenarios
from service.workflows.row_versions import REVISION, read_revision
from service.workflows.wire import to_bytes

router = APIRouter(tags=["scenarios"])

NONE_OTHER = [takes_only()]


add_list(
    router,
    Routes(
        plural="scenarios",
        singular="Scenario",
        meaning="The saved questions",
        columns=scenarios.COLUMNS,
        held=lambda request: scenarios.listed_scenarios(database_of(request)),
    ),
)


@router.post(
    "/v1/scenarios",
    operation_id="createScenario",
    summary="Keep a question under a name",
    dependencies=NONE_OTHER,
    openapi_extra=create_operation(),
)
@in_turn
def create(request: Request, database: Database, body: JsonObject) -> Response:
    """The question is answered, and the answer kept with it."""
    saved = scenarios.create_scenario(database, request.app.state.catalogue, body)
    return _scenario(saved, status=201, location=f"{scenarios.PATH}/{saved.scenario.id}")


@router.get(
    "/v1/scenarios/{name}",
    operation_id="getScenario",
    summary="One saved question",
    dependencies=[takes_only(REVISION)],
    openapi_extra=read_operation(),
)
def read(request: Request, database: Database, name: str) -> Response:
    """As it is now, or as it was in one of its revisions."""
    asked = one_of(request, REVISION)
    return _scenario(scenarios.find_scenario(database, name, None if asked is None else read_revision(asked)))


@router.put(
    "/v1/scenarios/{name}",
    operation_id="replaceScenario",
    summary="Say a saved question anew",
    dependencies=NONE_OTHER,
    openapi_extra=change_operation("ScenarioRequest", JSON),
)
@in_turn
def replace(request: Request, database: Database, name: str, is_current: IfMatch, body: JsonObject) -> Response:
    """The question is answered anew, under the versions of today."""
    found = _current(database, name, is_current)
    return _scenario(scenarios.replace_scenario(database, request.app.state.catalogue, found, body))


@router.patch(
    "/v1/scenarios/{name}",
    operation_id="updateScenario",
    summary="Change some of a saved question",
    dependencies=NONE_OTHER,
    openapi_extra=change_operation("ScenarioPatch", MERGE_PATCH, JSON),
)
@in_turn
def update(request: Request, database: Database, name: str, is_current: IfMatch, patch: MergePatch) -> Response:
    """Only a changed question is answered anew."""
    found = _current(database, name, is_current)
    return _scenario(scenarios.patch_scenario(database, request.app.state.catalogue, found, patch))


@router.delete(
    "/v1/scenarios/{name}",
    operation_id="deleteScenario",
    summary="Remove a saved question",
    dependencies=NONE_OTHER,
    openapi_extra=delete_operation(),
)
@in_turn
def delete(request: Request, name: str, is_current: IfMatch) -> Response:
    """With all of its revisions; the stored answer can still be read."""
    database = database_of(request)
    scenarios.delete_scenario(database, _current(database, name, is_current))
    return Response(status_code=204)


def _current(database: Engine, name: str, is_current: IfMatch) -> Saved:
    """The scenario that a change starts from."""
    found = scenarios.find_scenario(database, name)
    if not is_current(scenarios.shown(found)):
        raise Stale(f"the scenario is at revision {found.scenario.revision} now; read it again, and change that")
    return found


def _scenario(found: Saved, *, status: int = 200, location: str | None = None) -> Response:
    content = to_bytes(scenarios.shown(found))
    headers = {"ETag": etag_of(content), **({} if location is None else {"Location": location})}
    return Response(content, status_code=status, headers=headers, media_type=JSON)
