"""HEAD, ETags and 304, If-Match, and Idempotency-Key."""

import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.responses import Response
from pydantic_core import to_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.access.authorization import caller_of
from service.api.errors import ApiError, WrongParameter
from service.api.inputs import database_of
from service.errors import Problem
from service.store.requests import RequestKey, StoredResponse, once
from service.tabular.lists import IsCurrent, Record
from service.validation.reading import digest_of, to_bytes

HEAD = "traincost.head"


def is_head(request: Request) -> bool:
    return bool(request.scope.get(HEAD))


def matches_etag(request: Request, etag: str) -> bool:
    """Whether If-None-Match names an ETag, so that the answer need not be computed."""
    return _lists_etag(request.headers.get("if-none-match", ""), etag)


def etag_of(content: bytes) -> str:
    return f'"{digest_of(content)}"'


class Conditional:
    """ASGI middleware that answers HEAD and If-None-Match for every GET route."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a GET or HEAD with its validators; pass on other methods unchanged."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            await self.app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        known = Headers(scope=scope).get("if-none-match", "")
        sender = _Sender(send, known, head=head)
        await self.app({**scope, "method": "GET", HEAD: head}, receive, sender)


class _Sender:
    """Delays the start of a response until its first bytes, from which the ETag follows."""

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
        if is_right and "etag" in headers and _lists_etag(self.known, headers["etag"]):
            start = {**start, "status": 304}
            del headers["content-length"], headers["content-type"]
            message = {**message, "body": b"", "more_body": False}
        await self.send({**start, "headers": headers.raw})
        return message


def _lists_etag(known: str, etag: str) -> bool:
    return known.strip() == "*" or etag in {tag.strip().removeprefix("W/") for tag in known.split(",")}


HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
"""Header of a stored answer that is sent again."""

KEY = re.compile(r"[\x21-\x7e]{1,255}")
"""Form of a key: visible ASCII."""

MALFORMED = Problem(
    field=HEADER,
    code="malformed",
    message="the key is not 1 to 255 visible ASCII characters, or is given more than once",
    fix="send a random one, such as a UUID, and the same again with the same request",
)

REUSED = (
    "this Idempotency-Key came with another request before, so it is unclear which of both is meant; "
    "send a new key with a new request"
)


def idempotent(write: Callable[..., Response]) -> Callable[..., Response]:
    """A creating route that creates once per Idempotency-Key."""

    def route(request: Request, **arguments: Any) -> Response:
        sent = request.headers.getlist(HEADER)
        if not sent:
            return write(request=request, **arguments)
        if len(sent) > 1 or KEY.fullmatch(sent[0]) is None:
            raise WrongParameter(MALFORMED)
        key = RequestKey(caller=caller_of(request).owner, operation=request.scope["route"].unique_id, key=sent[0])
        digest = digest_of(to_json(_ordered(arguments["body"])) + request.scope["query_string"])
        engine = database_of(request)
        answer, is_repeat = once(engine, key, digest, lambda: _stored(write(request=request, **arguments), digest))
        if answer.request_digest != digest:
            raise ApiError("key_reused", REUSED)
        headers = {**answer.headers, **({REPLAYED: "true"} if is_repeat else {})}
        return Response(answer.content, status_code=answer.status, headers=headers)

    route.__name__, route.__doc__ = write.__name__, write.__doc__
    vars(route)["__signature__"] = signature(write)
    return route


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _ordered(value[name]) for name in sorted(value)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def _stored(response: Response, digest: str) -> StoredResponse:
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return StoredResponse(
        request_digest=digest, status=response.status_code, headers=headers, content=bytes(response.body)
    )


NEEDED = "send If-Match with the ETag that GET of the row gives, so that no other change is undone (* for any)"


def _read_if_match(request: Request) -> IsCurrent:
    values = request.headers.getlist("if-match")
    if not values:
        raise ApiError("precondition_required", NEEDED)
    tags = {tag.strip() for value in values for tag in value.split(",")}
    return lambda record: tags == {"*"} or row_etag(record) in tags


def _if_match(
    is_current: Annotated[IsCurrent, Depends(_read_if_match)],  # raises before FastAPI asks for the header
    sent: Annotated[  # noqa: ARG001 - describes the header
        str,
        Header(
            alias="If-Match",
            description="ETag of the row as GET gives it, or * for any: a change that starts from an older version is "
            "412.",
            examples=["*"],
        ),
    ],
) -> IsCurrent:
    return is_current


IfMatch = Annotated[IsCurrent, Depends(_if_match)]
"""Argument of a route that changes a row: whether If-Match names its current version."""


def row_etag(record: Record) -> str:
    """The ETag of one row, from its JSON with its revision."""
    return etag_of(to_bytes(record))
