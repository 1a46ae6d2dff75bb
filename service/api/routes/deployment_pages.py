"""Pages for whoever runs the service: watching, limiting, stopping; on Kubernetes, with the manifests to fetch."""

from fastapi import APIRouter
from fastapi.responses import FileResponse, PlainTextResponse, Response

from service.api.queries import takes_only
from service.api.routes.pages import POLICY, WEB
from service.errors import NotFound

GUIDE = WEB / "guide"
MANIFESTS = {path.name: path for path in sorted((GUIDE / "kubernetes").glob("*.yaml"))}
"""Manifests that are served, by name."""

router = APIRouter(include_in_schema=False, dependencies=[takes_only()])


@router.get("/guide/operating")
async def operating() -> Response:
    """How the service is examined, watched, limited and stopped."""
    return FileResponse(GUIDE / "operating.html", headers=POLICY)


@router.get("/guide/capacity")
async def capacity() -> Response:
    """How many replicas, how much memory and which database it takes."""
    return FileResponse(GUIDE / "capacity.html", headers=POLICY)


@router.get("/guide/kubernetes")
async def kubernetes() -> Response:
    """How the service runs on Kubernetes."""
    return FileResponse(GUIDE / "kubernetes.html", headers=POLICY)


@router.get("/guide/kubernetes/{name}")
async def manifest(name: str) -> Response:
    """One manifest."""
    if name not in MANIFESTS:
        raise NotFound(f"no manifest of that name is served; {', '.join(MANIFESTS)} are")
    return PlainTextResponse(MANIFESTS[name].read_text(encoding="utf-8"))
