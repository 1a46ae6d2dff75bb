"""How is something run for a job? It is started, looked after, and nothing of it is left running in the end."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.worker.running import PROBE_PROCESS, Runner, Running

POLL_SECONDS = 0.1
"""Between two looks at whether it has ended. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """Something to be run."""

    task: Mapping[str, Any]
    """What to do, as JSON."""
    folder: Path
    """An empty folder for what it leaves."""
    most_seconds: float
    """Time after which it is ended, from when it begins to run: waiting for a place does not count."""
    module: str = PROBE_PROCESS
    """What carries it out."""
    device: str | None = None
    """Name of the device that it is for, as the runner told it; None for any."""


async def record_of(runner: Runner, errand: Errand, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    """What comes of an errand.

    Args:
        runner: where it is run
        errand: what to run
        tell: called now and then with what it told of its progress

    Returns:
        its record; None where it did not end in time
    """
    running = await _started(runner, errand)
    try:
        while (record := await asyncio.to_thread(running.poll)) is None and not _is_late(running, errand):
            tell(await asyncio.to_thread(running.progress))
            await asyncio.sleep(POLL_SECONDS)
        return record
    finally:
        await asyncio.shield(asyncio.to_thread(running.kill))


def _is_late(running: Running, errand: Errand) -> bool:
    began_seconds = running.began_seconds()
    return began_seconds is not None and time.monotonic() - began_seconds > errand.most_seconds


async def _started(runner: Runner, errand: Errand) -> Running:
    """What runs; where the wait for its start ends early, it is ended as soon as it has started."""
    starting = asyncio.ensure_future(
        asyncio.to_thread(runner.start, errand.task, errand.folder, errand.module, errand.device)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        running = await starting
        await asyncio.to_thread(running.kill)
        raise
