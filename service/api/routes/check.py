"""POST /v1/check: may this job start? One verdict and one line for a scheduler, in the time of one estimate."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.body import read_body
from service.api.operations import EXAMPLES, answered
from service.api.problems import WrongParameter
from service.errors import Problem
from service.workflows.checks import check
from service.workflows.wire import to_bytes

router = APIRouter(tags=["checks"])

LIMITED = {
    "summary": "The same with a deadline and a budget",
    "value": {**EXAMPLES["one-node"]["value"], "limits": {"days": 2_000, "cost_usd": 2e6}},
}

OPERATION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/CheckRequest"},
                "examples": {**EXAMPLES, "limits": LIMITED},
            }
        },
    },
    "responses": answered("Check"),
}


@router.post("/v1/check", operation_id="createCheck", summary="May this job start?", openapi_extra=OPERATION)
async def may_start(request: Request) -> Response:
    """A job that does not fit is an answer too: deny, with the reason."""
    if request.query_params:
        message = "a check takes no query parameters; they would be ignored"
        raise WrongParameter(
            Problem(field="", code="unknown_parameter", message=message, fix="put every field into the body")
        )
    verdict = check(await read_body(request), request.app.state.catalogue)
    return Response(to_bytes(verdict), media_type="application/json")
