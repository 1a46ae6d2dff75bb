"""The catalogue and the database that a request uses."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import caller_of
from service.api.queries import REV, one_of
from service.catalogue import Catalogue
from service.errors import Unreachable
from service.store import Engine
from service.store.history import History


async def catalogue_of(request: Request) -> Catalogue:
    """The shared rows of the catalogue and the caller's own, at the revision that the request names."""
    revision, caller = one_of(request, REV), caller_of(request)
    history: History = request.app.state.history
    if revision is None:
        view = history.holdings.view_if_made(caller.owner)
        return view.viewed_by(caller.owner) if view else await run_in_threadpool(history.view, caller.owner)
    cached = history.cached(revision, caller.owner)
    return cached if cached is not None else await run_in_threadpool(catalogue_at(request), revision)


def view_of(request: Request) -> Catalogue:
    """The caller's current catalogue, for routes on threads."""
    history: History = request.app.state.history
    return history.view(caller_of(request).owner)


def catalogue_at(request: Request) -> Callable[[str], Catalogue]:
    """A function that returns the catalogue of a revision, as the caller may see it."""
    history, caller = request.app.state.history, caller_of(request)
    return partial(history.at, owner=caller.owner, of_all=caller.sees_all)


NO_DATABASE = "the service runs without a database"


def database_of(request: Request) -> Engine:
    """The database of the application."""
    engine: Engine | None = request.app.state.engine
    if engine is None:
        raise Unreachable(NO_DATABASE)
    return engine


Database = Annotated[Engine, Depends(database_of)]
"""Route argument: the database."""
