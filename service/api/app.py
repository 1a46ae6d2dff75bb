"""The application: which routes stand behind which guards, and what they share."""

from asyncio import Semaphore
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from threading import Event
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from starlette.middleware import Middleware

from service import __version__
from service.api import problems, routes
from service.api.bearers import TokenJudge
from service.api.catalogues import kept_current
from service.api.cell_answers import on_not_allowed
from service.api.checked_questions import CheckedQuestions, kept_checks
from service.api.compute import Compute
from service.api.conditional import Conditional
from service.api.contract import contract_bytes
from service.api.credential_ends import CredentialEnds
from service.api.credentials import Credentials
from service.api.cross_origin import cross_origin_guards
from service.api.database import NO_DATABASE
from service.api.database_figures import DatabaseFigures
from service.api.deeds import RefusedDeeds
from service.api.entry import enter
from service.api.envelope import Envelope, LastResort
from service.api.exact_paths import closed_routes
from service.api.foreign_pages import ForeignPages
from service.api.keys import NotAllowed
from service.api.launch_check_events import launch_check_looks
from service.api.limits import BodyLimit
from service.api.metrics import Metrics
from service.api.openings import Openings
from service.api.rate_limits import is_loopback, rate_limits_of
from service.api.readiness import Readiness
from service.api.reaping import reaped
from service.api.secret_looks import SecretLooks
from service.api.sweep_events import sweep_looks
from service.api.telemetry import tracing_of
from service.api.turns import AT_ONCE, COMPUTING_AT_ONCE
from service.catalogue import Catalogue, Holdings, shipped_catalogue
from service.errors import Unreachable
from service.settings import Settings
from service.store import Engine, Figures, History, KeyRing, Replicas, read_figures, watch_errors

OFTEN_ASKED = ("estimates", "check", "batch")
"""Modules of routes/ that are looked into first, for a request is held against one route after the other. None of their
paths has a parameter, so they hide no other path."""

ROUTERS = tuple(
    import_module(f"{routes.__name__}.{name}").router
    for name in sorted(
        (found.name for found in iter_modules(routes.__path__)), key=lambda name: name not in OFTEN_ASKED
    )
)
"""The router of every module of routes/: a file added there is served."""


def create_app(
    settings: Settings,
    catalogue: Catalogue | Holdings,
    engine: Any = None,
    keys: KeyRing | None = None,
    number: int = 0,
) -> FastAPI:
    """The service as an ASGI application.

    Args:
        settings: how it is set up
        catalogue: the facts it answers from, held in memory until others take their place
        engine: the database of the store; None where there is none to reach
        keys: who may ask; None for those that the database holds now
        number: the change of the database after which these facts held; 0 where nobody knows

    Returns:
        the application

    Raises:
        Unreachable: the database does not tell which keys there are, so that nobody knows whom to let in
        StartupError: the keys of tokens are to stand in a file, and do not
    """
    metrics, draining, leaving, tracing = Metrics(), Event(), Event(), tracing_of(settings)
    app = FastAPI(
        title="traincost",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(Envelope, metrics=metrics, draining=draining),
            *([] if tracing is None else [tracing.middleware()]),
            *_guards(settings, leaving),
        ],
        lifespan=_alongside,
        dependencies=[Depends(enter)],
    )
    app.state.settings, app.state.engine = settings, engine
    app.state.turns, app.state.computing_turns = Semaphore(AT_ONCE), Semaphore(COMPUTING_AT_ONCE)
    app.state.keys = KeyRing(engine) if keys is None else keys
    app.state.credential_ends = CredentialEnds(app.state.keys)
    app.state.secret_looks, app.state.foreign_pages = SecretLooks(app.state.keys), ForeignPages(settings)
    app.state.history = History(engine, catalogue, lambda newest: setattr(app.state, "catalogue", newest), number)
    app.state.catalogue = app.state.history.holdings.everyone
    app.state.replicas = Replicas(engine)
    app.state.tokens, app.state.refused_deeds = _token_judge(settings), RefusedDeeds(engine)
    app.state.checked_questions = CheckedQuestions(engine, app.state.replicas)
    app.state.tracing, app.state.readiness = tracing, Readiness(engine)
    app.state.metrics, app.state.draining, app.state.leaving = metrics, draining, leaving
    app.state.openings = Openings(engine, settings.lease_seconds, leaving)
    app.state.check_looks = launch_check_looks(engine, settings.stream_seconds, leaving)
    app.state.sweep_looks = sweep_looks(engine, settings.stream_seconds, leaving)
    app.state.is_public, app.state.rate_limits = not is_loopback(settings.host), rate_limits_of(settings, metrics)
    app.state.database_figures = DatabaseFigures(partial(_figures, engine, settings.lease_seconds))
    app.state.compute = Compute(settings.compute_processes, metrics)
    if engine is not None:
        watch_errors(engine, lambda kind: metrics.database_errors.labels(kind).inc())
    _add_routes(app)
    _add_refusals(app)
    app.state.contract = contract_of_service  # a second of work, in a process of its own
    return app


def contract_of_service() -> bytes:
    """The contract, which is the same whatever the catalogue, the database and the settings of a service are.

    Returns:
        OpenAPI 3.1 as UTF-8 JSON, ending in a newline
    """
    return contract_bytes(create_app(Settings(database_url="sqlite://"), shipped_catalogue()))


def _add_routes(app: FastAPI) -> None:
    app.router.routes.extend(closed_routes(route for router in ROUTERS for route in router.routes))
    for router in ROUTERS:
        app.include_router(router)


def _add_refusals(app: FastAPI) -> None:
    refusals = {**problems.HANDLERS, NotAllowed: on_not_allowed}
    app.exception_handlers |= {kind: _at_once(refuse) for kind, refuse in refusals.items()}


@asynccontextmanager
async def _alongside(app: FastAPI) -> AsyncIterator[None]:
    """What goes on beside the requests, on threads of its own."""
    app.state.compute.start()
    async with kept_current(app), kept_checks(app), reaped(app):
        yield
    app.state.compute.close()
    await app.state.rate_limits.close()
    if app.state.tracing is not None:
        await app.state.tracing.close()


def _token_judge(settings: Settings) -> TokenJudge | None:
    """What judges tokens, loaded only where the settings say whose are taken."""
    if settings.oidc_jwks is None:
        return None
    from service.api.signing_keys import SigningKeys
    from service.api.tokens import Tokens

    return Tokens(settings, SigningKeys(settings.oidc_jwks))


def _at_once(refuse: Callable[[Request, Any], Response]) -> Callable[[Request, Any], Awaitable[Response]]:
    """A function that answers on the loop: a plain one waits for a thread, behind all that wait for the database."""

    async def answer(request: Request, error: Exception) -> Response:
        response = refuse(request, error)
        request.app.state.refused_deeds.note(request, response)
        return response

    return answer


def _figures(engine: Engine | None, lease_seconds: float) -> Figures:
    if engine is None:
        raise Unreachable(NO_DATABASE)
    return read_figures(engine, lease_seconds)


def _guards(settings: Settings, leaving: Event) -> list[Middleware]:
    """The middleware behind what notes every request, outermost first."""
    inner = [Middleware(guard) for guard in (Credentials, BodyLimit, Conditional)]
    return [*cross_origin_guards(settings.cors_origins), Middleware(LastResort, leaving=leaving), *inner]
