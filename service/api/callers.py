"""Who sent this request? Decided before a route sees it; the routes hand it on to whatever reads or changes objects."""

from typing import Annotated

from fastapi import Depends, Request

from service.workflows.callers import ANYBODY, Caller

CALLER = "caller"
"""Name of who asks in the state of the request."""


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
