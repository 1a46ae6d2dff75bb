"""POST /v1/scenarios/{id}/share: links that show one scenario to somebody without a key."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.addresses import address_of
from service.api.answers import json_answer
from service.api.body import JsonObject
from service.api.callers import caller_of
from service.api.database import Database
from service.api.json_schema import asked_in_body, json_response, ref
from service.api.queries import takes_only
from service.api.row_examples import one_example
from service.api.scenario_schemas import ID
from service.api.turns import in_turn
from service.workflows.share_links import share_scenario

router = APIRouter(tags=["scenarios"])


@router.post(
    "/v1/scenarios/{scenario_id}/share",
    operation_id="shareScenario",
    summary="Links that show a saved question to whoever has them",
    dependencies=[takes_only()],
    openapi_extra={
        "description": "Its JSON and its budgets can be read without a key until the links end. They show the scenario "
        "as it is then, and end with it.",
        "parameters": [ID],
        "requestBody": asked_in_body(ref("ShareRequest"), one_example("For a week", {"days": 7})),
        "responses": json_response(ref("Share")),
    },
)
@in_turn
def share(request: Request, database: Database, scenario_id: str, body: JsonObject) -> Response:
    """Nothing is stored but, the first time, what signs."""
    keys, caller = request.app.state.keys, caller_of(request)
    return json_answer(share_scenario(database, keys, caller, scenario_id, body, address_of(request)))
