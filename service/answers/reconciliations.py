"""Finished jobs beside their predictions."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from service.estimator.answer import Interval, Verdict
from service.estimator.question import DESCRIBED

EndState = Literal[
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
]  # fmt: skip
"""How a job may end."""


Reason = Literal["not_ended", "never_started", "no_estimate", "no_gpus", "unknown_estimate"]
"""Why a job is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Jobs that are not compared."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    reason: Reason
    """Why."""
    jobs: int
    """How many."""
    message: str
    """The reason in words."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with one record, which is left out."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    place: str
    """Which record: its row, the header being row 1, or its place in the list of jobs."""
    field: str
    """Column or field."""
    message: str
    """What is wrong."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledJob:
    """One job: what was predicted, and what it took."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    cluster: str
    """Name of its cluster; empty where the accounting did not tell it."""
    job_id: str
    """As sacct prints it; a task of an array is a job of its own, components of a heterogeneous one are one job."""
    state: EndState
    """How it ended."""
    estimate_id: str
    """The estimate that its comment names."""
    gpus: int
    """GPUs of its last attempt."""
    attempts: int
    """How often it began."""
    elapsed_seconds: float
    """Time for which its GPUs were allocated, over all attempts."""
    used_gpu_hours: float
    """GPU-hours of all attempts."""
    predicted_gpu_hours: Interval | None
    """The prediction; null where the estimate had no length of the run."""
    used_over_predicted_fraction: float | None
    """Used over predicted GPU-hours; null where they cannot be compared."""
    is_inside: bool | None
    """Whether what was used lies inside the predicted interval; null where they cannot be compared."""
    verdict: Verdict | None
    """Whether the job fits by the estimate."""
    is_verdict_right: bool | None
    """Whether a job that completed was not to run out of memory; null where its end does not tell of its GPUs."""
    is_asked_again: bool
    """Whether the prediction uses current formulas or facts, because those of its time are no longer available."""
    note: str | None
    """Why hours are not compared, or what is to be known of the comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What jobs took, beside what was predicted of them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    compared: int
    """Jobs whose hours are compared."""
    inside: int
    """Those of them inside their interval."""
    median_used_over_predicted_fraction: float | None
    """Median over them; null where there is none."""
    verdicts_right: int
    """Jobs whose end confirms the memory verdict."""
    verdicts_wrong: int
    """Jobs whose end contradicts it."""
    out_of_memory: int
    """Jobs that Slurm ended because memory of a node, not of a GPU, ran out."""
    jobs: tuple[ReconciledJob, ...]
    """Each job that ended and was estimated."""
    left_out: tuple[LeftOut, ...]
    """Jobs that are not compared, by reason."""
    faults: tuple[Fault, ...]
    """Records that cannot be read, the first of them."""
    faults_left_off: int
    """Records that cannot be read beyond those."""
    steps: int
    """Records of steps, which are not counted again."""
