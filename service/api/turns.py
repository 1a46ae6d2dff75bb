"""How do writers wait for each other without keeping anybody else waiting? In a queue that takes no threads.

Writers are alone in the database, one after the other. Were each to wait on a thread, forty of them would leave none
for the lists, which are answered from memory.
"""

from asyncio import Semaphore, timeout
from collections.abc import Awaitable, Callable
from inspect import signature
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.errors import Busy

AT_ONCE = 4
"""Writers that have a thread: one writes, the others check what they were sent or wait to be next."""
PATIENCE_SECONDS = 30.0
"""Longest wait for a thread."""

NOT_YET = "other changes are being written, and this one did not get its turn; nothing of it was written"


def in_turn(write: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """A route that writes, as one that waits for its turn.

    Args:
        write: the route, a plain function with an argument `request`

    Returns:
        the route with the same arguments; Busy where its turn does not come
    """

    async def route(request: Request, **given: Any) -> Response:
        turns: Semaphore = request.app.state.turns
        try:
            async with timeout(PATIENCE_SECONDS):
                await turns.acquire()
        except TimeoutError:
            raise Busy(NOT_YET) from None
        try:
            return await run_in_threadpool(write, request=request, **given)
        finally:
            turns.release()

    route.__name__, route.__doc__ = write.__name__, write.__doc__
    vars(route)["__signature__"] = signature(write)
    return route
