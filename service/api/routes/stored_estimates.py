"""GET /v1/estimates/{id}: the answer that a scenario or a check was given, byte for byte as it was first given."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import JSON
from service.api.callers import Asker
from service.api.catalogues import catalogue_at
from service.api.database import Database
from service.api.json_schema import json_response, path_parameter, ref
from service.api.queries import takes_only
from service.workflows.stored_answers import stored_answer

router = APIRouter(tags=["estimates"], dependencies=[takes_only()])

ID = path_parameter("estimate_id", "Id of the answer.", "est_bcc8e6385ed0cbc7bc9d4ef58d62404d")


@router.get(
    "/v1/estimates/{estimate_id}",
    operation_id="getStoredEstimate",
    summary="An answer that was stored",
    openapi_extra={
        "description": "Of a scenario, a launch check or a check of the caller's owner; to an admin, of anyone's.",
        "parameters": [ID],
        "responses": json_response(ref("Answer")),
    },
)
def stored_estimate(request: Request, database: Database, caller: Asker, estimate_id: str) -> Response:
    """Asking alone stores nothing; scenarios and checks do."""
    state = request.app.state
    checked = state.checked_questions
    waiting = partial(checked.find, whose=caller.whose)
    found = stored_answer(database, caller.whose, estimate_id, catalogue_at(request), waiting, checked.of_others())
    return Response(found, media_type=JSON)
