"""The catalogue and the database that a request uses."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import caller_of
from service.api.background import repeat
from service.api.queries import REV, one_of
from service.catalogue import Catalogue
from service.errors import Unreachable
from service.store import Engine, History
from service.store.replicas import ReadOnChange

KEYS_SECONDS = 0.5
"""Time between two looks at what other processes changed of the keys: their streams end within a second."""
LOOK_SECONDS = 1.0
"""Time between two looks at the catalogue, and from a note to the write of what was noted."""
FOLLOW_SECONDS = 0.25
"""Time between two looks at the catalogue of others, who wait until it is taken over. Source: a choice."""
LEAVE_SECONDS = 1.0
"""Longest wait for a look that is under way when the process stops; a database that hangs does not hold it up."""


async def catalogue_of(request: Request) -> Catalogue:
    """The catalogue that a request asks under: the rows for everyone and the caller's own."""
    revision, caller = one_of(request, REV), caller_of(request)
    history: History = request.app.state.history
    if revision is None:
        made = history.holdings.view_if_made(caller.owner)
        return made.asked_by(caller.owner) if made else await run_in_threadpool(history.view, caller.owner)
    held = history.held(revision, caller.owner)
    return held if held is not None else await run_in_threadpool(catalogue_at(request), revision)


def view_of(request: Request) -> Catalogue:
    """What the caller of a request sees of the catalogue now, for routes on threads."""
    history: History = request.app.state.history
    return history.view(caller_of(request).owner)


def catalogue_at(request: Request) -> Callable[[str], Catalogue]:
    """The catalogue of a revision, as far as the caller of a request may see it."""
    history, caller = request.app.state.history, caller_of(request)
    return partial(history.at, owner=caller.owner, of_all=caller.sees_all)


@asynccontextmanager
async def background_refresh(app: FastAPI) -> AsyncIterator[None]:
    """While the application runs, what other processes change is taken over, on threads of their own."""
    stop, keys, engine = Event(), app.state.keys, app.state.engine
    follow, refresh_keys = ReadOnChange(engine, partial(_follow, app)), ReadOnChange(engine, keys.refresh)
    is_alone = engine is None or engine.dialect.name == "sqlite"  # no replica waits for this one to follow
    used, denied = keys.noted, app.state.denied_changes.noted
    looks: tuple[tuple[str, Callable[[], None], float, Event, Event | None], ...] = (
        (
            "the catalogue in memory is not brought up to date",
            follow,
            LOOK_SECONDS if is_alone else FOLLOW_SECONDS,
            stop,
            None,
        ),
        ("keys that others make or revoke are not seen", refresh_keys, KEYS_SECONDS, stop, None),
        ("it is not written when keys were last used", keys.write_uses, LOOK_SECONDS, stop, used),
        ("refused changes are missing in the audit log", app.state.denied_changes.write, LOOK_SECONDS, stop, denied),
    )
    with suppress(Unreachable):  # said before the first look, so that whoever writes meanwhile waits for it
        await run_in_threadpool(app.state.replicas.say, 0)
        await run_in_threadpool(_follow, app)
    threads = [_started(partial(repeat, *look)) for look in looks]
    try:
        yield
    finally:
        for event in (stop, used, denied):
            event.set()
        last = (partial(keys.write_uses, all_of_them=True), app.state.denied_changes.write, app.state.replicas.leave)
        for thread in (*threads, *(_started(partial(_write_last, write)) for write in last)):
            await run_in_threadpool(thread.join, LEAVE_SECONDS)
        for data in (follow, refresh_keys):
            data.close()


def _follow(app: FastAPI) -> None:
    """Take over what other processes changed, and say in the database what is in memory then."""
    app.state.history.refresh()
    app.state.replicas.say(app.state.history.number)


def _started(work: Callable[[], None]) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def _write_last(write: Callable[[], None]) -> None:
    """Write what is left to write; a process that ends has nobody to tell that it cannot."""
    with suppress(Unreachable):
        write()


NO_DATABASE = "the service runs without a database"


def database_of(request: Request) -> Engine:
    """The database of the application."""
    engine: Engine | None = request.app.state.engine
    if engine is None:
        raise Unreachable(NO_DATABASE)
    return engine


Database = Annotated[Engine, Depends(database_of)]
"""Argument of a route that reads or writes the database itself."""
