"""Answers of admission checks and of batches."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Len

from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, MemoryAnswer, Source, Versions
from service.answers.names import Published
from service.estimator.answer import Interval
from service.estimator.question import Documented

CheckVerdict = Literal["ok", "warn", "deny", "unknown"]

MOST_FREE = 16
"""Free pools that one check evaluates. Source: a choice; a verdict has to come at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative(Documented):
    """An alternative for the job, with its own verdict."""

    patch: Annotated[dict[str, Any], Published("QuestionPatch")]
    """What to change in the question, as a merge patch."""
    verdict: CheckVerdict
    """ok or warn: what is denied is no alternative."""
    device_peak_bytes: Interval
    """Memory of the fullest GPU."""
    gpu_hours: Interval | None
    """The whole run; null without training_tokens."""
    cost_usd: Interval | None
    """The whole run; null without training_tokens or a price."""
    time_limit_seconds: int | None
    """Wall time to ask for; null without training_tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Documented):
    """Whether a job may start, and what a scheduler wants to note of it."""

    id: str
    """Of the estimate behind it."""
    verdict: CheckVerdict
    """deny: it runs out of memory. warn: it may, or it may exceed a limit, or a limit cannot be judged. ok: neither.
    unknown: a setting of the launcher's file changes the answer and is not understood, so this is not the job's."""
    reason: str
    """Why, in one line of at most 255 characters."""
    fits: bool
    """False where the verdict is deny."""
    oom_probability_fraction: float
    """Probability that the device peak exceeds the usable memory."""
    device_peak_bytes: Interval
    """Memory of the fullest GPU, as nvidia-smi shows it."""
    usable_bytes: float
    """Memory a job can use on this GPU."""
    gpu_hours: Interval | None
    """The whole run; null without training_tokens."""
    cost_usd: Interval | None
    """The whole run; null without training_tokens or a price."""
    time_limit_seconds: int | None
    """Wall time to ask for: the upper end of the prediction in whole minutes; null without training_tokens."""
    alternatives: tuple[Alternative, ...]
    """What may run instead where the verdict is not ok: single changes of the job, or other GPUs of free_pool."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    assumptions: tuple[str, ...] = ()
    """What was assumed where the question, the launcher's file or the job's script leaves something open."""
    sources: tuple[Source, ...]
    """Rows that the answer rests on: the calibration, the price or rate card, and every row that is not shipped."""
    versions: Versions
    """Versions under which the answer holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCheck(Documented):
    """Answer to a scheduler."""

    verdict: CheckVerdict
    """unknown: the job is none that can be judged, so it is let through."""
    reason: str
    """Why, in one line of at most 255 characters."""
    not_judged: str | None
    """Code of the reason for which the job was not judged; null where it was."""
    warnings: tuple[str, ...]
    """Warnings for the user who submits the job, each one line of at most 255 characters; where the verdict is warn or
    deny with what the reading of the job assumes, at most three of these."""
    check: Check | None
    """The check behind it; null where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter(Documented):
    """A file that makes a scheduler ask before a job starts."""

    scheduler: str
    """Name of the scheduler in the path."""
    name: str
    """Name of the file in the path."""
    path: str
    """Path that serves it."""
    meaning: str
    """What it does."""
    check: str
    """Path that it asks."""
    kinds: tuple[str, ...]
    """Kinds of Kubernetes objects that it checks; empty where it checks scripts and commands."""
    source: str
    """Interface of the scheduler, with the version or commit where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters(Documented):
    """Files of schedulers."""

    items: tuple[Adapter, ...]
    """The files."""


BatchKind = Literal["estimate", "memory", "flops", "gpu-hours", "check"]
"""Kind of the answers, by the name of the route that gives one alone."""

MOST_QUESTIONS = 1_000
"""Most questions of one request. Source: a choice; they take some seconds of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswer(Documented):
    """The answer to one question."""

    status: Literal[200]
    """Status of an answer."""
    body: Answer | MemoryAnswer | FlopAnswer | GpuHoursAnswer | Check
    """Answer of the route of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProblem(Documented):
    """The problem of a refused question."""

    status: Literal[400, 422, 500]
    """Status of the refusal."""
    body: Annotated[Any, Published("Problem")]
    """Reason of the refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswers(Documented):
    """The answers, in the order of the questions."""

    answers: Annotated[tuple[BatchAnswer | BatchProblem, ...], Len(0, MOST_QUESTIONS)]
    """One answer for each question."""
