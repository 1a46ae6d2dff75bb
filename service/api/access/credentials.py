"""Credentials of a request: a bearer key or token, a key or a signed share link in the query, and the signatures."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest, digest
from urllib.parse import unquote_plus

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import KeyRing, read_share_link

IN_QUERY: Mapping[str, re.Pattern[str]] = {
    "key": re.compile(r"/v1/cell/.+|/v1/scenarios/[^/]+\.(xlsx|ods|html)"),
    "share": re.compile(r"/v1/scenarios/[^/]+"),
}
"""Paths that accept a credential in the query, by parameter."""

PRESENTED = "presented"


@dataclass(frozen=True, slots=True)
class Presented:
    """Credentials of a request, not verified yet."""

    bearer: str | None = None
    key: str | None = None
    """The key in the query; None without one, empty for several."""
    share: str | None = None
    """The signature of a share link; None without one, empty for several."""


NO_CREDENTIALS = Presented()


def presented_by(scope: Scope) -> Presented:
    presented: Presented = scope["state"].get(PRESENTED, NO_CREDENTIALS)
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
        if presented == NO_CREDENTIALS:
            await self.app(scope, receive, send)
            return

        async def send_private(message: Message) -> None:
            if message["type"] == "http.response.start":
                _keep_private(MutableHeaders(scope=message))
            await send(message)

        state = {**scope["state"], PRESENTED: presented}
        await self.app({**scope, "query_string": query, "state": state}, receive, send_private)


def _bearer(scope: Scope) -> str | None:
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
            others, values = [], []
            for part in query.split(b"&"):
                label, _, value = part.decode("latin-1").partition("=")
                if unquote_plus(label) == name:
                    values.append(unquote_plus(value))
                else:
                    others.append(part)
            query, credentials[name] = b"&".join(others), (values[0] if len(values) == 1 else "") if values else None
    return query, credentials


def _keep_private(headers: MutableHeaders) -> None:
    directives = headers.get("cache-control")
    if directives is None:
        headers["Cache-Control"] = "private"
    elif "private" not in directives and "no-store" not in directives:
        headers["Cache-Control"] = f"private, {directives}"


SCHEME = "2"
UNLISTED_SCHEME = "1"
"""Scheme of links without an id."""
PARAMETER = "share"
LONGEST_END = 11
"""Digits of an end in seconds: enough until the year 5138, and few enough for int()."""


def link_token(secret: bytes, link_id: str, scenario_id: str, end: int) -> str:
    """Token of a share link: scheme, id, end [second since 1970] and signature."""
    return f"{SCHEME}.{link_id}.{end}.{_signature(secret, f'{SCHEME} {scenario_id} {link_id} {end}')}"


def unlisted_link_token(secret: bytes, scenario_id: str, end: int) -> str:
    """Token of a link without an id, from earlier versions: scheme, end [second since 1970] and signature."""
    return f"{UNLISTED_SCHEME}.{end}.{_signature(secret, f'{UNLISTED_SCHEME} {scenario_id} {end}')}"


def _signature(secret: bytes, text: str) -> str:
    return urlsafe_b64encode(digest(secret, text.encode(), sha256)).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class VerifiedLink:
    """A share link with a valid signature."""

    id: str | None
    """Its id; None for a link of an earlier version."""


def verify_link(keys: KeyRing, scenario_id: str, token: str, moment: datetime) -> VerifiedLink | str:
    """Check the signature and the end of a link; return the link, or the reason against it."""
    scheme, _, rest = token.partition(".")
    link_id: str | None = None
    if scheme == SCHEME:
        link_id, _, rest = rest.partition(".")
    text, _, _ = rest.partition(".")
    end = int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_END else 0
    secret = keys.unlisted_secret if link_id is None else keys.signing_secret
    genuine = unlisted_link_token(secret or b"", scenario_id, end)
    if link_id is not None:
        genuine = link_token(secret or b"", link_id, scenario_id, end)
    if secret is None or not compare_digest(genuine.encode(errors="replace"), token.encode(errors="replace")):
        return "this service did not sign the link for this scenario; check that no part of the link is missing"
    if end <= moment.timestamp():
        return f"the link ended at {utc_text(datetime.fromtimestamp(end, UTC))}; ask for another"
    return VerifiedLink(link_id)


def revocation_reason(engine: Engine, link_id: str) -> str | None:
    """Message for a link that was revoked or removed; None for a valid one."""
    link = read_share_link(engine, link_id)
    if link is None:
        return "the link no longer exists; ask for another"
    return None if link.revoked_at is None else "the link was revoked; ask for another"
