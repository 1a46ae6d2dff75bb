"""The pages for people: /, /docs, and the contract that /docs shows. Nothing is loaded from elsewhere."""

from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

WEB = Path(__file__).parents[2] / "web"
"""Static files, as they are."""

POLICY = {"Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'"}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def front_page() -> Response:
    """The front page."""
    return FileResponse(WEB / "index.html", headers=POLICY)


@router.get("/docs")
async def documentation() -> Response:
    """The contract, readable."""
    return FileResponse(WEB / "docs.html", headers=POLICY)


@router.get("/openapi.json")
async def contract(request: Request) -> Response:
    """The contract, the same bytes as openapi/openapi.json."""
    return Response(request.app.state.contract, media_type="application/json")
