"""Size and time limits of request bodies, and the memory budget that all bodies share."""

import asyncio
import re
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import ApiError, problem_response

MOST_RESERVED_BYTES = 256 << 20
"""Memory budget of all bodies together. Source: a choice; four of the longest bodies."""
UNCOUNTED_BYTES = 64 << 10
"""Part of each body outside the budget: the number of connections bounds it, and the server reads as much ahead."""
RETRY_SECONDS = 1
"""Retry-After of a body beyond the budget."""

TOO_MUCH = "the service holds as much of other requests' bodies as it may; send this one again in a moment"

MAXIMUM_BODY_BYTES = 1 << 20
LARGER_BODY_BYTES: Mapping[str, int] = {
    "/v1/batch": 4 << 20,
    "/v1/prices/import": 4 << 20,
    "/v1/reconciliations": 4 << 20,
    "/v1/sweeps": 4 << 20,
}
"""Longest body of paths with a higher limit: a thousand questions with a config.json each take some 3 MB, and a table
with as many prices as one import accepts some 2 MB."""
SHORTER_BODY_BYTES: Mapping[re.Pattern[str], int] = {
    re.compile(r"/v1/worker/claim"): 32 << 10,
    re.compile(r"/v1/worker/jobs/[^/]+/heartbeat"): 16 << 10,
}
"""Longest body of frequent worker requests. Source: a choice; a claim of a node with eight GPUs takes some 300 bytes, a
heartbeat with eight probes 2 KB."""
UPLOAD_BYTES: Mapping[re.Pattern[str], int] = {
    re.compile(r"/v1/worker/jobs/[^/]+/finish"): 8 << 20,
    re.compile(r"/v1/worker/jobs/[^/]+/files/[^/]+"): 64 << 20,
    re.compile(r"/v1/profiles"): 64 << 20,
}
"""Longest body of uploads: figures of some ten thousand shapes, traces of some steps. Only their routes read them."""
BODY_SECONDS = 30.0
UPLOAD_BYTES_PER_S = 1 << 18
"""Slowest accepted upload. Source: a choice; a slow line between a cluster and its office."""
CLOSES = {"Connection": "close"}
"""Header of an answer that rejects a body, the rest of which is not read."""


class BodyLimit:
    """ASGI middleware that limits the body, and reads it on the first `receive`, after authentication."""

    def __init__(
        self,
        app: ASGIApp,
        maximum_bytes: int = MAXIMUM_BODY_BYTES,
        maximum_seconds: float = BODY_SECONDS,
        most_reserved_bytes: int = MOST_RESERVED_BYTES,
    ) -> None:
        self.app = app
        self.maximum_bytes = maximum_bytes
        self.maximum_seconds = maximum_seconds
        self.left_bytes = most_reserved_bytes
        """Memory that no body has reserved."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on the request with an unread body, or answer 413 to the length that it declares."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or not {b"content-length", b"transfer-encoding"} & headers.keys():
            await self.app(scope, receive, send)
            return
        path = scope.get("path", "")
        upload = next((limit for pattern, limit in UPLOAD_BYTES.items() if pattern.fullmatch(path)), None)
        shorter = next(
            (limit for pattern, limit in SHORTER_BODY_BYTES.items() if pattern.fullmatch(path)), self.maximum_bytes
        )
        maximum_bytes = upload or LARGER_BODY_BYTES.get(path, shorter)
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > len(str(1 << 64)) or int(declared) > maximum_bytes:
            error = _too_large(maximum_bytes)
            await problem_response(scope, error.code, str(error), headers=error.headers)(scope, receive, send)
            return
        maximum_seconds = upload / UPLOAD_BYTES_PER_S if upload else self.maximum_seconds
        body = _Body(self, receive, maximum_bytes, maximum_seconds)
        is_long = b"transfer-encoding" in headers or int(declared) > UNCOUNTED_BYTES
        try:
            await self.app(scope, body.receive, _closing(body, send) if is_long else send)
        except ClientDisconnect:
            if not body.is_incomplete:
                raise
            # the client disconnected during its body: there is nothing to answer
        finally:
            self.left_bytes += body.reserved_bytes


class _Body:
    """The body of one request, read whole on the first `receive`."""

    __slots__ = (
        "_limit", "_maximum_bytes", "_maximum_seconds", "_receive", "is_incomplete", "is_requested", "reserved_bytes",
    )  # fmt: skip

    def __init__(self, limit: BodyLimit, receive: Receive, maximum_bytes: int, maximum_seconds: float) -> None:
        self._limit, self._receive = limit, receive
        self._maximum_bytes, self._maximum_seconds = maximum_bytes, maximum_seconds
        self.reserved_bytes = 0
        self.is_requested = self.is_incomplete = False

    async def receive(self) -> Message:
        """The whole body, then the later messages of the connection."""
        if self.is_requested:
            return await self._receive()
        self.is_requested = True
        try:
            async with asyncio.timeout(self._maximum_seconds):
                return {"type": "http.request", "body": await self._whole(), "more_body": False}
        except TimeoutError:
            detail = f"send the whole body within {self._maximum_seconds:.0f} seconds"
            raise ApiError("body_timeout", detail, CLOSES) from None

    async def _whole(self) -> bytes:
        """The body; ApiError once it exceeds its limit, ClientDisconnect where the client leaves."""
        body = bytearray()
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.is_incomplete = True
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self._maximum_bytes:
                raise _too_large(self._maximum_bytes)
            more_bytes = len(body) - UNCOUNTED_BYTES - self.reserved_bytes
            if more_bytes > self._limit.left_bytes:
                raise ApiError("too_many_bodies", TOO_MUCH, CLOSES | {"Retry-After": str(RETRY_SECONDS)})
            if more_bytes > 0:
                self._limit.left_bytes -= more_bytes
                self.reserved_bytes += more_bytes
            more = message.get("more_body", False)
        return bytes(body)


def _closing(body: _Body, send: Send) -> Send:
    """A `send` that closes the connection where the body was not read, so that received bytes are released."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start" and not body.is_requested:
            headers = MutableHeaders(scope=message)
            headers["Connection"] = CLOSES["Connection"]
        await send(message)

    return send_closing


def _too_large(maximum_bytes: int) -> ApiError:
    return ApiError("body_too_large", f"send at most {maximum_bytes} bytes", CLOSES)
