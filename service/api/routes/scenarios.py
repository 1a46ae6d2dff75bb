"""/v1/scenarios: questions under a name, each with its answer; GET /v1/estimates/{id}: that answer, as it was given.

These routes reach the database, so they run in threads.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from service.api.answers import JSON
from service.api.body import read_body, read_patch
from service.api.lists import Routes, add_list
from service.api.preconditions import require_match
from service.api.queries import REVISION, asked_revision, takes_only
from service.api.scenario_schemas import (
    MERGE_PATCH,
    change_operation,
    create_operation,
    delete_operation,
    read_operation,
)
from service.store import Saved
from service.workflows import scenarios
from service.workflows.wire import digest_of, to_bytes

router = APIRouter(tags=["scenarios"])

NONE_OTHER = [takes_only()]
Body = Annotated[Mapping[str, Any], Depends(read_body)]
Patch = Annotated[Mapping[str, Any], Depends(read_patch)]

add_list(
    router,
    Routes(
        plural="scenarios",
        singular="Scenario",
        meaning="The saved questions",
        columns=scenarios.COLUMNS,
        held=lambda request: scenarios.listed_scenarios(request.app.state.engine),
    ),
)


@router.post(
    "/v1/scenarios",
    operation_id="createScenario",
    summary="Keep a question under a name",
    dependencies=NONE_OTHER,
    openapi_extra=create_operation(),
)
def create(request: Request, body: Body) -> Response:
    """The question is answered, and the answer saved with it."""
    state = request.app.state
    saved = scenarios.create_scenario(state.engine, state.catalogue, body)
    return _scenario(saved, status=201, location=f"{scenarios.PATH}/{saved.scenario.id}")


@router.get(
    "/v1/scenarios/{name}",
    operation_id="getScenario",
    summary="One saved question",
    dependencies=[takes_only(REVISION)],
    openapi_extra=read_operation(),
)
def read(request: Request, name: str) -> Response:
    """As it is now, or as it was in one of its revisions."""
    return _scenario(scenarios.find_scenario(request.app.state.engine, name, asked_revision(request)))


@router.put(
    "/v1/scenarios/{name}",
    operation_id="replaceScenario",
    summary="Say a saved question anew",
    dependencies=NONE_OTHER,
    openapi_extra=change_operation("ScenarioRequest", JSON),
)
def replace(request: Request, name: str, body: Body) -> Response:
    """The question is answered anew, under the versions of today."""
    state = request.app.state
    return _scenario(scenarios.replace_scenario(state.engine, state.catalogue, _matched(request, name), body))


@router.patch(
    "/v1/scenarios/{name}",
    operation_id="updateScenario",
    summary="Change some of a saved question",
    dependencies=NONE_OTHER,
    openapi_extra=change_operation("ScenarioPatch", MERGE_PATCH, JSON),
)
def update(request: Request, name: str, patch: Patch) -> Response:
    """Only a changed question is answered anew."""
    state = request.app.state
    return _scenario(scenarios.patch_scenario(state.engine, state.catalogue, _matched(request, name), patch))


@router.delete(
    "/v1/scenarios/{name}",
    operation_id="deleteScenario",
    summary="Remove a saved question",
    dependencies=NONE_OTHER,
    openapi_extra=delete_operation(),
)
def delete(request: Request, name: str) -> Response:
    """With all of its revisions; the stored answer can still be read."""
    scenarios.delete_scenario(request.app.state.engine, _matched(request, name))
    return Response(status_code=204)


def _matched(request: Request, name: str) -> Saved:
    """The scenario that a change starts from."""
    saved = scenarios.find_scenario(request.app.state.engine, name)
    require_match(request, _etag(to_bytes(scenarios.shown(saved))))
    return saved


def _scenario(saved: Saved, *, status: int = 200, location: str | None = None) -> Response:
    content = to_bytes(scenarios.shown(saved))
    headers = {"ETag": _etag(content), **({} if location is None else {"Location": location})}
    return Response(content, status_code=status, headers=headers, media_type=JSON)


def _etag(content: bytes) -> str:
    return f'"{digest_of(content)}"'
