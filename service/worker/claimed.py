"""What is a worker given, what does it have at hand for it, and what does it say at the end?"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from service.worker.running import Runner

Outcome = Literal["succeeded", "failed", "cancelled", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A job that the service gave."""

    id: str
    kind: str
    attempt: int
    lease: str = field(repr=False)
    """What the worker proves with that the job is its own; in no log."""
    payload: Mapping[str, Any]
    timeout_seconds: float
    """Longest time that it may take."""
    lease_seconds: float
    """Time after which the service gives it to somebody else if it does not hear of this worker."""
    device: str | None = None
    """Which of the worker's devices it is for, by the name that the worker told; None for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ended."""

    outcome: Outcome
    result: Mapping[str, Any] | None = None
    """What came of it."""
    error: Mapping[str, Any] | None = None
    """Why it failed: code, message, and final where another attempt would fail the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file that a job leaves."""

    name: str
    """What it is called."""
    path: Path
    """Where it is."""
    media_type: str
    """What it holds."""


@dataclass(slots=True, kw_only=True)
class Desk:
    """What is at hand while a job is done."""

    job: Claimed
    runner: Runner
    folder: Path
    """An empty folder, gone afterwards."""
    hand_in: Callable[[FoundFile], Awaitable[str | None]]
    """Gives a file to the service; tells why it was not taken, or None."""
    read: Callable[[str], Awaitable[bytes]]
    """Reads something that the job needs, by its path at the service."""
    result: dict[str, Any] | None = None
    """What was found so far: handed in with a cancelled or late job, too."""
    progress: dict[str, Any] | None = None
    """How far the job is."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is news of the progress."""

    def tell(self, progress: dict[str, Any]) -> None:
        """Say how far the job is; the service hears of it with the next heartbeat.

        Args:
            progress: what to say
        """
        if progress != self.progress:
            self.progress = progress
            self.changed.set()


Work = Callable[[Desk], Awaitable[Ending]]
"""Does a job of one kind. When it is cancelled it ends what it started, then lets the cancellation through."""
