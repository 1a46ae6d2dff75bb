"""Credentials of a request: a key in a header, or in the query where a sheet cannot send headers.

It is taken out of the query before anything else reads it: so it stands in no ETag, no question and no error.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_plus

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

IN_QUERY: Mapping[str, re.Pattern[str]] = {
    "key": re.compile(r"/v1/cell/.+|/v1/scenarios/[^/]+\.(xlsx|ods)"),
    "share": re.compile(r"/v1/scenarios/[^/]+"),
}
"""By the name of a query parameter, the paths at which a credential may stand in it."""

PRESENTED = "presented"
"""Name of what a caller sent in the state of the request."""


@dataclass(frozen=True, slots=True)
class Presented:
    """What a caller sends to be let in, nothing of it judged yet."""

    bearer: str | None = None
    """The key in the header; None where there is none."""
    key: str | None = None
    """The key in the query; None where there is none, empty where there are several."""
    share: str | None = None
    """The signature in a link; None where there is none, empty where there are several."""


NOTHING = Presented()
"""What an anonymous caller sends."""


def presented_by(scope: Scope) -> Presented:
    """What the caller of a request sent to be let in."""
    found: Presented = scope["state"].get(PRESENTED, NOTHING)
    return found


class Credentials:
    """ASGI middleware that takes credentials out of a request, and keeps answers to them out of shared caches."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request with what was presented in its state."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        query, taken = _split(scope)
        presented = Presented(_bearer(scope), **taken)
        if presented == NOTHING:
            await self.app(scope, receive, send)
            return

        async def send_private(message: Message) -> None:
            if message["type"] == "http.response.start":
                _keep_private(MutableHeaders(scope=message))
            await send(message)

        state = {**scope["state"], PRESENTED: presented}
        await self.app({**scope, "query_string": query, "state": state}, receive, send_private)


def _bearer(scope: Scope) -> str | None:
    """The token of the Authorization header of RFC 6750."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
    return None


def _split(scope: Scope) -> tuple[bytes, dict[str, str | None]]:
    """The query without credentials, and these by the parameter that held each."""
    query: bytes = scope["query_string"]
    if not query or scope["method"] not in {"GET", "HEAD"}:
        return query, {}
    taken: dict[str, str | None] = {}
    for name, paths in IN_QUERY.items():
        if paths.fullmatch(scope["path"]):
            query, taken[name] = _without_parameter(query, name)
    return query, taken


def _without_parameter(query: bytes, name: str) -> tuple[bytes, str | None]:
    """A query without a parameter, and the value that this had."""
    kept, values = [], []
    for part in query.split(b"&"):
        label, _, value = part.decode("latin-1").partition("=")
        if unquote_plus(label) == name:
            values.append(unquote_plus(value))
        else:
            kept.append(part)
    return b"&".join(kept), (values[0] if len(values) == 1 else "") if values else None


def _keep_private(headers: MutableHeaders) -> None:
    said = headers.get("cache-control")
    if said is None:
        headers["Cache-Control"] = "private"
    elif "private" not in said and "no-store" not in said:
        headers["Cache-Control"] = f"private, {said}"
