"""What does every answer carry, whatever went wrong? A request id, and a problem document instead of a broken line."""

import logging
import re
from uuid import uuid4

from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import HANDLERS, problem_response

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""A caller's own request id is kept only in this form, which is safe in any log and header."""

log = logging.getLogger(__name__)


class Envelope:
    """ASGI middleware that gives each request an id and each answer its common headers.

    Args:
        app: the application behind it
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request with an id in its state."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = Headers(scope=scope).get("x-request-id", "")
        request_id = asked if REQUEST_ID.fullmatch(asked) else uuid4().hex

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
            await send(message)

        state = {**scope.get("state", {}), "request_id": request_id}
        await self.app({**scope, "state": state}, receive, send_marked)


class LastResort:
    """ASGI middleware that turns an unforeseen exception into a 500 without a stack.

    Args:
        app: the application behind it
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request; log what it did not foresee."""
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
            await refusal_of(Request(scope), error)(scope, receive, send)


def refusal_of(request: Request, error: Exception) -> Response:
    """The problem document of what went wrong, also where only a part of the answer did.

    Args:
        request: the request
        error: what was raised

    Returns:
        the response; that of a 500 for what nobody foresaw, which is logged with its stack
    """
    handler = next((HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS), None)
    if handler is not None:
        found: Response = handler(request, error)
        return found
    log.error("request %s failed", request.scope["state"]["request_id"], exc_info=error)
    detail = "this is a defect of the service; report it with the request_id"
    return problem_response(request.scope, "internal_error", detail)
