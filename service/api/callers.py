"""The caller of a request, decided before a route sees it, and what let it in."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from service.store import ApiKey, Scope
from service.store.callers import ANYBODY, Caller

CALLER = "caller"
"""Name of who asks in the state of the request."""

ADMITTED = "admitted"
"""Name of what let a request in, in its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What let a request in."""

    key: ApiKey | None = None
    """The key; None where a token did, or the service asked for neither."""
    token_end_seconds: float | None = None
    """When the token expires [second since 1970]; None where a key let it in, or nothing had to."""
    scope: Scope
    """What the request needs."""


def caller_of(request: Request) -> Caller:
    """Who sent a request.

    Args:
        request: the request, let through

    Returns:
        the caller; anybody where the service asks for no key
    """
    found: Caller = request.scope["state"].get(CALLER, ANYBODY)
    return found


async def _caller(request: Request) -> Caller:
    return caller_of(request)


Asker = Annotated[Caller, Depends(_caller)]
"""Argument of a route that reads or changes what belongs to somebody."""
