"""Write queue: writers wait in the event loop, not on a thread.

The database takes one writer at a time. If forty writers each waited on a thread, no thread would be left for lists,
which are answered from memory. A change of the catalogue is answered after every replica has applied it, so that the
caller can read it back from any replica.

Few threads compute at the same time, because each delays the event loop by some milliseconds.
"""

from asyncio import Semaphore, sleep, timeout
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import signature
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.errors import Busy, Unreachable
from service.store.history import History
from service.store.replicas import Replicas

MOST_WRITERS = 4
"""Most writers that have a thread: one writes, the others validate requests or wait for the database."""
MOST_COMPUTING = 2
"""Most threads that compute at the same time. Source: a choice; each slows other answers."""
PATIENCE_SECONDS = 30.0
"""Longest wait for a thread."""
REPLICAS_SECONDS = 3.0
"""Longest wait for replicas to apply a change, also if a replica hangs. Source: a choice."""
POLL_SECONDS = 0.03
"""Interval between checks of the replicas. Source: a choice; far below the time to apply a change."""

NO_SLOT = "other changes are being written, and this one did not get its turn; nothing of it was written"


Result = TypeVar("Result")


async def on_compute_threads(request: Request, compute: Callable[..., Result], *arguments: Any) -> Result:
    """Run a function of some milliseconds on a thread, with few others at the same time."""
    slots: Semaphore = request.app.state.compute_slots
    async with slots:
        return await run_in_threadpool(compute, *arguments)


def queued(write: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """A writing route that waits for a write slot."""

    async def route(request: Request, **arguments: Any) -> Response:
        slots: Semaphore = request.app.state.write_slots
        history: History = request.app.state.history
        before = history.number
        try:
            async with timeout(PATIENCE_SECONDS):
                await slots.acquire()
        except TimeoutError:
            raise Busy(NO_SLOT) from None
        try:
            answer = await run_in_threadpool(write, request=request, **arguments)
        finally:
            slots.release()
        if history.number != before:
            await _wait_for_replicas(request.app.state.replicas, history.number)
        return answer

    route.__name__, route.__doc__ = write.__name__, write.__doc__
    vars(route)["__signature__"] = signature(write)
    return route


async def _wait_for_replicas(replicas: Replicas, number: int) -> None:
    """Wait until every replica has applied a change, which is committed either way."""
    with suppress(Unreachable):
        for _ in range(round(REPLICAS_SECONDS / POLL_SECONDS)):
            if not await run_in_threadpool(replicas.are_behind, number):
                return
            await sleep(POLL_SECONDS)
