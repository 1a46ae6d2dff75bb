"""The application: routes, middleware, and the state that requests share."""

from asyncio import Semaphore
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from threading import Event
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from service import __version__
from service.api import errors, pages
from service.api.access.authorization import AccessDenied, DeniedChanges, TokenVerifier
from service.api.access.credentials import Credentials
from service.api.background import CheckedQuestions, SigningSecretRefresh, background_refresh
from service.api.caching import Conditional
from service.api.compute import MOST_COMPUTING, MOST_WRITERS, Compute
from service.api.cross_site import CrossSiteRequests, cors_middleware
from service.api.envelope import ErrorMiddleware, RequestMiddleware
from service.api.errors import reserved_paths
from service.api.inputs import NO_DATABASE
from service.api.limits.http_limits import BodyLimit
from service.api.limits.rate_limits import WITHOUT_REDIS, RateLimits, has_redis, is_loopback
from service.api.metrics import DatabaseFigures, Metrics, tracing_of
from service.api.pages import Readiness
from service.api.requests import StrictRoute
from service.api.streams import CredentialWatch
from service.catalogue import Catalogue, Snapshot, shipped_catalogue
from service.errors import StartupError, Unreachable
from service.features.accounts import routes as accounts
from service.features.accuracy import routes as accuracy
from service.features.ask import routes as ask
from service.features.batch import routes as batch
from service.features.calibrations import routes as calibrations
from service.features.catalogue import routes as catalogue
from service.features.cells import routes as cells
from service.features.cells.routes import on_not_allowed
from service.features.checks import routes as checks
from service.features.compare import routes as compare
from service.features.diagnose import routes as diagnose
from service.features.differences import routes as differences
from service.features.estimates import routes as estimates
from service.features.exports import routes as exports
from service.features.launch_checks import routes as launch_checks
from service.features.measurements import routes as measurements
from service.features.plans import routes as plans
from service.features.profiles import routes as profiles
from service.features.reconcile import routes as reconcile
from service.features.scenarios import routes as scenarios
from service.features.sensitivity import routes as sensitivity
from service.features.solve import routes as solve
from service.features.sweeps import routes as sweeps
from service.features.workers import routes as workers
from service.features.workers.leases import JobNotifications, expiring_leases
from service.openapi.document import contract_bytes
from service.settings import Settings
from service.store import Engine
from service.store.database import Figures, Replicas, read_figures
from service.store.engine import watch_errors
from service.store.history import History
from service.store.keys import KeyRing

ROUTERS = (
    *(feature.router for feature in (
        estimates, checks, ask, batch, accuracy, accounts, calibrations, catalogue, cells, compare, diagnose,
        differences, exports, launch_checks, measurements, plans, profiles, reconcile, scenarios, sensitivity, solve,
        sweeps, workers,
    )),
    checks.adapter_router, estimates.choices_router, pages.health_router, pages.router,
)  # fmt: skip
"""Routers in the order in which paths are matched, the most frequent first."""

PRELOADED = (
    "service.features.plans.search_plans",
    "service.features.solve.solve",
    "service.features.compare.compare",
    "service.features.sensitivity.vary",
    "service.features.differences.differences",
    "service.features.batch.batch",
    "service.features.checks.check",
    "service.features.calibrations.fitting",
    "service.features.catalogue.price_import",
    "service.features.profiles.profiles",
    "service.evaluation.accuracy",
    "service.evaluation.totals",
)
"""Modules that the fork server imports once for all compute processes, which import others when needed."""


def create_app(
    settings: Settings,
    catalogue: Catalogue | Snapshot,
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
            *_middleware(settings, leaving),
        ],
        lifespan=_lifespan,
    )
    app.state.settings, app.state.engine = settings, engine
    app.state.write_slots, app.state.compute_slots = Semaphore(MOST_WRITERS), Semaphore(MOST_COMPUTING)
    app.state.keys = KeyRing(engine) if keys is None else keys
    app.state.credential_watch = CredentialWatch(app.state.keys)
    app.state.signing_secret_refresh = SigningSecretRefresh(app.state.keys)
    app.state.cross_site_requests = CrossSiteRequests(settings)
    app.state.history = History(engine, catalogue, lambda newest: setattr(app.state, "catalogue", newest), number)
    app.state.catalogue = app.state.history.snapshot.everyone
    app.state.replicas = Replicas(engine)
    app.state.tokens, app.state.denied_changes = _token_verifier(settings), DeniedChanges(engine)
    app.state.checked_questions = CheckedQuestions(engine, app.state.replicas)
    app.state.tracing, app.state.readiness = tracing, Readiness(engine)
    app.state.metrics, app.state.draining, app.state.leaving = metrics, draining, leaving
    app.state.job_notifications = JobNotifications(engine, settings.lease_seconds, leaving)
    app.state.launch_check_feed = launch_checks.launch_check_feed(engine, settings.stream_seconds, leaving)
    app.state.sweep_feed = sweeps.sweep_feed(engine, settings.stream_seconds, leaving)
    app.state.is_public, app.state.rate_limits = not is_loopback(settings.host), rate_limits_of(settings, metrics)
    app.state.database_figures = DatabaseFigures(partial(_figures, engine, settings.lease_seconds))
    app.state.compute = Compute(settings.compute_processes, metrics, PRELOADED)
    if engine is not None:
        watch_errors(engine, lambda kind: metrics.database_errors.labels(kind).inc())
    _add_routes(app)
    _add_exception_handlers(app)
    app.state.contract = contract_of_service  # takes a second, so a compute process runs it
    return app


def contract_of_service() -> bytes:
    """The OpenAPI document, which depends on neither catalogue, database nor settings."""
    return contract_bytes(create_app(Settings(database_url="sqlite://"), shipped_catalogue()))


def _add_routes(app: FastAPI) -> None:
    """Mount the routers; raise TypeError if a route is not a StrictRoute, because it would need no authentication."""
    routes = [route for router in ROUTERS for route in router.routes]
    unguarded = [route.path for route in routes if isinstance(route, APIRoute) and not isinstance(route, StrictRoute)]
    if unguarded:
        raise TypeError(f"{', '.join(unguarded)}: give the router route_class=StrictRoute, which authenticates")
    app.router.routes.extend(reserved_paths(routes))
    for router in ROUTERS:
        app.include_router(router)


def _add_exception_handlers(app: FastAPI) -> None:
    handlers = {**errors.HANDLERS, AccessDenied: on_not_allowed}
    app.exception_handlers |= {kind: _on_event_loop(handler) for kind, handler in handlers.items()}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.compute.start()
    async with background_refresh(app), expiring_leases(app):
        yield
    app.state.compute.close()
    await app.state.rate_limits.close()
    if app.state.tracing is not None:
        await app.state.tracing.close()


def _token_verifier(settings: Settings) -> TokenVerifier | None:
    """The verifier of OpenID Connect tokens, imported only where the settings name an issuer."""
    if settings.oidc_jwks is None:
        return None
    from service.api.access.tokens import JwtVerifier, SigningKeys

    return JwtVerifier(settings, SigningKeys(settings.oidc_jwks))


def rate_limits_of(settings: Settings, metrics: Metrics) -> RateLimits:
    """The rate limits of an application, shared through Redis where the settings name one."""
    if settings.redis_url is None:
        return RateLimits(settings)
    if not has_redis():
        raise StartupError(WITHOUT_REDIS)
    from service.api.limits.shared_limits import SharedCounts

    return RateLimits(settings, SharedCounts(settings.redis_url), metrics.rate_limit_fallbacks.inc)


def _on_event_loop(handler: Callable[[Request, Any], Response]) -> Callable[[Request, Any], Awaitable[Response]]:
    """An exception handler that runs on the event loop; Starlette would run a plain one on a thread of the pool."""

    async def answer(request: Request, error: Exception) -> Response:
        response = handler(request, error)
        request.app.state.denied_changes.note(request, response)
        return response

    return answer


def _figures(engine: Engine | None, lease_seconds: float) -> Figures:
    if engine is None:
        raise Unreachable(NO_DATABASE)
    return read_figures(engine, lease_seconds)


def _middleware(settings: Settings, leaving: Event) -> list[Middleware]:
    inner = [Middleware(kind) for kind in (Credentials, BodyLimit, Conditional)]
    return [*cors_middleware(settings.cors_origins), Middleware(ErrorMiddleware, leaving=leaving), *inner]
