"""Requests of workers: claim, heartbeat, finish."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval, Len

from service.answers.workers import Capabilities
from service.errors import Problem, Refused
from service.estimator.question import Name, Strict
from service.jobs.leases import Outcome

MOST_WAIT_SECONDS = 20.0
"""Longest wait for a job in a request. Source: a choice; proxies cut idle requests off after half a minute or one."""
LONGEST_REASON = 10_000
MOST_PROGRESS_DEPTH = 8
"""Deepest nesting of a progress report. Source: a choice; that of a launch check is 3 deep."""

LeaseToken = Annotated[str, Len(1, 100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest(Strict):
    """A worker that looks for a job."""

    worker: Name
    """Its name; two that are at work at the same time have two."""
    kinds: Annotated[tuple[Name, ...], Len(1, 20)]
    """Kinds of jobs that it knows."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    """What it can do; the service itself finds the catalogue names of its devices."""
    wait_seconds: Annotated[float, Interval(ge=0, le=MOST_WAIT_SECONDS)] = 0.0
    """How long it waits for a job where there is none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest(Strict):
    """A worker that is still at a job."""

    lease: LeaseToken
    """The lease that the job was claimed with."""
    progress: Mapping[str, Any] | None = None
    """How far the job is; null where there is nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError(Strict):
    """Why an attempt failed."""

    code: Name
    """Kind of failure, stable."""
    message: Annotated[str, Len(0, LONGEST_REASON)]
    """What went wrong, and what to do where that is known."""
    final: bool = False
    """Whether another attempt would fail the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRequest(Strict):
    """A worker whose attempt came to an end."""

    lease: LeaseToken
    """The lease that the job was claimed with."""
    outcome: Literal["succeeded", "failed", "cancelled", "released"]
    """How it ended; released: given back because the worker has to go, which costs no attempt."""
    result: Mapping[str, Any] | None = None
    """What came of it."""
    error: JobError | None = None
    """Why it failed; null where it did not."""

    def ended(self) -> Outcome:
        """Outcome of the attempt."""
        return Outcome(
            ending=self.outcome, result=self.result, error=None if self.error is None else asdict(self.error)
        )


def refuse_deep_progress(progress: object) -> None:
    """Refuse progress that nests too deep for its readers."""
    level: list[object] = [progress]
    for _ in range(MOST_PROGRESS_DEPTH + 1):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    message = f"lists and objects of the progress nest deeper than {MOST_PROGRESS_DEPTH}"
    raise Refused(Problem(field="progress", code="too_deep", message=message, fix="flatten the progress"))


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
