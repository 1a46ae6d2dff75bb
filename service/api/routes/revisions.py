"""GET /v1/catalogue/revisions: the catalogues that there were, for `rev` of the estimating routes."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import json_answer
from service.api.catalogue_schemas import CURSOR, limit_parameter
from service.api.json_schema import json_response, ref
from service.workflows.list_query import DEFAULT_ROWS
from service.workflows.revisions import list_revisions

router = APIRouter(tags=["catalogue"])

OPERATION = {
    "description": "Every change of the catalogue, the newest first; answers name the catalogue that they rest on.",
    "parameters": [limit_parameter({"default": DEFAULT_ROWS}), CURSOR],
    "responses": json_response(ref("RevisionPage")),
}


@router.get(
    "/v1/catalogue/revisions",
    operation_id="listRevisions",
    summary="How the catalogue changed",
    openapi_extra=OPERATION,
)
def revisions(request: Request) -> Response:
    """Reads the log from the database, so it runs on a thread."""
    return json_answer(list_revisions(request.app.state.history, request.query_params.multi_items()))
