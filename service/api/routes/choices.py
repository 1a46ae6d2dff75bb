"""GET /v1/choices: every name that a field takes, what it means, and where that comes from."""

from fastapi import APIRouter
from fastapi.responses import Response

from service.api.answers import json_answer
from service.api.operations import choices_operation
from service.api.queries import takes_only
from service.estimator import choices

router = APIRouter(tags=["choices"], dependencies=[takes_only()])


@router.get(
    "/v1/choices",
    operation_id="listChoices",
    summary="Every enumeration, with its source",
    openapi_extra=choices_operation(),
)
async def list_choices() -> Response:
    """The names that each field takes."""
    return json_answer(choices())
