"""What does a scheduler know of a job: the script that it starts, and the GPUs that it asks for?"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_GPUS = re.compile(r"(?:^|[,/:])gpu(?:[:=]([A-Za-z][\w.-]{0,79}))?[:=](\d{1,6})(?=$|[,(])")
"""GPUs in Slurm's words: gpu:8, gres/gpu:h100:8, gres:gpu:h100:8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A job as a scheduler sees it."""

    script: str
    """What it starts."""
    gpus: int
    """GPUs in all."""
    gpus_each: int
    """GPUs of a node."""
    gpu: str | None = None
    """What the scheduler calls them; None where it does not say."""
    time_limit_seconds: float | None = None
    """Wall time that the job has; None where it does not say."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """Parts of the question that whoever runs the scheduler, or the job's owner, says beside it."""


def gpus_in(resources: str) -> tuple[str | None, int]:
    """The GPUs in Slurm's words for resources.

    Args:
        resources: such as gres/gpu:h100:8

    Returns:
        what they are called, None where that is not said, and how many

    >>> gpus_in("gres/gpu:h100:8"), gpus_in("gres:gpu:4"), gpus_in("cpu:4")
    (('h100', 8), (None, 4), (None, 0))
    """
    found = _GPUS.findall(resources)
    named = next((name for name, _ in found if name), None)
    return named, sum(int(count) for _, count in found)
