"""Share links of a scenario: created, listed and revoked by those who may change it."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import json_answer
from service.api.catalogues import Database, database_of
from service.api.computing.write_queue import queued
from service.api.openapi import json_response, path_parameter, ref, request_body
from service.api.queries import address_of, takes_only
from service.api.requests import JsonObject
from service.features.catalogue.list_openapi import one_example
from service.features.scenarios.openapi import ID
from service.features.scenarios.shares import listed_shares, revoke_share, share_scenario

router = APIRouter(tags=["scenarios"])

SHARE_ID = path_parameter("share_id", "Id of the links.", "shr_k3J9x0aZ1bQp")


@router.post(
    "/v1/scenarios/{scenario_id}/share",
    operation_id="shareScenario",
    summary="Links that show a saved question to anyone who has them",
    dependencies=[takes_only()],
    openapi_extra={
        "description": "Its JSON and its budgets can be read without a key until the links end, or are revoked, or the "
        "key that made them is. They show the scenario as it is then, and end with it.",
        "parameters": [ID],
        "requestBody": request_body(ref("ShareRequest"), one_example("For a week", {"days": 7})),
        "responses": json_response(ref("Share")),
    },
)
@queued
def share(request: Request, database: Database, scenario_id: str, body: JsonObject) -> Response:
    """Store a row for the links, not the links themselves."""
    keys, caller = request.app.state.keys, caller_of(request)
    return json_answer(share_scenario(database, keys, caller, scenario_id, body, address_of(request)))


@router.get(
    "/v1/scenarios/{scenario_id}/shares",
    operation_id="listShares",
    summary="The links of a saved question",
    dependencies=[takes_only()],
    openapi_extra={
        "description": "Those that hold and, for thirty days, those that have ended. Links that an earlier version "
        "signed are not among them.",
        "parameters": [ID],
        "responses": json_response(ref("ShareList")),
    },
)
def shares(database: Database, caller: CallerDep, scenario_id: str) -> Response:
    """List them without the links themselves, which grant access."""
    return json_answer(listed_shares(database, caller, scenario_id))


@router.delete(
    "/v1/scenarios/{scenario_id}/shares/{share_id}",
    status_code=204,
    operation_id="revokeShare",
    summary="Revoke links of a saved question",
    dependencies=[takes_only()],
    openapi_extra={
        "description": "They open nothing from then on; they stay in the list, revoked, for thirty days.",
        "parameters": [ID, SHARE_ID],
        "responses": {"204": {"description": "They are revoked."}},
    },
)
@queued
def revoke(request: Request, scenario_id: str, share_id: str) -> Response:
    """Revoke them; revoked links stay revoked."""
    revoke_share(database_of(request), caller_of(request), scenario_id, share_id)
    return Response(status_code=204)
