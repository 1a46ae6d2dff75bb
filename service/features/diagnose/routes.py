"""POST /v1/diagnose: the cause of an out-of-memory error, from its message and the estimate."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import JSON
from service.api.catalogues import catalogue_of
from service.api.computing.compute import compute
from service.api.openapi import json_response, parameter_ref, ref, request_body
from service.api.queries import REV, takes_only
from service.api.requests import read_body
from service.features.diagnose.diagnose import diagnosis_json
from service.features.diagnose.messages import EXAMPLE
from service.features.estimates.examples import EXAMPLES

router = APIRouter(tags=["diagnoses"], dependencies=[takes_only(REV)])

PASTED = {
    "summary": "A message of torch",
    "value": {**EXAMPLES["one-node"]["value"], "message": EXAMPLE},
}

OPERATION: dict[str, Any] = {
    "description": "The body of /v1/estimates with the message, what torch.cuda.memory_stats() gave, or both. The "
    "answer repeats nothing of the message but its numbers.",
    "parameters": [parameter_ref(REV)],
    "requestBody": request_body(ref("DiagnoseRequest"), {"message": PASTED}),
    "responses": json_response(ref("Diagnosis")),
}


@router.post(
    "/v1/diagnose", operation_id="createDiagnosis", summary="Why did it run out of memory?", openapi_extra=OPERATION
)
async def create_diagnosis(request: Request) -> Response:
    """Diagnose an out-of-memory error."""
    body, catalogue = await read_body(request), await catalogue_of(request)
    return Response(await compute(request, diagnosis_json, body, catalogue), media_type=JSON)
