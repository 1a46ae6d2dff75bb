"""GET /v1/estimates/{id}: the answer that a scenario stored, byte for byte as it was first given."""

from fastapi import APIRouter
from fastapi.responses import Response

from service.api.answers import JSON
from service.api.database import Database
from service.api.json_schema import json_response, ref
from service.api.queries import takes_only
from service.workflows.scenarios import stored_answer

router = APIRouter(tags=["estimates"], dependencies=[takes_only()])

ID = {
    "name": "estimate_id",
    "in": "path",
    "required": True,
    "description": "Id of the answer.",
    "schema": {"type": "string"},
}


@router.get(
    "/v1/estimates/{estimate_id}",
    operation_id="getStoredEstimate",
    summary="An answer that was stored",
    openapi_extra={"parameters": [ID], "responses": json_response(ref("Answer"))},
)
def stored_estimate(database: Database, estimate_id: str) -> Response:
    """Asking alone stores nothing; a scenario stores its answer."""
    return Response(stored_answer(database, estimate_id), media_type=JSON)
