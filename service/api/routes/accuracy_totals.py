"""GET /v1/accuracy/totals: how near predicted GPU-hours come to those of published runs."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import JSON
from service.api.compute import computed_once
from service.api.json_schema import json_response, ref
from service.api.queries import takes_only
from service.workflows.accuracy.totals import totals_accuracy_json

router = APIRouter(tags=["accuracy"], dependencies=[takes_only()])


@router.get(
    "/v1/accuracy/totals",
    operation_id="getTotalsAccuracy",
    summary="Predicted against published GPU-hours, run by run",
    openapi_extra={
        "description": "Every published run that ships with the service, asked and compared: those whose GPU-hours are "
        "of one pre-training run, as decided from their own text before any was asked, and the others beside them.",
        "responses": json_response(ref("TotalsAccuracy")),
    },
)
async def get_totals_accuracy(request: Request) -> Response:
    """The figures, computed once a process."""
    return Response(await computed_once(request, totals_accuracy_json), media_type=JSON)
