"""POST /v1/differences: what changed between two questions, as JSON, CSV, a workbook or Markdown."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.answers.rows import DifferenceAnswer
from service.api.access.authorization import caller_of
from service.api.answers import computed_table, written_table
from service.api.inputs import catalogue_at, database_of
from service.api.openapi import examples, requires
from service.api.requests import CatalogueDep, JsonBody, StrictRoute
from service.features.differences.differences import difference_bytes
from service.features.differences.schemas import DifferenceRequest, with_stored_questions
from service.features.estimates.store import stored_question

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


@computed_table(
    router,
    "/v1/differences",
    DifferenceAnswer,
    "The changes.",
    endings=("", ".csv", ".xlsx", ".md"),
    methods=["POST"],
    summary="What changed between two questions, and what each change costs",
    openapi_extra=requires("read") | examples("createDifference"),
)
async def create_difference(request: Request, body: JsonBody[DifferenceRequest], catalogue: CatalogueDep) -> Response:
    """Each of the two is a question, or the id of a stored answer or of a scenario.

    The first question becomes the second one field at a time, in the order model, recipe, cluster, layout, price, and
    is answered after each change: the deltas of the changes add up to the whole difference.
    """

    def stored(name: str) -> Mapping[str, Any]:
        checked = request.app.state.checked_questions
        return stored_question(
            database_of(request),
            caller_of(request).visible_owner,
            name,
            catalogue_at(request),
            checked.retry_for_replicas(),
        )

    if any(isinstance(end, str) for end in body.values()):
        body = await run_in_threadpool(with_stored_questions, body, stored)
    return await written_table(request, "difference", difference_bytes, body, catalogue)
