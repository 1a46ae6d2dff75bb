"""Which catalogue does a question rest on? The one that holds now, or the one that `rev` names."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Event, Thread

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from service.api.queries import REV, one_of
from service.catalogue import Catalogue
from service.errors import Unreachable
from service.store import History, KeyRing

LOOK_SECONDS = 1.0
"""Time between two looks at what other processes changed."""
LEAVE_SECONDS = 1.0
"""Longest wait for a look that is under way when the process stops; a database that hangs does not hold it up."""

log = logging.getLogger(__name__)


async def catalogue_of(request: Request) -> Catalogue:
    """The catalogue that a request asks under.

    Args:
        request: the request

    Returns:
        the catalogue that holds now, or that of the revision in `rev`

    Raises:
        WrongParameter: rev is given twice
        UnknownRevision: no catalogue of that revision is kept
        Unreachable: it is not in memory, and the database does not answer
    """
    revision = one_of(request, REV)
    if revision is None:
        now: Catalogue = request.app.state.catalogue
        return now
    history: History = request.app.state.history
    held = history.held(revision)
    return held if held is not None else await run_in_threadpool(history.at, revision)


@asynccontextmanager
async def kept_current(app: FastAPI) -> AsyncIterator[None]:
    """While the application runs, what other processes change is taken over, on threads of their own.

    Args:
        app: the application; it has a history and a keyring

    Yields:
        nothing; the threads run meanwhile
    """
    stop, keys = Event(), app.state.keys
    looks = {
        "the catalogue in memory is not brought up to date": app.state.history.refresh,
        "keys that others make or revoke are not seen": keys.refresh,
        "it is not written when keys were last used": keys.write_uses,
    }
    threads = [_started(partial(_look_again, complaint, look, stop)) for complaint, look in looks.items()]
    try:
        yield
    finally:
        stop.set()
        for thread in (*threads, _started(partial(_write_last_uses, keys))):
            await run_in_threadpool(thread.join, LEAVE_SECONDS)


def _started(work: Callable[[], None]) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def _write_last_uses(keys: KeyRing) -> None:
    """Write what is left to write; a process that ends has nobody to tell that it cannot."""
    with suppress(Unreachable):
        keys.write_uses(all_of_them=True)


def _look_again(complaint: str, look: Callable[[], None], stop: Event) -> None:
    """Look at the database, again and again; what fails is said once, until it works again."""
    failing = False
    while not stop.wait(LOOK_SECONDS):
        try:
            look()
        except Exception as error:  # whatever it is, answers go on from memory, and the next look may succeed
            if not failing:
                log.warning("%s: %s", complaint, type(error).__name__)
            failing = True
        else:
            failing = False
