"""How much may a caller send, and how slowly? The bound holds before any parser or handler sees a byte."""

import asyncio
import re
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import ApiError, problem_response

MAXIMUM_BODY_BYTES = 1 << 20
LARGER_BODY_BYTES: Mapping[str, int] = {
    "/v1/batch": 4 << 20,
    "/v1/prices/import": 4 << 20,
    "/v1/reconciliations": 4 << 20,
    "/v1/sweeps": 4 << 20,
}
"""Longest body of the paths that take more: a thousand questions with a config.json each have some 3 MB, and a table of
as many prices as one import takes has some 2 MB."""
HANDED_IN_BYTES: Mapping[re.Pattern[str], int] = {
    re.compile(r"/v1/worker/jobs/[^/]+/finish"): 8 << 20,
    re.compile(r"/v1/worker/jobs/[^/]+/files/[^/]+"): 64 << 20,
}
"""Longest body of what workers hand in: figures of some ten thousand shapes, traces of some steps. Such a body is read
only where its route asks for it, once it is known who sends it."""
BODY_SECONDS = 30.0
"""Seconds a body may take to arrive."""
LEAST_BYTES_PER_S = 1 << 18
"""How fast what workers hand in has to arrive. Source: a choice; a slow line between a cluster and its office."""
CLOSES = {"Connection": "close"}
"""Header of what refuses a body: the rest of it is not read."""


class BodyLimit:
    """ASGI middleware that reads the whole body, up to its bound, before the application starts.

    Args:
        app: the application behind it
        maximum_bytes: longest body, except where LARGER_BODY_BYTES allows more [byte]
        maximum_seconds: longest wait for the body [second]
    """

    def __init__(
        self, app: ASGIApp, maximum_bytes: int = MAXIMUM_BODY_BYTES, maximum_seconds: float = BODY_SECONDS
    ) -> None:
        self.app = app
        self.maximum_bytes = maximum_bytes
        self.maximum_seconds = maximum_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on the request with its body, or refuse it with 413 or 408."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or not {b"content-length", b"transfer-encoding"} & headers.keys():
            await self.app(scope, receive, send)
            return
        path = scope.get("path", "")
        handed_in = next((most for form, most in HANDED_IN_BYTES.items() if form.fullmatch(path)), None)
        maximum_bytes = handed_in or LARGER_BODY_BYTES.get(path, self.maximum_bytes)
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > len(str(1 << 64)) or int(declared) > maximum_bytes:
            await _refuse(_too_large(maximum_bytes), scope, receive, send)
            return
        if handed_in:
            await self.app(scope, _read_later(receive, maximum_bytes), send)
            return
        try:
            body = await _read(receive, maximum_bytes, self.maximum_seconds)
        except ApiError as error:
            await _refuse(error, scope, receive, send)
            return
        except ClientDisconnect:
            return  # nobody is there to be answered, and half a body says nothing
        await self.app(scope, _replayed(body, receive), send)


async def _read(receive: Receive, maximum_bytes: int, maximum_seconds: float) -> bytes:
    """The whole body; ApiError as soon as it is longer than allowed, or late; ClientDisconnect where it breaks off."""
    body = bytearray()
    more = True
    try:
        async with asyncio.timeout(maximum_seconds):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                if len(body) > maximum_bytes:
                    raise _too_large(maximum_bytes)
                more = message.get("more_body", False)
    except TimeoutError:
        detail = f"send the whole body within {maximum_seconds:.0f} seconds"
        raise ApiError("body_timeout", detail, CLOSES) from None
    return bytes(body)


def _too_large(maximum_bytes: int) -> ApiError:
    return ApiError("body_too_large", f"send at most {maximum_bytes} bytes", CLOSES)


async def _refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    await problem_response(scope, error.code, str(error), headers=error.headers)(scope, receive, send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _read_later(receive: Receive, maximum_bytes: int) -> Receive:
    """A body that is read when it is first asked for, and refused then."""
    unread = [maximum_bytes]

    async def read() -> Message:
        if not unread:
            return await receive()
        body = await _read(receive, unread.pop(), maximum_bytes / LEAST_BYTES_PER_S)
        return {"type": "http.request", "body": body, "more_body": False}

    return read
