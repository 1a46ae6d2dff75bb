"""The pages for people: /, /guide, /docs, and the contract that /docs shows. Nothing is loaded from elsewhere."""

from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from service.api.answers import JSON
from service.api.queries import takes_only
from service.errors import NotFound

WEB = Path(__file__).parents[2] / "web"
ASSETS = {"style.css", "docs.js"}
"""Files in WEB that the pages load."""

POLICY = {"Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'"}

router = APIRouter(include_in_schema=False, dependencies=[takes_only()])


@router.get("/")
async def front_page() -> Response:
    """The front page."""
    return FileResponse(WEB / "index.html", headers=POLICY)


@router.get("/guide")
async def guide() -> Response:
    """The first five minutes, command by command."""
    return FileResponse(WEB / "guide" / "index.html", headers=POLICY)


@router.get("/guide/tuning")
async def tuning() -> Response:
    """Fourteen questions of tuning, each in one call."""
    return FileResponse(WEB / "guide" / "tuning.html", headers=POLICY)


@router.get("/docs")
async def documentation() -> Response:
    """The contract, readable."""
    return FileResponse(WEB / "docs.html", headers=POLICY)


@router.get("/web/{name}")
async def asset(name: str) -> Response:
    """What the pages load."""
    if name not in ASSETS:
        raise NotFound("the pages load no file of this name")
    return FileResponse(WEB / name)


@router.get("/openapi.json")
async def contract(request: Request) -> Response:
    """The contract, the same bytes as openapi/openapi.json."""
    return Response(request.app.state.contract(), media_type=JSON)
