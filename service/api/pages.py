"""Pages for people: /, /guide, /docs, and the contract that /docs shows. They load nothing from other sites."""

from collections.abc import Sequence
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response

from service.api.answers import JSON
from service.api.compute import computed_once
from service.api.queries import choice_of, takes_only
from service.errors import NotFound

WEB = Path(__file__).parents[1] / "web"
ASSETS = {path.relative_to(WEB).as_posix() for path in WEB.rglob("*") if path.suffix in {".css", ".js", ".svg"}}
"""Files in WEB that the pages load."""

EMBED = "embed"
"""Parameter of the front page: 1 leaves out all but the answer, for a frame in a page of another tool."""


def _policy(frame_ancestors: Sequence[str] = ()) -> dict[str, str]:
    """Headers that keep a page to this host, and say who may show it in a frame."""
    framed_by = " ".join(frame_ancestors) or "'none'"
    return {"Content-Security-Policy": f"default-src 'self'; frame-ancestors {framed_by}; base-uri 'none'"}


POLICY = _policy()

FRESH = {"Cache-Control": "no-cache"}
"""Asked for again each time, and answered 304 while it is the same: the parts of a page belong together."""

router = APIRouter(include_in_schema=False)


@router.get("/", dependencies=[takes_only(EMBED)])
async def front_page(request: Request) -> Response:
    """The page that puts a question together and shows its answer."""
    choice_of(request, EMBED, ["0", "1"])
    return FileResponse(WEB / "index.html", headers=_policy(request.app.state.settings.frame_ancestors) | FRESH)


@router.get("/guide", dependencies=[takes_only()])
async def guide() -> Response:
    """The first five minutes, command by command."""
    return FileResponse(WEB / "guide" / "index.html", headers=POLICY)


@router.get("/guide/page", dependencies=[takes_only()])
async def first_steps() -> Response:
    """First steps on the page at /, each a link that asks."""
    return FileResponse(WEB / "guide" / "page.html", headers=POLICY)


@router.get("/guide/measuring", dependencies=[takes_only()])
async def measuring() -> Response:
    """How a job is measured before it starts."""
    return FileResponse(WEB / "guide" / "measuring.html", headers=POLICY)


@router.get("/guide/tuning", dependencies=[takes_only()])
async def tuning() -> Response:
    """Fourteen questions of tuning, each in one call."""
    return FileResponse(WEB / "guide" / "tuning.html", headers=POLICY)


@router.get("/guide/sweeps", dependencies=[takes_only()])
async def sweeps() -> Response:
    """Tables of many questions."""
    return FileResponse(WEB / "guide" / "sweeps.html", headers=POLICY)


@router.get("/guide/calibrating", dependencies=[takes_only()])
async def calibrating() -> Response:
    """How measurements come in, and how estimates learn from them."""
    return FileResponse(WEB / "guide" / "calibrating.html", headers=POLICY)


@router.get("/guide/diagnose", dependencies=[takes_only()])
async def diagnose() -> Response:
    """Why a job ran out of memory."""
    return FileResponse(WEB / "guide" / "diagnose.html", headers=POLICY)


@router.get("/guide/keeping", dependencies=[takes_only()])
async def keeping() -> Response:
    """How the data is kept, for whoever answers for it."""
    return FileResponse(WEB / "guide" / "keeping.html", headers=POLICY)


@router.get("/guide/reconcile", dependencies=[takes_only()])
async def reconcile() -> Response:
    """Finished jobs of Slurm beside what was predicted of them."""
    return FileResponse(WEB / "guide" / "reconcile.html", headers=POLICY)


@router.get("/guide/keys", dependencies=[takes_only()])
async def keys() -> Response:
    """Who may ask, and who changed what."""
    return FileResponse(WEB / "guide" / "keys.html", headers=POLICY)


@router.get("/guide/schedulers", dependencies=[takes_only()])
async def schedulers() -> Response:
    """Five minutes for whoever runs a scheduler."""
    return FileResponse(WEB / "guide" / "schedulers.html", headers=POLICY)


@router.get("/guide/clients", dependencies=[takes_only()])
async def clients() -> Response:
    """Five minutes for whoever asks from a program."""
    return FileResponse(WEB / "guide" / "clients.html", headers=POLICY)


@router.get("/docs", dependencies=[takes_only()])
async def documentation() -> Response:
    """The contract, readable."""
    return FileResponse(WEB / "docs.html", headers=POLICY)


@router.get("/web/{name:path}", dependencies=[takes_only()])
async def asset(name: str) -> Response:
    """What the pages load."""
    if name not in ASSETS:
        raise NotFound("the pages load no file of this name")
    return FileResponse(WEB / name, headers=FRESH)


@router.get("/openapi.json", dependencies=[takes_only()])
async def contract(request: Request) -> Response:
    """The contract, the same bytes as openapi/openapi.json."""
    return Response(await computed_once(request, request.app.state.contract), media_type=JSON)


GUIDE = WEB / "guide"
MANIFESTS = {path.name: path for path in sorted((GUIDE / "kubernetes").glob("*.yaml"))}
"""Manifests that are served, by name."""

deployment_router = APIRouter(include_in_schema=False, dependencies=[takes_only()])


@deployment_router.get("/guide/operating")
async def operating() -> Response:
    """How the service is examined, watched, limited and stopped."""
    return FileResponse(GUIDE / "operating.html", headers=POLICY)


@deployment_router.get("/guide/capacity")
async def capacity() -> Response:
    """How many replicas, how much memory and which database it takes."""
    return FileResponse(GUIDE / "capacity.html", headers=POLICY)


@deployment_router.get("/guide/kubernetes")
async def kubernetes() -> Response:
    """How the service runs on Kubernetes."""
    return FileResponse(GUIDE / "kubernetes.html", headers=POLICY)


@deployment_router.get("/guide/kubernetes/{name}")
async def manifest(name: str) -> Response:
    """One manifest."""
    if name not in MANIFESTS:
        raise NotFound(f"no manifest of that name is served; {', '.join(MANIFESTS)} are")
    return PlainTextResponse(MANIFESTS[name].read_text(encoding="utf-8"))
