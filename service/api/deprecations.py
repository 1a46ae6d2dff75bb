"""Which operations are about to go? One table: answers say so in their headers, and the contract marks them.

Within /v1 nothing is taken away before its sunset, which is at least two years after its successor is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

from service.api.json_schema import Schema
from service.api.seen import RawHeader


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

    Args:
        operation_id: the operation; None for a page

    Returns:
        headers; none where it stays
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
    """What the contract says of an operation's end.

    Args:
        operation_id: the operation

    Returns:
        parts of an OpenAPI operation; none where it stays
    """
    return {"deprecated": True} if operation_id in DEPRECATED else {}
