"""The application: which routes stand behind which guards, and what they share."""

from asyncio import Semaphore
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from threading import Event
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from starlette.middleware import Middleware

from service import __version__
from service.api import errors, health, pages
from service.api.audit import DeniedChanges
from service.api.background import SigningSecretRefresh
from service.api.caching import Conditional
from service.api.catalogues import NO_DATABASE, refreshing
from service.api.checked_questions import CheckedQuestions, writing_checks
from service.api.compute import Compute
from service.api.credential_ends import CredentialEnds
from service.api.credentials import Credentials
from service.api.cross_site import CrossSiteRequests, cross_origin_guards
from service.api.entry import enter
from service.api.envelope import ErrorMiddleware, RequestMiddleware
from service.api.errors import closed_routes
from service.api.health import Readiness
from service.api.http_limits import BodyLimit
from service.api.metrics import DatabaseFigures, Metrics
from service.api.rate_limits import is_loopback, rate_limits_of
from service.api.security import NotAllowed, TokenJudge
from service.api.telemetry import tracing_of
from service.api.write_queue import AT_ONCE, COMPUTING_AT_ONCE
from service.catalogue import Catalogue, Holdings, shipped_catalogue
from service.errors import Unreachable
from service.features.accounts import routes as accounts
from service.features.accuracy import routes as accuracy
from service.features.batch import routes as batch
from service.features.calibrations import routes as calibrations
from service.features.catalogue import routes as catalogue
from service.features.catalogue import row_routes
from service.features.cells import routes as cells
from service.features.cells.answers import on_not_allowed
from service.features.checks import adapter_routes
from service.features.checks import routes as checks
from service.features.compare import routes as compare
from service.features.diagnose import routes as diagnose
from service.features.estimates import routes as estimates
from service.features.exports import routes as exports
from service.features.launch_checks import routes as launch_checks
from service.features.launch_checks.events import launch_check_feed
from service.features.measurements import routes as measurements
from service.features.plans import routes as plans
from service.features.reconcile import routes as reconcile
from service.features.scenarios import guide_routes, share_routes
from service.features.scenarios import routes as scenarios
from service.features.sensitivity import routes as sensitivity
from service.features.solve import routes as solve
from service.features.sweeps import routes as sweeps
from service.features.sweeps.events import sweep_feed
from service.features.workers import routes as workers
from service.features.workers.expiry import expiring_leases
from service.features.workers.notifications import JobNotifications
from service.openapi.document import contract_bytes
from service.settings import Settings
from service.store import Engine, Figures, History, KeyRing, Replicas, read_figures, watch_errors

ROUTERS = (
    batch.router,
    checks.router,
    estimates.router,
    accuracy.router,
    adapter_routes.router,
    accounts.router,
    calibrations.router,
    catalogue.router,
    cells.table_router,
    cells.router,
    estimates.choices_router,
    compare.router,
    pages.deployment_router,
    diagnose.router,
    exports.router,
    guide_routes.router,
    health.router,
    launch_checks.router,
    measurements.router,
    row_routes.router,
    pages.router,
    plans.router,
    reconcile.router,
    scenarios.budget_router,
    scenarios.router,
    sensitivity.router,
    share_routes.router,
    solve.router,
    estimates.stored_router,
    sweeps.router,
    estimates.timeline_router,
    workers.router,
)
"""Routers in the order in which paths are matched: those that are asked most often first. None of their paths has a
parameter, so they hide no other path; a budget workbook comes before a scenario, whose id has no file ending."""


def create_app(
    settings: Settings,
    catalogue: Catalogue | Holdings,
    engine: Any = None,
    keys: KeyRing | None = None,
    number: int = 0,
) -> FastAPI:
    """The service as an ASGI application."""
    metrics, draining, leaving, tracing = Metrics(), Event(), Event(), tracing_of(settings)
    app = FastAPI(
        title="traincost",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(RequestMiddleware, metrics=metrics, draining=draining),
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
    app.state.secret_looks, app.state.foreign_pages = SigningSecretRefresh(app.state.keys), CrossSiteRequests(settings)
    app.state.history = History(engine, catalogue, lambda newest: setattr(app.state, "catalogue", newest), number)
    app.state.catalogue = app.state.history.holdings.everyone
    app.state.replicas = Replicas(engine)
    app.state.tokens, app.state.refused_deeds = _token_judge(settings), DeniedChanges(engine)
    app.state.checked_questions = CheckedQuestions(engine, app.state.replicas)
    app.state.tracing, app.state.readiness = tracing, Readiness(engine)
    app.state.metrics, app.state.draining, app.state.leaving = metrics, draining, leaving
    app.state.openings = JobNotifications(engine, settings.lease_seconds, leaving)
    app.state.check_looks = launch_check_feed(engine, settings.stream_seconds, leaving)
    app.state.sweep_looks = sweep_feed(engine, settings.stream_seconds, leaving)
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
    """The contract, which is the same whatever the catalogue, the database and the settings of a service are."""
    return contract_bytes(create_app(Settings(database_url="sqlite://"), shipped_catalogue()))


def _add_routes(app: FastAPI) -> None:
    app.router.routes.extend(closed_routes(route for router in ROUTERS for route in router.routes))
    for router in ROUTERS:
        app.include_router(router)


def _add_refusals(app: FastAPI) -> None:
    refusals = {**errors.HANDLERS, NotAllowed: on_not_allowed}
    app.exception_handlers |= {kind: _at_once(refuse) for kind, refuse in refusals.items()}


@asynccontextmanager
async def _alongside(app: FastAPI) -> AsyncIterator[None]:
    """What goes on beside the requests, on threads of its own."""
    app.state.compute.start()
    async with refreshing(app), writing_checks(app), expiring_leases(app):
        yield
    app.state.compute.close()
    await app.state.rate_limits.close()
    if app.state.tracing is not None:
        await app.state.tracing.close()


def _token_judge(settings: Settings) -> TokenJudge | None:
    """What judges tokens, loaded only where the settings say whose are taken."""
    if settings.oidc_jwks is None:
        return None
    from service.api.tokens import SigningKeys, Tokens

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
    return [*cross_origin_guards(settings.cors_origins), Middleware(ErrorMiddleware, leaving=leaving), *inner]
