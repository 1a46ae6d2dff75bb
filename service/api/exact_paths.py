"""Which paths are spelled out? /v1/models/import is the name of no model, so to GET it is 405, not 404."""

import re
from collections.abc import Iterable

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Closed(Route):
    """A path that is spelled out, in whole or in part, with the methods that only wider paths take."""


def closed_routes(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """What has to stand before all routes, so that no parameter takes the place of a path that is spelled out.

    Args:
        routes: every route of the application

    Returns:
        a route for each such path that a path with a parameter would stand for too
    """
    known = [route for route in routes if isinstance(route, APIRoute)]
    taken: dict[str, set[str]] = {}
    for route in known:
        taken.setdefault(route.path, set()).update(route.methods or ())
    example = {path: re.sub(r"\{[^}]*\}", "x", path) for path in taken}
    matched = {route.path: {path for path in taken if route.path_regex.match(example[path])} for route in known}
    return [
        Closed(path, _refuse, methods=sorted({*METHODS} - methods))
        for path, methods in taken.items()
        if any(path in matched[wider] and wider not in matched[path] and not taken[wider] <= methods for wider in taken)
    ]


def does_take(routes: Iterable[BaseRoute], scope: dict[str, object]) -> bool:
    """Whether a path takes a method.

    Args:
        routes: the routes of the application, in their order
        scope: ASGI scope with path and method

    Returns:
        true where the first route that would answer is open
    """
    found = next((route for route in routes if route.matches(scope)[0] == Match.FULL), None)
    return found is not None and not isinstance(found, Closed)


async def _refuse(_request: Request) -> None:
    raise HTTPException(405)
