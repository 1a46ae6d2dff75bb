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
from service.store import Engine
from service.store.database import ReadOnChange
from service.store.history import History

KEYS_SECONDS = 0.5
"""Interval between reads of changed keys; the streams of a key that another process revoked end within a second."""
WRITE_SECONDS = 1.0
"""Interval between reads of the catalogue without replicas, and between writes of queued records."""
FOLLOW_SECONDS = 0.25
"""Interval between reads of the catalogue with replicas; a write on another replica waits for it. Source: a choice."""
LEAVE_SECONDS = 1.0
"""Longest wait for a running task when the process stops, also if the database hangs."""


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


@asynccontextmanager
async def background_refresh(app: FastAPI) -> AsyncIterator[None]:
    """Run the background threads that apply other processes' changes and write queued records."""
    stop, keys, engine = Event(), app.state.keys, app.state.engine
    follow, refresh_keys = ReadOnChange(engine, partial(_follow, app)), ReadOnChange(engine, keys.refresh)
    is_alone = engine is None or engine.dialect.name == "sqlite"  # no other replica waits for this process
    used, denied = keys.noted, app.state.denied_changes.noted
    tasks: tuple[tuple[str, Callable[[], None], float, Event, Event | None], ...] = (
        (
            "the catalogue in memory is not brought up to date",
            follow,
            WRITE_SECONDS if is_alone else FOLLOW_SECONDS,
            stop,
            None,
        ),
        ("keys that others make or revoke are not seen", refresh_keys, KEYS_SECONDS, stop, None),
        ("it is not written when keys were last used", keys.write_uses, WRITE_SECONDS, stop, used),
        ("refused changes are missing in the audit log", app.state.denied_changes.write, WRITE_SECONDS, stop, denied),
    )
    with suppress(Unreachable):  # recorded before the first read, so that concurrent writers wait for it
        await run_in_threadpool(app.state.replicas.announce, 0)
        await run_in_threadpool(_follow, app)
    threads = [_start_thread(partial(repeat, *task)) for task in tasks]
    try:
        yield
    finally:
        for event in (stop, used, denied):
            event.set()
        final_writes = (
            partial(keys.write_uses, all_of_them=True),
            app.state.denied_changes.write,
            app.state.replicas.leave,
        )
        for thread in (*threads, *(_start_thread(partial(_write_before_exit, write)) for write in final_writes)):
            await run_in_threadpool(thread.join, LEAVE_SECONDS)
        for reader in (follow, refresh_keys):
            reader.close()


def _follow(app: FastAPI) -> None:
    """Apply other processes' changes, and record the applied revision in the database."""
    app.state.history.refresh()
    app.state.replicas.announce(app.state.history.number)


def _start_thread(work: Callable[[], None]) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def _write_before_exit(write: Callable[[], None]) -> None:
    """Write queued records; ignore a failure, because the process ends."""
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
"""Route argument: the database."""
