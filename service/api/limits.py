"""How much may a caller send, and how slowly? The bound holds before any parser or handler sees a byte."""

import asyncio
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import problem_response

MAXIMUM_BODY_BYTES = 1 << 20
LARGER_BODY_BYTES: Mapping[str, int] = {"/v1/batch": 4 << 20, "/v1/prices/import": 4 << 20}
"""Longest body of the paths that take more: a thousand questions with a config.json each have some 3 MB, and a table of
as many prices as one import takes has some 2 MB."""
BODY_SECONDS = 30.0
"""Seconds a body may take to arrive."""


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
        maximum_bytes = LARGER_BODY_BYTES.get(scope.get("path", ""), self.maximum_bytes)
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > len(str(1 << 64)) or int(declared) > maximum_bytes:
            await _refuse_large(maximum_bytes, scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.maximum_seconds):
                body = await _read(receive, maximum_bytes)
        except TimeoutError:
            detail = f"send the whole body within {self.maximum_seconds:.0f} seconds"
            await problem_response(scope, "body_timeout", detail, headers={"Connection": "close"})(scope, receive, send)
            return
        if body is None:
            await _refuse_large(maximum_bytes, scope, receive, send)
            return
        await self.app(scope, _replayed(body, receive), send)


async def _read(receive: Receive, maximum_bytes: int) -> bytes | None:
    """The whole body, or None as soon as it is longer than allowed."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > maximum_bytes:
            return None
        more = message.get("more_body", False)
    return bytes(body)


async def _refuse_large(maximum_bytes: int, scope: Scope, receive: Receive, send: Send) -> None:
    detail = f"send at most {maximum_bytes} bytes"
    await problem_response(scope, "body_too_large", detail, headers={"Connection": "close"})(scope, receive, send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
