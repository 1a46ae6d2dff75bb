"""Does the caller hold this answer already? HEAD, strong ETags and 304 for every GET.

HEAD runs as GET and loses its body; its answer ends with its first bytes, so that a stream sees its caller gone. A
handler that wants a cheaper HEAD asks `is_head(request)`.
"""

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.validation.serialization import digest_of

HEAD = "traincost.head"


def is_head(request: Request) -> bool:
    """Whether the caller asked for the headers only.

    Args:
        request: the request

    Returns:
        true for HEAD
    """
    return bool(request.scope.get(HEAD))


def is_held(request: Request, etag: str) -> bool:
    """Whether the caller holds an answer already, so that it need not be made.

    Args:
        request: the request
        etag: the strong ETag of the answer, in its quotes

    Returns:
        true where If-None-Match names it, or any
    """
    return _names(request.headers.get("if-none-match", ""), etag)


def etag_of(content: bytes) -> str:
    """The strong ETag of a representation.

    Args:
        content: its bytes

    Returns:
        the ETag, in its quotes
    """
    return f'"{digest_of(content)}"'


class Conditional:
    """ASGI middleware that answers HEAD and If-None-Match for every GET route.

    Args:
        app: the application behind it
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a GET or HEAD with its validators; hand on anything else untouched."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            await self.app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        known = Headers(scope=scope).get("if-none-match", "")
        sender = _Sender(send, known, head=head)
        await self.app({**scope, "method": "GET", HEAD: head}, receive, sender)


class _Sender:
    """Holds the start of a response back until its first bytes tell the ETag."""

    def __init__(self, send: Send, known: str, *, head: bool) -> None:
        self.send = send
        self.known = known
        self.head = head
        self.start: Message | None = None
        self.has_ended = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            return
        if self.has_ended:
            return
        if self.start is not None:
            start, self.start = self.start, None
            message = await self._begin(start, message)
        if self.head:
            message = {**message, "body": b"", "more_body": False}
        self.has_ended = not message.get("more_body", False)
        await self.send(message)

    async def _begin(self, start: Message, message: Message) -> Message:
        headers = MutableHeaders(scope=start)
        is_right = start["status"] == 200
        if is_right and "etag" not in headers and not message.get("more_body", False):
            headers["ETag"] = etag_of(message.get("body", b""))
        if is_right and "etag" in headers and _names(self.known, headers["etag"]):
            start = {**start, "status": 304}
            del headers["content-length"], headers["content-type"]
            message = {**message, "body": b"", "more_body": False}
        await self.send({**start, "headers": headers.raw})
        return message


def _names(known: str, etag: str) -> bool:
    """Whether an If-None-Match names an ETag."""
    return known.strip() == "*" or etag in {tag.strip().removeprefix("W/") for tag in known.split(",")}
