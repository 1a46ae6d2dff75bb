"""POST /v1/diagnose: why did a job run out of memory? Its message beside its estimate, and what to change."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.answers import json_answer
from service.api.body import read_body
from service.api.catalogues import catalogue_of
from service.api.json_schema import asked_in_body, json_response, parameter_ref, ref
from service.api.operations import EXAMPLES
from service.api.queries import REV, takes_only
from service.workflows.diagnosis.diagnose import diagnose
from service.workflows.diagnosis.messages import EXAMPLE

router = APIRouter(tags=["diagnoses"], dependencies=[takes_only(REV)])

PASTED = {
    "summary": "A message of torch",
    "value": {**EXAMPLES["one-node"]["value"], "message": EXAMPLE},
}

OPERATION: dict[str, Any] = {
    "description": "The body of /v1/estimates with the message, what torch.cuda.memory_stats() gave, or both. The "
    "answer repeats nothing of the message but its numbers.",
    "parameters": [parameter_ref(REV)],
    "requestBody": asked_in_body(ref("DiagnoseRequest"), {"message": PASTED}),
    "responses": json_response(ref("Diagnosis")),
}


@router.post(
    "/v1/diagnose", operation_id="createDiagnosis", summary="Why did it run out of memory?", openapi_extra=OPERATION
)
async def why_it_ran_out(request: Request) -> Response:
    """Differences between what is asked and what ran are tried one by one, so it runs on a thread of its own."""
    body, catalogue = await read_body(request), await catalogue_of(request)
    return json_answer(await run_in_threadpool(diagnose, body, catalogue))
