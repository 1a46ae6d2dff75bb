"""POST /v1/memory/timeline: the memory of every stage over the first step and over a later one, ready to be plotted."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import JSON
from service.api.body import read_body
from service.api.catalogues import catalogue_of
from service.api.compute import compute
from service.api.json_schema import asked_in_body, json_response, parameter_ref, ref
from service.api.operations import EXAMPLES
from service.api.queries import REV, takes_only
from service.workflows.timelines import timeline_sent

router = APIRouter(tags=["estimates"], dependencies=[takes_only(REV)])

OPERATION: dict[str, Any] = {
    "description": "The same body as /v1/memory. Points are in order; their series follow the stage's kinds.",
    "parameters": [parameter_ref(REV)],
    "requestBody": asked_in_body(ref("QuestionRequest"), EXAMPLES),
    "responses": json_response(ref("TimelineAnswer")),
}


@router.post(
    "/v1/memory/timeline",
    operation_id="createTimeline",
    summary="Memory over a step, stage by stage",
    openapi_extra=OPERATION,
)
async def memory_over_a_step(request: Request) -> Response:
    """Live bytes by kind from the start of a step to its end, for the first step and for any later one."""
    catalogue, body = await catalogue_of(request), await read_body(request)
    return Response(await compute(request, timeline_sent, body, catalogue), media_type=JSON)
