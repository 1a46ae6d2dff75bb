"""What do the totals of a run consist of: time that is lost, and lines of a cost?"""

from dataclasses import dataclass

from service.estimator.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTime:
    """Wall time of the run in which nothing new is trained."""

    kind: str
    """What it goes to: checkpoints, lost_work (done again after an interruption) or restarts."""
    days: float
    """Days of the run; with ideal_days.value they sum to days.value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """How interruptions and checkpoints divide the time."""

    interruption_seconds: float
    """Mean time between two interruptions of the job."""
    checkpoint_seconds: float
    """Time that training stands still for one checkpoint."""
    checkpoint_interval_seconds: float
    """Useful time between two checkpoints."""
    lost: tuple[LostTime, ...]
    """Where the time goes that trains nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One line of the cost, whole cents."""

    kind: str
    """What is paid for: gpus, spares, storage, egress; owned: amortisation, maintenance, hosting, electricity."""
    usd: Interval
    """US dollars."""
