"""Finished jobs with an estimate, summed over their attempts and components."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.answers.diagnoses import LeftOut, Reason
from service.features.reconcile.slurm import ESTIMATE_ID, UNFINISHED, SlurmRecord
from service.units import SECONDS_PER_HOUR

CONTINUED = frozenset({*UNFINISHED, "REQUEUED", "RESIZING"})
"""States of jobs that continue in a later record."""

REASONS: dict[Reason, tuple[str, str]] = {
    "not_ended": ("they have not ended", "reconcile again when they have"),
    "never_started": ("they were cancelled before they began", "nothing is to be done"),
    "no_estimate": (
        "their comments hold no estimate's id",
        "install a hook (GET /v1/adapters/slurm/job_submit.lua), and keep comments: AccountingStoreFlags=job_comment",
    ),
    "no_gpus": (
        "the accounting tells of no GPUs",
        "have it count them: AccountingStorageTRES=gres/gpu in slurm.conf",
    ),
    "unknown_estimate": (
        "no estimate of that id is kept",
        "ask the service whose hook checked them; it keeps the questions of checks for 400 days",
    ),
}
"""Message and fix of each reason."""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A finished job with its records."""

    estimate_id: str
    """Id of the estimate that its comment holds."""
    records: tuple[SlurmRecord, ...]
    """Its attempts, in order, each of every component."""

    @property
    def cluster(self) -> str:
        """Name of its cluster."""
        return self.records[0].cluster

    @property
    def job_id(self) -> str:
        """As sacct prints it, components together."""
        return _whole(self.records[0].job_id)

    @property
    def started(self) -> str:
        """When its first attempt began."""
        return self.records[0].started

    @property
    def state(self) -> str:
        """End state: that of its components if all completed, else of the first that did not."""
        states = [record.state for record in _last(self.records)]
        return next((state for state in states if state != "COMPLETED"), "COMPLETED")

    @property
    def gpus(self) -> int:
        """GPUs of its last attempt."""
        return sum(record.gpus or 0 for record in _last(self.records))

    @property
    def is_partition(self) -> bool:
        """Whether any are slices of GPUs."""
        return any(record.is_partition for record in self.records)

    @property
    def attempts(self) -> int:
        """Number of its attempts in the records."""
        return max(len(records) for records in _components(self.records))

    @property
    def is_whole(self) -> bool:
        """Whether every attempt is among its records."""
        attempts = self.attempts
        return all(record.restarts < attempts for record in self.records)

    @property
    def elapsed_seconds(self) -> float:
        """Time with GPUs, over all attempts."""
        return max(sum(record.elapsed_seconds for record in records) for records in _components(self.records))

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all attempts."""
        return sum(record.elapsed_seconds * (record.gpus or 0) for record in self.records) / SECONDS_PER_HOUR


def finished_jobs(records: Iterable[SlurmRecord]) -> tuple[tuple[FinishedJob, ...], tuple[LeftOut, ...]]:
    """Group records into finished jobs with an estimate."""
    grouped: dict[tuple[str, str], list[SlurmRecord]] = {}
    for record in records:
        grouped.setdefault((record.cluster, _whole(record.job_id)), []).append(record)
    found: list[FinishedJob] = []
    reasons: list[Reason] = []
    for group in grouped.values():
        reason = _reason(group)
        if reason is None:
            found += [FinishedJob(estimate_id, ran) for estimate_id, ran in _by_estimate(group)]
        else:
            reasons.append(reason)
    return tuple(found), left_out(reasons)


def left_out(reasons: Iterable[Reason]) -> tuple[LeftOut, ...]:
    """Jobs left out, by reason."""
    counts: dict[Reason, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return tuple(
        LeftOut(reason=reason, jobs=count, message=REASONS[reason][0], fix=REASONS[reason][1])
        for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    )


def estimate_in(comment: str) -> str | None:
    """The estimate that a comment names; a hook writes its own last.

    >>> estimate_in("mine est_0123456789abcdef0123456789abcdef")
    'est_0123456789abcdef0123456789abcdef'
    """
    found = ESTIMATE_ID.findall(comment)
    return found[-1] if found else None


def _whole(job_id: str) -> str:
    """The job of a component."""
    return job_id.partition("+")[0]


def _reason(group: Sequence[SlurmRecord]) -> Reason | None:
    if any(record.state in CONTINUED for record in _last(group)):
        return "not_ended"
    if not any(record.started for record in group):
        return "never_started"
    if not any(estimate_in(record.comment) for record in group):
        return "no_estimate"
    return None if any(record.gpus for record in group) else "no_gpus"


def _by_estimate(group: Sequence[SlurmRecord]) -> list[tuple[str, tuple[SlurmRecord, ...]]]:
    """Records of each estimate; those without one belong to the first, because a hook may check one component alone."""
    ids = [estimate_in(record.comment) for record in group]
    first = next(one for one in ids if one is not None)
    by_id: dict[str, list[SlurmRecord]] = {}
    for record, estimate_id in zip(group, ids, strict=True):
        by_id.setdefault(estimate_id or first, []).append(record)
    return [(estimate_id, tuple(records)) for estimate_id, records in by_id.items()]


def _components(records: Sequence[SlurmRecord]) -> list[list[SlurmRecord]]:
    """The attempts of each component, in order."""
    by_component: dict[str, list[SlurmRecord]] = {}
    for record in records:
        by_component.setdefault(record.job_id, []).append(record)
    return list(by_component.values())


def _last(records: Sequence[SlurmRecord]) -> list[SlurmRecord]:
    return [attempts[-1] for attempts in _components(records)]
