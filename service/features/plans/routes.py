"""POST /v1/plans: the best layouts for a job, as one answer or as events while the search runs."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.plans import PlanAnswer, PlanCounts
from service.api.answers import JSON, preferred
from service.api.compute import compute, computed_items
from service.api.errors import CallerGone
from service.api.openapi import EVENTS, events, examples, requires
from service.api.requests import CatalogueDep, JsonBody, StrictRoute, answer
from service.api.streams import event_bytes, event_stream, problem_event
from service.features.plans.schemas import PlanRequest
from service.features.plans.search_plans import plans_json
from service.validation.reading import to_bytes

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


@router.post(
    "/v1/plans",
    summary="The best layouts for a job",
    description="Every legal layout is worked out by the formulas of estimates. A caller that accepts "
    f"{EVENTS} gets the progress of the search; hanging up ends it.",
    response_model=answer(PlanAnswer),
    responses=events(
        "progress, with counts so far; then plans, with the answer, or problem, with the problem document."
    ),
    response_description="The plans.",
    openapi_extra=requires("read") | examples("createPlans"),
)
async def create_plans(request: Request, body: JsonBody[PlanRequest], catalogue: CatalogueDep) -> Response:
    """Search the layouts that fit and keep to the limits, best first."""
    if preferred(request.headers.get("accept", ""), (JSON, EVENTS)) != EVENTS:
        return Response(await compute(request, plans_json, body, catalogue), media_type=JSON)
    items = computed_items(request, plans_json, body, catalogue, until=request.app.state.leaving)
    first = await anext(items)  # a refused request is answered before the stream starts
    return event_stream(request, _events(request, first, items))


async def _events(
    request: Request, first: PlanCounts | bytes, items: AsyncGenerator[Any, None]
) -> AsyncGenerator[bytes, None]:
    """Progress events, then the answer or a problem; stops when the client hangs up."""
    async with aclosing(items):
        try:
            yield _event(first)
            async for item in items:
                yield _event(item)
        except CallerGone:
            return
        except Exception as error:
            yield problem_event(request, error)


def _event(item: PlanCounts | bytes) -> bytes:
    return event_bytes("plans", item) if isinstance(item, bytes) else event_bytes("progress", to_bytes(item))
