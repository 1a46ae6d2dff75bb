"""POST /v1/sensitivity: some fields of a question varied, one row a value, as JSON, CSV or a workbook."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.rows import SensitivityAnswer
from service.api.answers import add_computed_table, computed_table
from service.api.openapi import examples, requires
from service.api.requests import CatalogueDep, JsonBody, StrictRoute
from service.features.sensitivity.schemas import SensitivityRequest
from service.features.sensitivity.vary import sensitivity_bytes

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


def _vary(media_type: str) -> Any:
    async def vary(request: Request, body: JsonBody[SensitivityRequest], catalogue: CatalogueDep) -> Response:
        """Answer one row for each value of a varied field."""
        return await computed_table(request, media_type, "sensitivity", sensitivity_bytes, body, catalogue)

    return vary


add_computed_table(
    router,
    "/v1/sensitivity",
    _vary,
    SensitivityAnswer,
    "The rows.",
    operation_id="createSensitivity",
    methods=["POST"],
    summary="What changes if a field of the question changes",
    description="What is wrong with the request is refused as a whole. What one value makes impossible is a row with "
    "status 422 and its reason; not fitting is an answer like any other.",
    openapi_extra=requires("read") | examples("createSensitivity"),
)
