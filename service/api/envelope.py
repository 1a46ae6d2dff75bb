"""Request id, log line, metrics and error handling of every request."""

import logging
import re
from asyncio import CancelledError
from threading import Event
from time import perf_counter
from urllib.parse import quote
from uuid import uuid4

from fastapi import Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import __version__
from service.api.errors import HANDLERS, LEAVING, problem_response
from service.api.metrics import Metrics
from service.api.request_context import CONTEXT, RequestContext, masked
from service.errors import Leaving
from service.logs import FIELDS, REQUEST_ID

CALLER_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
"""Accepted form of a caller's request id, which is safe in logs and headers."""

API_VERSION = "X-Api-Version"

COMMON_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", API_VERSION: __version__}

RAW_COMMON_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in COMMON_HEADERS.items())

CLOSES = (b"connection", b"close")
"""Header of answers of a draining process: the client sends the next request to another one."""

WARNING_STATUS = 500
"""Lowest status that is logged as a warning; others are logged at level debug."""

log = logging.getLogger(__name__)


class RequestMiddleware:
    """ASGI middleware that sets request ids and common headers, writes log lines and counts requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics | None = None, draining: Event | None = None) -> None:
        self.app = app
        self.metrics = metrics or Metrics()
        self.draining = draining or Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request with an id in its state."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        context = RequestContext(sent.decode() if CALLER_REQUEST_ID.fullmatch(sent) else uuid4().hex)
        started = perf_counter()

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                closes = (CLOSES,) if self.draining.is_set() else ()
                own = ((b"x-request-id", context.request_id.encode()), *RAW_COMMON_HEADERS)
                message["headers"] = [*message["headers"], *own, *context.headers, *context.limit_headers, *closes]
                _log_request(scope, context, perf_counter() - started)
            await send(message)

        token = REQUEST_ID.set(context.request_id)
        self.metrics.begin()
        state = {**scope.get("state", {}), "request_id": context.request_id, CONTEXT: context}
        try:
            await self.app({**scope, "state": state}, receive, send_marked)
        finally:
            self.metrics.end(scope["method"], context, perf_counter() - started)
            REQUEST_ID.reset(token)


class ErrorMiddleware:
    """ASGI middleware that answers 500 to an unexpected exception, and 503 where the process ends early."""

    def __init__(self, app: ASGIApp, leaving: Event | None = None) -> None:
        self.app = app
        self.leaving = leaving or Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request, and log an unexpected exception."""
        started = False

        async def send_watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, send_watched)
        except Exception as error:
            if scope["type"] != "http" or started:
                raise
            await problem_of(Request(scope), error)(scope, receive, send)
        except CancelledError:
            if scope["type"] != "http" or started or not self.leaving.is_set():
                raise
            await problem_of(Request(scope), Leaving(LEAVING))(scope, receive, send)


def problem_of(request: Request, error: Exception) -> Response:
    """The problem document of an exception, also for one part of an answer."""
    handler = next((HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS), None)
    if handler is not None:
        response: Response = handler(request, error)
        return response
    log.error("request %s failed", request.scope["state"]["request_id"], exc_info=error)
    detail = "this is a defect of the service; report it with the request_id"
    return problem_response(request.scope, "internal_error", detail)


def _log_request(scope: Scope, context: RequestContext, seconds: float) -> None:
    status = context.status or 0
    level = logging.WARNING if status >= WARNING_STATUS else logging.DEBUG
    if not log.isEnabledFor(level):
        return
    method, path, client = scope["method"], _path(scope), scope.get("client")
    caller = f"{client[0]}:{client[1]}" if client else ""
    fields = {"client": caller, "method": method, "path": path, "status": status, "seconds": round(seconds, 6)}
    version = scope.get("http_version", "1.1")
    log.log(level, '%s - "%s %s HTTP/%s" %d', caller, method, path, version, status, extra={FIELDS: fields})


def _path(scope: Scope) -> str:
    """Path and query as sent, with credentials masked."""
    query = scope["query_string"].decode("ascii", "backslashreplace")
    return masked(quote(scope["path"]) + (f"?{query}" if query else ""))
