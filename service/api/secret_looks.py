"""Did another process make what links are signed with? Looked for while there is none, seldom, however many ask."""

import asyncio
from time import monotonic

from starlette.concurrency import run_in_threadpool

from service.store import KeyRing

APART_SECONDS = 1.0
"""Shortest time between the beginnings of two looks: anybody may send what looks like a link."""


class SecretLooks:
    """Looks into the database for all who ask.

    Args:
        ring: what signs
    """

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._look: asyncio.Task[None] | None = None
        self._due = monotonic()

    async def look(self) -> None:
        """Wait for a look that was not over yet when this was called.

        Raises:
            Unreachable: the database does not answer
        """
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(self._next())
        await asyncio.shield(self._look)

    async def _next(self) -> None:
        await asyncio.sleep(max(0.0, self._due - monotonic()))
        self._due = monotonic() + APART_SECONDS
        await run_in_threadpool(self._ring.refresh)
