"""Liveness, readiness and metrics routes."""

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from service.api.answers import json_answer
from service.api.errors import LEAVING, RETRY_AFTER, ApiError
from service.api.metrics import CONTENT_TYPE
from service.api.requests import StrictRoute, answer
from service.errors import Leaving
from service.estimator.question import DESCRIBED
from service.store import Engine
from service.store.engine import takes_changes

CHECK_SECONDS = 3.0
"""Longest wait for the check: where other writers take longer, a change would wait too. Source: a choice."""


class Readiness:
    """Checks the database on demand."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._check: asyncio.Task[bool] | None = None

    async def check(self) -> bool:
        """Whether the database accepts changes; concurrent callers share one check."""
        if self._engine is None:
            return False
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(run_in_threadpool(takes_changes, self._engine))
        check = self._check
        done, _ = await asyncio.wait({check}, timeout=CHECK_SECONDS)
        return check in done and check.result()


FRESH = {"Cache-Control": "no-store"}

router = APIRouter(tags=["health"], route_class=StrictRoute)


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """How the process is."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    status: Literal["ok"] = "ok"
    """Always so."""


@dataclass(frozen=True, slots=True)
class ReadinessAnswer:
    """How the process is."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    status: Literal["ready"] = "ready"
    """Always so."""


@router.get(
    "/healthz",
    operation_id="getHealth",
    summary="The process is alive",
    response_model=answer(HealthAnswer),
)
async def health() -> Response:
    """Liveness: answer while the process runs."""
    return json_answer(HealthAnswer())


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="The database can be read and written, and the process is not about to end",
    response_model=answer(ReadinessAnswer),
)
async def readiness(request: Request) -> Response:
    """Readiness: 200 once the database accepts changes; 503 before that and while the process drains."""
    if request.app.state.draining.is_set():
        raise Leaving(LEAVING)
    readiness_check: Readiness = request.app.state.readiness
    if not await readiness_check.check():
        raise ApiError("not_ready", "the database does not answer, or takes no changes", RETRY_AFTER)
    return json_answer(ReadinessAnswer())


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Figures of this process and of the database, for Prometheus",
    description="The text format of Prometheus. Where the database does not answer in time, "
    "traincost_database_up is 0 and what only it knows is not there.",
    response_class=PlainTextResponse,
    response_description="The figures.",
)
async def figures(request: Request) -> Response:
    """Counts in memory, and figures of the database where it answers within two seconds."""
    state = request.app.state
    database = await state.database_figures.now()
    content = await asyncio.to_thread(state.metrics.exposed, state.catalogue.revision, database)
    return Response(content, media_type=CONTENT_TYPE, headers=FRESH)
