"""Size and time limits of request bodies, and memory that all bodies share.

No body is read before the caller is authenticated, so that unauthenticated callers cannot fill memory.
"""

import asyncio
import re
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import ApiError, problem_response

MOST_RESERVED_BYTES = 256 << 20
"""Most that bodies hold together. Source: a choice; four of the longest that anybody may send."""
UNCOUNTED_BYTES = 64 << 10
"""What of each body is not counted: the number of connections bounds it, and the server reads ahead as much anyway."""
RETRY_SECONDS = 1
"""When to send a body again that was one too many."""

TOO_MUCH = "the service holds as much of other requests' bodies as it may; send this one again in a moment"


class BodyMemory:
    """What bodies may still take up together."""

    def __init__(self, most_bytes: int) -> None:
        self.left_bytes = most_bytes


class BodyReservation:
    """What one body takes up."""

    __slots__ = ("_held", "_own_bytes")

    def __init__(self, held: BodyMemory) -> None:
        self._held = held
        self._own_bytes = 0

    def grow(self, length: int) -> None:
        """Hold more of a body."""
        more = length - UNCOUNTED_BYTES - self._own_bytes
        if more <= 0:
            return
        if more > self._held.left_bytes:
            raise ApiError("too_many_bodies", TOO_MUCH, {"Connection": "close", "Retry-After": str(RETRY_SECONDS)})
        self._held.left_bytes -= more
        self._own_bytes += more

    def release(self) -> None:
        """Hold nothing any more."""
        self._held.left_bytes += self._own_bytes
        self._own_bytes = 0


MAXIMUM_BODY_BYTES = 1 << 20
LARGER_BODY_BYTES: Mapping[str, int] = {
    "/v1/batch": 4 << 20,
    "/v1/prices/import": 4 << 20,
    "/v1/reconciliations": 4 << 20,
    "/v1/sweeps": 4 << 20,
}
"""Longest body of the paths that take more: a thousand questions with a config.json each have some 3 MB, and a table of
as many prices as one import takes has some 2 MB."""
SHORTER_BODY_BYTES: Mapping[re.Pattern[str], int] = {
    re.compile(r"/v1/worker/claim"): 32 << 10,
    re.compile(r"/v1/worker/jobs/[^/]+/heartbeat"): 16 << 10,
}
"""Longest body of what workers send often. Source: a choice; a claim of a node with eight GPUs has some 300 bytes, a
heartbeat that tells of eight probes 2 KB."""
UPLOAD_BYTES: Mapping[re.Pattern[str], int] = {
    re.compile(r"/v1/worker/jobs/[^/]+/finish"): 8 << 20,
    re.compile(r"/v1/worker/jobs/[^/]+/files/[^/]+"): 64 << 20,
}
"""Longest body of what workers hand in: figures of some ten thousand shapes, traces of some steps. Such a body is read
only where its route asks for it."""
BODY_SECONDS = 30.0
"""Seconds a body may take to arrive."""
UPLOAD_BYTES_PER_S = 1 << 18
"""How fast what workers hand in has to arrive. Source: a choice; a slow line between a cluster and its office."""
CLOSES = {"Connection": "close"}
"""Header of what refuses a body: the rest of it is not read."""


class BodyLimit:
    """ASGI middleware that bounds the body, and reads it when it is first asked for: once it is known who sends it.

    What is asked for comes whole, or is refused with ApiError: too long, too late, or one too many to be held.
    """

    def __init__(
        self,
        app: ASGIApp,
        maximum_bytes: int = MAXIMUM_BODY_BYTES,
        maximum_seconds: float = BODY_SECONDS,
        most_held_bytes: int = MOST_RESERVED_BYTES,
    ) -> None:
        self.app = app
        self.maximum_bytes = maximum_bytes
        self.maximum_seconds = maximum_seconds
        self.held = BodyMemory(most_held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on the request with a body that is still to be read, or refuse the length that it declares with 413."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or not {b"content-length", b"transfer-encoding"} & headers.keys():
            await self.app(scope, receive, send)
            return
        path = scope.get("path", "")
        handed_in = next((most for form, most in UPLOAD_BYTES.items() if form.fullmatch(path)), None)
        shorter = next((most for form, most in SHORTER_BODY_BYTES.items() if form.fullmatch(path)), self.maximum_bytes)
        maximum_bytes = handed_in or LARGER_BODY_BYTES.get(path, shorter)
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > len(str(1 << 64)) or int(declared) > maximum_bytes:
            error = _too_large(maximum_bytes)
            await problem_response(scope, error.code, str(error), headers=error.headers)(scope, receive, send)
            return
        maximum_seconds = handed_in / UPLOAD_BYTES_PER_S if handed_in else self.maximum_seconds
        body = _Body(receive, maximum_bytes, maximum_seconds, BodyReservation(self.held))
        is_long = b"transfer-encoding" in headers or int(declared) > UNCOUNTED_BYTES
        try:
            await self.app(scope, body.receive, _closing(body, send) if is_long else send)
        except ClientDisconnect:
            if not body.is_broken_off:
                raise
            # nobody is there to be answered, and half a body says nothing
        finally:
            body.share.release()


class _Body:
    """The body of one request, read as a whole when it is first asked for."""

    __slots__ = ("_maximum_bytes", "_maximum_seconds", "_receive", "is_asked_for", "is_broken_off", "share")

    def __init__(self, receive: Receive, maximum_bytes: int, maximum_seconds: float, share: BodyReservation) -> None:
        self._receive = receive
        self._maximum_bytes, self._maximum_seconds = maximum_bytes, maximum_seconds
        self.share = share
        self.is_asked_for = self.is_broken_off = False

    async def receive(self) -> Message:
        """The whole body; behind it what becomes of the connection."""
        if self.is_asked_for:
            return await self._receive()
        self.is_asked_for = True
        try:
            async with asyncio.timeout(self._maximum_seconds):
                return {"type": "http.request", "body": await self._whole(), "more_body": False}
        except TimeoutError:
            detail = f"send the whole body within {self._maximum_seconds:.0f} seconds"
            raise ApiError("body_timeout", detail, CLOSES) from None

    async def _whole(self) -> bytes:
        """The body; ApiError as soon as it is longer than allowed; ClientDisconnect where it breaks off."""
        body = bytearray()
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.is_broken_off = True
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self._maximum_bytes:
                raise _too_large(self._maximum_bytes)
            self.share.grow(len(body))
            more = message.get("more_body", False)
        return bytes(body)


def _closing(body: _Body, send: Send) -> Send:
    """Sends an answer that ends the connection where the body is not read: what came of it is let go of then."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start" and not body.is_asked_for:
            headers = MutableHeaders(scope=message)
            headers["Connection"] = CLOSES["Connection"]
        await send(message)

    return send_closing


def _too_large(maximum_bytes: int) -> ApiError:
    return ApiError("body_too_large", f"send at most {maximum_bytes} bytes", CLOSES)
