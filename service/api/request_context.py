"""Request context: id, route, status and headers of a request."""

import re
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime

from fastapi import Request

from service.api.access.credentials import IN_QUERY
from service.api.openapi import Schema
from service.logs import MASK

UNMATCHED = "none"
"""Route label of a request that matches no route, or that is rejected before routing."""

CONTEXT = "context"

RawHeader = tuple[bytes, bytes]


@dataclass(slots=True)
class RequestContext:
    """Facts about one request, filled in as it runs."""

    request_id: str
    """The caller's request id, or a generated one."""
    route: str = UNMATCHED
    status: int | None = None
    """Status of its answer; None before the answer begins."""
    headers: MutableSequence[RawHeader] = field(default_factory=list)
    """Headers of its answer beside those of its route."""
    limit_headers: Sequence[RawHeader] = ()


def context_of(request: Request) -> RequestContext:
    context: RequestContext = request.scope["state"][CONTEXT]
    return context


_NAMES = "|".join("".join(f"(?:{letter}|%{ord(letter):x})" for letter in name) for name in IN_QUERY)

SECRETS = re.compile(
    rf"(?<=/v1/adapters/kubernetes/admission/)[^?]+|(?<=[?&])((?:{_NAMES})=)[^&]*|\btck_[\w%.~-]+", re.IGNORECASE
)
"""The token in the webhook's path, credentials in a query in any spelling of their names, and any key."""


def masked(text: str) -> str:
    """A text without credentials.

    >>> masked("/v1/cell/fits?key=tck_0.1&tp=2")
    '/v1/cell/fits?key=***&tp=2'
    """
    return SECRETS.sub(lambda match: (match[1] or "") + MASK, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    since: datetime
    """Start of the deprecation, in UTC."""
    sunset: datetime
    """Removal of the operation, in UTC."""
    successor: str
    """Path of its replacement."""


DEPRECATED: Mapping[str, Deprecation] = {}
"""Deprecated operations by id; none yet."""


def deprecation_headers(operation_id: str) -> tuple[RawHeader, ...]:
    """Headers of a deprecated operation. Source: RFC 9745, RFC 8594 and RFC 5829 (successor-version)."""
    deprecation = DEPRECATED.get(operation_id)
    if deprecation is None:
        return ()
    return (
        (b"deprecation", f"@{int(deprecation.since.timestamp())}".encode()),
        (b"sunset", format_datetime(deprecation.sunset.astimezone(UTC), usegmt=True).encode()),
        (b"link", f'<{deprecation.successor}>; rel="successor-version"'.encode()),
    )


def deprecation_of(operation_id: str) -> Schema:
    """The deprecation of an operation in OpenAPI."""
    return {"deprecated": True} if operation_id in DEPRECATED else {}
