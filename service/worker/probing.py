"""Context and result of a probe."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.calibration.records import Measurement
from service.errors import TraincostError


class CannotRun(TraincostError):
    """This machine cannot measure the task; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """The context of a probe beside its parameters."""

    device: str
    """Device of this process, e.g. cuda:0 or cpu."""
    folder: Path
    """Folder for files; those that the summary lists under `files` are uploaded."""
    end_seconds: float
    """Time of the monotonic clock by which the probe has to end, with the results so far."""
    report: Callable[[float, str], None]
    """Reports the fraction that is done, and of what."""
    rank: int = 0
    """Rank of this process."""
    ranks: int = 1
    """Processes of the probe, one a device."""

    def left_seconds(self) -> float:
        """Seconds until the probe has to end; negative once it is late."""
        return self.end_seconds - time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of a probe; of many ranks, that of the first counts."""

    measurements: tuple[Measurement, ...] = ()
    summary: dict[str, Any] | None = None
    """Summary of a profile or a timeline; `files` lists the files in the folder."""
    reason: str | None = None
    """What is missing or doubtful, and why."""


WORDS = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Phrases in errors of torch's allocators and libraries."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a device, or the machine, has no memory left.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("out of range"))
    (True, False)
    """
    return isinstance(error, MemoryError) or any(word in str(error) for word in WORDS)
