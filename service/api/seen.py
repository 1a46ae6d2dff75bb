"""What is known of a request beside what it asks? Whoever finds something out notes it here."""

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

UNMATCHED = "none"
"""Stands for the route of a request that no route takes, or that is refused before one is looked for."""

SEEN = "seen"
"""Name of it in the state of a request."""

RawHeader = tuple[bytes, bytes]


@dataclass(slots=True)
class Seen:
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


def seen_of(request: Request) -> Seen:
    """What is known of a request.

    Args:
        request: the request, behind the envelope

    Returns:
        the same object at every call, to be added to
    """
    state: dict[str, Any] = request.scope["state"]
    found: Seen = state[SEEN]
    return found
