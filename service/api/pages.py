"""Routes beside the API: HTML pages, which load nothing from other sites, the OpenAPI document, health and metrics."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from service.api.answers import JSON, json_answer
from service.api.compute import computed_once
from service.api.errors import LEAVING, RETRY_AFTER, ApiError
from service.api.inputs import choice_of
from service.api.metrics import CONTENT_TYPE
from service.api.openapi import PUBLIC
from service.api.requests import StrictRoute, answer
from service.errors import Leaving, NotFound
from service.estimator.question import Documented
from service.store import Engine
from service.store.engine import takes_changes

WEB = Path(__file__).parents[1] / "web"
FILES = (*WEB.rglob("*.css"), *WEB.rglob("*.js"), *WEB.rglob("*.svg"), *WEB.glob("examples/*.json"))
ASSETS = {path.relative_to(WEB).as_posix() for path in FILES}

GUIDE = WEB / "guide"
GUIDES = sorted(path.stem for path in GUIDE.glob("*.html") if path.stem != "index")


def _policy(frame_ancestors: Sequence[str] = ()) -> dict[str, str]:
    framed_by = " ".join(frame_ancestors) or "'none'"
    return {"Content-Security-Policy": f"default-src 'self'; frame-ancestors {framed_by}; base-uri 'none'"}


POLICY = _policy()

FRESH = {"Cache-Control": "no-cache"}
"""Revalidated at each use (304 while unchanged), so that the files of a page match."""

router = APIRouter(include_in_schema=False, route_class=StrictRoute)


@router.get("/")
async def front_page(request: Request, embed: Annotated[Any, Query()] = None) -> Response:  # noqa: ARG001 - read with its choices
    """The page with the question form and its answer, or the answer alone where `embed` is 1: for a frame elsewhere."""
    choice_of(request, "embed", ["0", "1"])
    return FileResponse(WEB / "index.html", headers=_policy(request.app.state.settings.frame_ancestors) | FRESH)


@router.get("/guide")
async def guide() -> Response:
    """The first five minutes, command by command."""
    return FileResponse(GUIDE / "index.html", headers=POLICY)


def _add_guide(name: str) -> None:
    async def guide_page() -> Response:
        return FileResponse(GUIDE / f"{name}.html", headers=POLICY)

    router.add_api_route(f"/guide/{name}", guide_page)


for _name in GUIDES:
    _add_guide(_name)


@router.get("/docs")
async def documentation() -> Response:
    """The contract as a page."""
    return FileResponse(WEB / "docs.html", headers=POLICY)


@router.get("/web/{name:path}")
async def asset(name: str) -> Response:
    """A static file."""
    if name not in ASSETS:
        raise NotFound("the pages load no file of this name")
    return FileResponse(WEB / name, headers=FRESH)


@router.get("/openapi.json")
async def contract(request: Request) -> Response:
    """The contract, the same bytes as openapi/openapi.json."""
    return Response(await computed_once(request, request.app.state.contract), media_type=JSON)


MANIFESTS = {path.name: path for path in sorted((GUIDE / "kubernetes").glob("*.yaml"))}


@router.get("/guide/kubernetes/{name}")
async def manifest(name: str) -> Response:
    if name not in MANIFESTS:
        raise NotFound(f"no manifest of that name is served; {', '.join(MANIFESTS)} are")
    return PlainTextResponse(MANIFESTS[name].read_text(encoding="utf-8"))


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


NOT_STORED = {"Cache-Control": "no-store"}

health_router = APIRouter(tags=["health"], route_class=StrictRoute)


@dataclass(frozen=True, slots=True)
class HealthAnswer(Documented):
    """How the process is."""

    status: Literal["ok"] = "ok"
    """Always so."""


@dataclass(frozen=True, slots=True)
class ReadinessAnswer(Documented):
    """How the process is."""

    status: Literal["ready"] = "ready"
    """Always so."""


@health_router.get(
    "/healthz", summary="The process is alive", response_model=answer(HealthAnswer), openapi_extra=PUBLIC
)
async def get_health() -> Response:
    """Liveness: answer while the process runs."""
    return json_answer(HealthAnswer())


@health_router.get(
    "/readyz",
    summary="The database can be read and written, and the process is not about to end",
    response_model=answer(ReadinessAnswer),
    openapi_extra=PUBLIC,
)
async def get_readiness(request: Request) -> Response:
    """Readiness: 200 once the database accepts changes; 503 before that and while the process drains."""
    if request.app.state.draining.is_set():
        raise Leaving(LEAVING)
    readiness_check: Readiness = request.app.state.readiness
    if not await readiness_check.check():
        raise ApiError("not_ready", "the database does not answer, or takes no changes", RETRY_AFTER)
    return json_answer(ReadinessAnswer())


@health_router.get(
    "/metrics",
    summary="Figures of this process and of the database, for Prometheus",
    response_class=PlainTextResponse,
    response_description="The figures.",
)
async def get_metrics(request: Request) -> Response:
    """The text format of Prometheus.

    Where the database does not answer in time, traincost_database_up is 0 and what only it knows is not there.
    """
    state = request.app.state
    database = await state.database_figures.now()
    content = await asyncio.to_thread(state.metrics.exposed, state.catalogue.revision, database)
    return Response(content, media_type=CONTENT_TYPE, headers=NOT_STORED)
