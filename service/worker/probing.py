"""What is a probe told, and what does it give back?"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.calibration.records import Measurement
from service.errors import TraincostError


class CannotRun(TraincostError):
    """This machine cannot measure what is asked, as it stands; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """What a probe is told beside its parameters."""

    device: str
    """Device of this process, as torch writes it, e.g. cuda:0 or cpu."""
    folder: Path
    """Where it leaves files; those that its summary names under `files` are kept."""
    end_seconds: float
    """Time of the monotonic clock at which it should be done, with what it has by then."""
    report: Callable[[float, str], None]
    """Tells which fraction is done, and of what."""
    rank: int = 0
    """Which of the processes that run the probe together this is."""
    ranks: int = 1
    """Processes that run it together, one a device."""

    def left_seconds(self) -> float:
        """Time until the probe should be done; negative once it is late."""
        return self.end_seconds - time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe gives back; of many ranks, what the first one gives counts."""

    measurements: tuple[Measurement, ...] = ()
    """What was measured."""
    summary: dict[str, Any] | None = None
    """What a profile or a timeline amounts to; `files` names those that it left in its folder."""
    reason: str | None = None
    """What was left out, or casts doubt on it, and why."""


WORDS = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What torch's allocators and libraries say then."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says so.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("out of range"))
    (True, False)
    """
    return isinstance(error, MemoryError) or any(word in str(error) for word in WORDS)
