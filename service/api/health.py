"""Liveness, readiness and metrics routes."""

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.errors import LEAVING, RETRY_AFTER, ApiError
from service.api.metrics import CONTENT_TYPE
from service.api.openapi import Schema, json_response, ref
from service.api.queries import takes_only
from service.errors import Leaving
from service.store import Engine, takes_changes

LOOK_SECONDS = 3.0
"""Longest wait for a look: where others write for longer than that, a change would wait too. Source: a choice."""


class Readiness:
    """Looks at the database when it is asked for."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._look: asyncio.Task[bool] | None = None

    async def look(self) -> bool:
        """Whether the database takes changes; a look that is under way serves everybody."""
        if self._engine is None:
            return False
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(run_in_threadpool(takes_changes, self._engine))
        look = self._look
        done, _ = await asyncio.wait({look}, timeout=LOOK_SECONDS)
        return look in done and look.result()


TEXT: Schema = {"text/plain": {"schema": {"type": "string"}}}
FRESH = {"Cache-Control": "no-store"}

router = APIRouter(tags=["health"], dependencies=[takes_only()])


@router.get(
    "/healthz",
    operation_id="getHealth",
    summary="The process is alive",
    openapi_extra={"responses": json_response(ref("HealthAnswer"))},
)
async def health() -> dict[str, str]:
    """Answer as long as the process can answer anything."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="The database can be read and written, and the process is not about to end",
    openapi_extra={"responses": json_response(ref("ReadinessAnswer"))},
)
async def readiness(request: Request) -> dict[str, str]:
    """Answer once the database takes changes; 503 until then, and from the moment on at which the process is to end."""
    if request.app.state.draining.is_set():
        raise Leaving(LEAVING)
    found: Readiness = request.app.state.readiness
    if not await found.look():
        raise ApiError("not_ready", "the database does not answer, or takes no changes", RETRY_AFTER)
    return {"status": "ready"}


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Figures of this process and of the database, for Prometheus",
    openapi_extra={
        "description": "The text format of Prometheus. Where the database does not answer in time, "
        "traincost_database_up is 0 and what only it knows is not there.",
        "responses": {"200": {"description": "The figures.", "content": TEXT}},
    },
)
async def figures(request: Request) -> Response:
    """What was counted in memory, and what the database tells within two seconds."""
    state = request.app.state
    found = await state.database_figures.now()
    exposed = await asyncio.to_thread(state.metrics.exposed, state.catalogue.revision, found)  # others are answered
    return Response(exposed, media_type=CONTENT_TYPE, headers=FRESH)
