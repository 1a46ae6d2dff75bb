"""The application: which routes stand behind which guards, and what they share."""

from asyncio import Lock, Semaphore
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from fastapi import Depends, FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from service import __version__
from service.api import problems, routes
from service.api.catalogues import kept_current
from service.api.checked_questions import CheckedQuestions, kept_checks
from service.api.conditional import Conditional
from service.api.contract import contract_bytes
from service.api.credentials import Credentials
from service.api.envelope import Envelope, LastResort
from service.api.keys import NotAllowed, on_not_allowed, refuse_strangers
from service.api.limits import BodyLimit
from service.api.turns import AT_ONCE
from service.catalogue import Catalogue
from service.settings import Settings
from service.store import History, KeyRing

EXPOSED_HEADERS = ("ETag", "Location", "Retry-After", "X-Not-Expressible", "X-Request-Id", "X-Unit", "X-Verdict")
"""Headers that a page of another origin may read."""

ROUTERS = tuple(import_module(f"{routes.__name__}.{found.name}").router for found in iter_modules(routes.__path__))
"""The router of every module of routes/: a file added there is served."""


def create_app(settings: Settings, catalogue: Catalogue, engine: Any = None, keys: KeyRing | None = None) -> FastAPI:
    """The service as an ASGI application.

    Args:
        settings: how it is set up
        catalogue: the facts it answers from, held in memory until others take their place
        engine: the database of the store; None where there is none to reach
        keys: who may ask; None for those that the database holds now

    Returns:
        the application

    Raises:
        Unreachable: the database does not tell which keys there are, so that nobody knows whom to let in
    """
    app = FastAPI(
        title="traincost",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        middleware=_guards(settings),
        lifespan=_alongside,
        dependencies=[Depends(refuse_strangers)],
    )
    app.state.settings, app.state.catalogue, app.state.engine = settings, catalogue, engine
    app.state.turns, app.state.batch_turn = Semaphore(AT_ONCE), Lock()
    app.state.keys = KeyRing(engine) if keys is None else keys
    app.state.history = History(engine, catalogue, lambda newest: setattr(app.state, "catalogue", newest))
    app.state.checked_questions = CheckedQuestions(engine)
    for router in ROUTERS:
        app.include_router(router)
    app.exception_handlers |= {**problems.HANDLERS, NotAllowed: on_not_allowed}
    app.state.contract = cache(lambda: contract_bytes(app))  # a second that a start need not wait for
    return app


@asynccontextmanager
async def _alongside(app: FastAPI) -> AsyncIterator[None]:
    """What goes on beside the requests, on threads of its own."""
    async with kept_current(app), kept_checks(app):
        yield


def _guards(settings: Settings) -> list[Middleware]:
    """The middleware, outermost first."""
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "If-Match", "If-None-Match", "X-Request-Id"],
        expose_headers=EXPOSED_HEADERS,
        max_age=600,
    )
    allowed = [cors] if settings.cors_origins else []
    inner = [Middleware(guard) for guard in (LastResort, Credentials, BodyLimit, Conditional)]
    return [Middleware(Envelope), *allowed, *inner]
