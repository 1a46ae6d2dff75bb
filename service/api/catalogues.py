"""Which catalogue does a question rest on? The one that holds now, or the one that `rev` names."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event, Thread

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from service.api.queries import REV, one_of
from service.catalogue import Catalogue
from service.store import History

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
    """While the application runs, what other processes change is taken over, on a thread of its own.

    Args:
        app: the application; it has a history

    Yields:
        nothing; the thread runs meanwhile
    """
    stop = Event()
    thread = Thread(target=_look_again, args=(app.state.history, stop), name="catalogue", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        await run_in_threadpool(thread.join, LEAVE_SECONDS)


def _look_again(history: History, stop: Event) -> None:
    """Look at the newest change, again and again; what fails is said once, until it works again."""
    failing = False
    while not stop.wait(LOOK_SECONDS):
        try:
            history.refresh()
        except Exception as error:  # whatever it is, answers go on from memory, and the next look may succeed
            if not failing:
                log.warning("the catalogue in memory is not brought up to date: %s", type(error).__name__)
            failing = True
        else:
            failing = False
