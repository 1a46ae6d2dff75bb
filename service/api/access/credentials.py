"""Credentials of a request: a key in a header, or in the query for spreadsheets, which send no headers.

The middleware removes them from the query first, so they appear in no ETag, question or error.
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
"""Paths that accept a credential in the query, by parameter."""

PRESENTED = "presented"
"""Name of the credentials in the request state."""


@dataclass(frozen=True, slots=True)
class Presented:
    """Credentials of a request, not verified yet."""

    bearer: str | None = None
    """The bearer credential of the header; None without one."""
    key: str | None = None
    """The key in the query; None without one, empty for several."""
    share: str | None = None
    """The signature of a share link; None without one, empty for several."""


NOTHING = Presented()
"""No credentials."""


def presented_by(scope: Scope) -> Presented:
    """The credentials of a request."""
    presented: Presented = scope["state"].get(PRESENTED, NOTHING)
    return presented


class Credentials:
    """ASGI middleware that removes credentials from a request, and keeps its answer out of shared caches."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request with its credentials in its state."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        query, in_query = _split(scope)
        presented = Presented(_bearer(scope), **in_query)
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
    """The query without credentials, and these by parameter."""
    query: bytes = scope["query_string"]
    if not query or scope["method"] not in {"GET", "HEAD"}:
        return query, {}
    credentials: dict[str, str | None] = {}
    for name, paths in IN_QUERY.items():
        if paths.fullmatch(scope["path"]):
            query, credentials[name] = _without_parameter(query, name)
    return query, credentials


def _without_parameter(query: bytes, name: str) -> tuple[bytes, str | None]:
    """A query without a parameter, and the parameter's value."""
    others, values = [], []
    for part in query.split(b"&"):
        label, _, value = part.decode("latin-1").partition("=")
        if unquote_plus(label) == name:
            values.append(unquote_plus(value))
        else:
            others.append(part)
    return b"&".join(others), (values[0] if len(values) == 1 else "") if values else None


def _keep_private(headers: MutableHeaders) -> None:
    directives = headers.get("cache-control")
    if directives is None:
        headers["Cache-Control"] = "private"
    elif "private" not in directives and "no-store" not in directives:
        headers["Cache-Control"] = f"private, {directives}"
