"""POST /v1/sensitivity: some fields of a question varied, one row a value, as JSON, CSV or a workbook."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.rows import SensitivityAnswer
from service.api.answers import computed_table, written_table
from service.api.openapi import examples, requires
from service.api.requests import CatalogueDep, JsonBody, StrictRoute
from service.features.sensitivity.schemas import SensitivityRequest
from service.features.sensitivity.vary import sensitivity_bytes

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


@computed_table(
    router,
    "/v1/sensitivity",
    SensitivityAnswer,
    "The rows.",
    methods=["POST"],
    summary="What changes if a field of the question changes",
    openapi_extra=requires("read") | examples("createSensitivity"),
)
async def create_sensitivity(request: Request, body: JsonBody[SensitivityRequest], catalogue: CatalogueDep) -> Response:
    """What is wrong with the request is refused as a whole.

    What one value makes impossible is a row with status 422 and its reason; not fitting is an answer like any other.
    """
    return await written_table(request, "sensitivity", sensitivity_bytes, body, catalogue)
