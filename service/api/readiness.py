"""Can this process do its work now? One look at the database at a time, however many ask, and none waits for long."""

import asyncio

from starlette.concurrency import run_in_threadpool

from service.store import Engine, takes_changes

LOOK_SECONDS = 3.0
"""Longest wait for a look: where others write for longer than that, a change would wait too. Source: a choice."""


class Readiness:
    """Looks at the database when it is asked for.

    Args:
        engine: the database; None where there is none
    """

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._look: asyncio.Task[bool] | None = None

    async def look(self) -> bool:
        """Whether the database takes changes; a look that is under way serves everybody.

        Returns:
            true if it took one just now
        """
        if self._engine is None:
            return False
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(run_in_threadpool(takes_changes, self._engine))
        look = self._look
        done, _ = await asyncio.wait({look}, timeout=LOOK_SECONDS)
        return look in done and look.result()
