"""What may pages of other origins send and read? As much as any program: the origins that a setting names (CORS)."""

from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

SENT_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Traincost-Lease",
    "X-Request-Id",
    "traceparent", "tracestate",
)  # fmt: skip
"""Headers that such a page may send: all that the contract has, and those of traces."""

EXPOSED_HEADERS = (
    "Allow", "Content-Disposition", "Deprecation", "ETag", "Idempotent-Replayed", "Link", "Location", "RateLimit",
    "RateLimit-Policy", "Retry-After", "Sunset", "WWW-Authenticate", "X-Api-Version", "X-Not-Expressible",
    "X-Request-Id", "X-Unit", "X-Verdict",
)  # fmt: skip
"""Headers that such a page may read, beside those that every page may."""

REMEMBERED_SECONDS = 600
"""For how long a browser need not ask again what it may send."""


def cross_origin_guards(origins: Sequence[str]) -> list[Middleware]:
    """What tells browsers which pages may call.

    Args:
        origins: their origins; `*` among them for any

    Returns:
        the middleware; none where no page may
    """
    if not origins:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=SENT_HEADERS,
        expose_headers=EXPOSED_HEADERS,
        max_age=REMEMBERED_SECONDS,
    )
    return [cors]
