"""Cross-site requests: rejected where the service has no keys; CORS where a setting names origins."""

from collections.abc import Sequence
from typing import Any

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from service.api.access.authorization import AccessDenied
from service.api.limits.rate_limits import is_loopback
from service.settings import Settings

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

OWN_SITES = frozenset({b"same-origin", b"none"})
"""Values of Sec-Fetch-Site of requests from the service's own pages, or typed by the user."""

CROSS_SITE = (
    "a page of another origin sent this, and the service asks for no key that would tell who wants it; "
    "name the origin in TRAINCOST_CORS_ORIGINS, or make a key with traincost keys create"
)
UNKNOWN_NAME = (
    "without keys, and for this machine alone, the service answers under the names of this machine, such as localhost; "
    "name others in TRAINCOST_HOST_NAMES, or make a key with traincost keys create"
)


class CrossSiteRequest(AccessDenied):
    """A request from a page of another origin: 403; or for an unknown host name: 421."""


class CrossSiteRequests:
    """Rejects requests from pages of other sites."""

    def __init__(self, settings: Settings) -> None:
        self._allows_any = "*" in settings.cors_origins
        self._origins = frozenset(origin.encode() for origin in settings.cors_origins)
        is_local = is_loopback(settings.host) or not settings.insecure
        names = (*LOCAL_NAMES, settings.host, *settings.host_names) if is_local else ()
        self._names = frozenset((f"[{name}]" if ":" in name else name).lower().encode() for name in names)

    def refuse(self, scope: Any) -> None:
        """Raise for a request from a page of another site, or for an unknown host name."""
        host = origin = site = b""
        for header, value in scope["headers"]:
            if header == b"host":
                host = value.lower()
            elif header == b"origin":
                origin = value
            elif header == b"sec-fetch-site":
                site = value
        name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
        if self._names and name not in self._names:
            raise CrossSiteRequest("unknown_host", UNKNOWN_NAME)
        if scope["method"] not in SAFE_METHODS and (origin or site) and not self._may_change(origin, site, host):
            raise CrossSiteRequest("foreign_page", CROSS_SITE)

    def _may_change(self, origin: bytes, site: bytes, host: bytes) -> bool:
        if self._allows_any or origin in self._origins:
            return True
        return site in OWN_SITES if site else origin.partition(b"://")[2] == host


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

SENT_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Traincost-Lease",
    "X-Request-Id",
    "traceparent", "tracestate",
)  # fmt: skip
"""Headers that a page of these origins may send: those of the contract, and those of traces."""

EXPOSED_HEADERS = (
    "Allow", "Content-Disposition", "Deprecation", "ETag", "Idempotent-Replayed", "Link", "Location", "RateLimit",
    "RateLimit-Policy", "Retry-After", "Sunset", "WWW-Authenticate", "X-Api-Version", "X-Not-Expressible",
    "X-Request-Id", "X-Unit", "X-Verdict",
)  # fmt: skip
"""Headers that a page of these origins may read, beside the CORS-safelisted ones."""

PREFLIGHT_CACHE_SECONDS = 600
"""Time for which a browser caches a preflight answer."""


def cors_middleware(origins: Sequence[str]) -> list[Middleware]:
    if not origins:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=SENT_HEADERS,
        expose_headers=EXPOSED_HEADERS,
        max_age=PREFLIGHT_CACHE_SECONDS,
    )
    return [cors]
