"""POST /v1/plans: the best layouts for a job, as one answer or with word of how far the search is."""

from collections.abc import AsyncIterator, Iterator
from time import monotonic

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from service.answers.plans import PlanAnswer, PlanCounts
from service.api.accept import preferred
from service.api.answers import JSON, json_answer
from service.api.body import read_body
from service.api.catalogues import catalogue_of
from service.api.envelope import refusal_of
from service.api.json_schema import EVENTS
from service.api.plan_schemas import plan_operation
from service.api.queries import REV, takes_only
from service.workflows.plans import planning
from service.workflows.wire import to_bytes

router = APIRouter(tags=["estimates"], dependencies=[takes_only(REV)])

Steps = Iterator[PlanCounts | PlanAnswer]

BETWEEN_EVENTS_SECONDS = 0.25
"""Time between two words of progress. Source: a choice; often enough for a bar that moves."""

GONE = 499
"""Status of an answer that nobody waits for any more. Source: nginx, client closed request."""


@router.post(
    "/v1/plans",
    operation_id="createPlans",
    summary="The best layouts for a job",
    openapi_extra=plan_operation(),
)
async def best_layouts(request: Request) -> Response:
    """The layouts that fit, keep to the limits and have least of the objective, best first."""
    steps = planning(await read_body(request), await catalogue_of(request))
    if preferred(request.headers.get("accept", ""), (JSON, EVENTS)) == EVENTS:
        first = await run_in_threadpool(next, steps)  # what is wrong with the request is told as everywhere else
        return StreamingResponse(
            _events(request, first, steps), media_type=EVENTS, headers={"Cache-Control": "no-store"}
        )
    async for found in _each(steps):
        if isinstance(found, PlanAnswer):
            return json_answer(found)
        if await request.is_disconnected():
            break
    return Response(status_code=GONE)


async def _each(steps: Steps) -> AsyncIterator[PlanCounts | PlanAnswer]:
    """Each step of a search, in a thread of its own, so that others are answered meanwhile."""
    while (found := await run_in_threadpool(next, steps, None)) is not None:
        yield found


async def _events(request: Request, first: PlanCounts | PlanAnswer, steps: Steps) -> AsyncIterator[bytes]:
    """Progress now and then, and the answer; ends with its reader."""
    yield _event("progress", to_bytes(first))
    told = monotonic()
    try:
        async for found in _each(steps):
            if isinstance(found, PlanAnswer):
                yield _event("plans", to_bytes(found))
            elif monotonic() - told >= BETWEEN_EVENTS_SECONDS:
                told = monotonic()
                yield _event("progress", to_bytes(found))
    except Exception as error:  # the status is sent already, so an event says what went wrong
        yield _event("problem", bytes(refusal_of(request, error).body))


def _event(name: str, document: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + document + b"\n\n"
