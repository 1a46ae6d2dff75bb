"""POST /v1/check: may this job start? One verdict and one line for a scheduler, in the time of one estimate."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import json_answer
from service.api.body import read_body
from service.api.catalogues import catalogue_of
from service.api.json_schema import asked_in_body, json_response, parameter_ref, ref
from service.api.operations import EXAMPLES
from service.api.queries import REV, takes_only
from service.workflows.checks import check

router = APIRouter(tags=["checks"], dependencies=[takes_only(REV)])

LIMITED = {
    "summary": "The same with a deadline and a budget",
    "value": {**EXAMPLES["one-node"]["value"], "limits": {"days": 2_000, "cost_usd": 2e6}},
}

OPERATION: dict[str, Any] = {
    "parameters": [parameter_ref(REV)],
    "requestBody": asked_in_body(ref("CheckRequest"), {**EXAMPLES, "limits": LIMITED}),
    "responses": json_response(ref("Check")),
}


@router.post("/v1/check", operation_id="createCheck", summary="May this job start?", openapi_extra=OPERATION)
async def may_start(request: Request) -> Response:
    """A job that does not fit is an answer too: deny, with the reason."""
    return json_answer(check(await read_body(request), await catalogue_of(request)))
