"""HTML pages /, /guide and /docs, and the OpenAPI document that /docs shows. They load nothing from other sites."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response

from service.api.answers import JSON
from service.api.computing.compute import computed_once
from service.api.queries import choice_of
from service.api.requests import StrictRoute
from service.errors import NotFound

WEB = Path(__file__).parents[1] / "web"
FILES = (*WEB.rglob("*.css"), *WEB.rglob("*.js"), *WEB.rglob("*.svg"), *WEB.glob("examples/*.json"))
ASSETS = {path.relative_to(WEB).as_posix() for path in FILES}
"""Static files of the pages."""

GUIDE = WEB / "guide"
GUIDES = sorted(path.stem for path in GUIDE.glob("*.html") if path.stem != "index")
"""Pages of the guide beside its first one, each served under its file's name."""


def _policy(frame_ancestors: Sequence[str] = ()) -> dict[str, str]:
    """The Content-Security-Policy: resources of this host only, and the allowed frame ancestors."""
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
"""Manifests that are served, by name."""

deployment_router = APIRouter(include_in_schema=False, route_class=StrictRoute)


@deployment_router.get("/guide/kubernetes/{name}")
async def manifest(name: str) -> Response:
    """One Kubernetes manifest."""
    if name not in MANIFESTS:
        raise NotFound(f"no manifest of that name is served; {', '.join(MANIFESTS)} are")
    return PlainTextResponse(MANIFESTS[name].read_text(encoding="utf-8"))
