"""Request context: facts about a request beside its question.

Within /v1 no operation ends before its sunset, which is at least two years after its successor exists.
"""

import re
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from fastapi import Request

from service.api.access.credentials import IN_QUERY
from service.api.openapi import Schema
from service.logs import MASK

UNMATCHED = "none"
"""Stands for the route of a request that no route takes, or that is refused before one is looked for."""

CONTEXT = "seen"
"""Name of it in the state of a request."""

RawHeader = tuple[bytes, bytes]


@dataclass(slots=True)
class RequestContext:
    """What is known of one request so far."""

    request_id: str
    """Its caller's own id, or one that was made for it."""
    route: str = UNMATCHED
    """Template of the path that its route takes, in which names stand for what callers send."""
    status: int | None = None
    """Status of its answer; None before that begins."""
    headers: MutableSequence[RawHeader] = field(default_factory=list)
    """What its answer carries beside what its route says."""
    limit_headers: Sequence[RawHeader] = ()
    """What its answer tells of what its caller may still ask."""


def context_of(request: Request) -> RequestContext:
    """What is known of a request."""
    state: dict[str, Any] = request.scope["state"]
    found: RequestContext = state[CONTEXT]
    return found


_NAMES = "|".join("".join(f"(?:{letter}|%{ord(letter):x})" for letter in name) for name in IN_QUERY)

SECRETS = re.compile(
    rf"(?<=/v1/adapters/kubernetes/admission/)[^?]+|(?<=[?&])((?:{_NAMES})=)[^&]*|\btck_[\w%.~-]+", re.IGNORECASE
)
"""The token of the webhook's address, credentials in a query however their names are spelled, and any key at all."""


def masked(text: str) -> str:
    """A text without credentials.

    >>> masked("/v1/cell/fits?key=tck_0.1&tp=2")
    '/v1/cell/fits?key=***&tp=2'
    """
    return SECRETS.sub(lambda found: (found[1] or "") + MASK, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """An operation that is about to go."""

    since: datetime
    """From when on it is deprecated, in UTC."""
    sunset: datetime
    """When it goes, in UTC."""
    successor: str
    """Path of what does the same."""


DEPRECATED: Mapping[str, Deprecation] = {}
"""By the operation's id; none is, as yet."""


def deprecation_headers(operation_id: str | None) -> tuple[RawHeader, ...]:
    """What an answer says of its operation's end.

    Source: RFC 9745 (Deprecation), RFC 8594 (Sunset), RFC 5829 (successor-version).
    """
    found = DEPRECATED.get(operation_id) if operation_id is not None else None
    if found is None:
        return ()
    return (
        (b"deprecation", f"@{int(found.since.timestamp())}".encode()),
        (b"sunset", format_datetime(found.sunset.astimezone(UTC), usegmt=True).encode()),
        (b"link", f'<{found.successor}>; rel="successor-version"'.encode()),
    )


def deprecation_of(operation_id: str) -> Schema:
    """What the contract says of an operation's end."""
    return {"deprecated": True} if operation_id in DEPRECATED else {}
