"""Answers about jobs that ran: why a job ran out of memory, and what estimated jobs took."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from service.answers.estimates import Versions
from service.answers.names import Published
from service.estimator.answer import Change, Interval, Verdict
from service.estimator.memory.memory import Moment, StepName
from service.estimator.question import Documented

MessageKind = Literal[
    "torch_allocator", "torch_memory_summary", "cuda_error", "cublas", "nccl", "xla", "cpu_allocator", "oom_killer",
    "killed",
]  # fmt: skip
"""Source of the out-of-memory message."""

Cause = Literal[
    "too_large", "larger_than_predicted", "other_processes", "fragmentation", "limited", "less_room",
    "outside_allocator", "host_memory", "not_told",
]  # fmt: skip
"""Why it ran out."""

Confidence = Literal["high", "medium", "low"]

LONGEST_MESSAGE = 200_000
"""Characters of a message. Source: a choice; a traceback of many ranks has some 50,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidNumber(Documented):
    """One number of a message."""

    name: str
    """Name of the number, e.g. requested_bytes."""
    bytes: float
    """Value of the number."""
    precision_bytes: float
    """Rounding error: half a unit of the last digit."""
    words: str
    """Words around the number, with # in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Documented):
    """Values parsed from a message; null where it lacks them."""

    kind: MessageKind
    """Source of the out-of-memory message."""
    requested_bytes: float | None
    """Bytes of the failed allocation, as the allocator rounds it."""
    capacity_bytes: float | None
    """Memory of the device."""
    free_bytes: float | None
    """Free memory of the device."""
    allowed_bytes: float | None
    """Memory limit of the process."""
    process_bytes: float | None
    """Bytes of the process on the device."""
    other_processes_bytes: float | None
    """Bytes of other processes on the device."""
    allocated_bytes: float | None
    """Live tensors."""
    reserved_bytes: float | None
    """Bytes reserved by the allocator."""
    unallocated_bytes: float | None
    """Bytes reserved by the allocator beyond live tensors."""
    private_pools_bytes: float | None
    """Live tensors in private pools, which CUDA graphs use."""
    peak_allocated_bytes: float | None
    """Peak of live tensors, from a summary."""
    moment: Moment | None
    """Moment of the step at which it failed, from a traceback."""
    numbers: tuple[SaidNumber, ...]
    """Every number with its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedTensor(Documented):
    """A tensor of this model with the size of the failed allocation."""

    tensor: str
    """Description of the tensor."""
    kind: str
    """Line of the estimate that holds it."""
    bytes: float
    """Its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLine(Documented):
    """One line of the estimate at the moment of failure, with its likely value in the run."""

    kind: str
    """Kind of the bytes; unexplained for bytes that belong to no line."""
    predicted_bytes: float
    """Bytes by the estimate."""
    likely_bytes: float
    """Likely bytes in the run, by the message."""
    difference_bytes: float
    """Likely less predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTotal(Documented):
    """One number of the message beside that of the estimate."""

    quantity: Literal["live_bytes", "reserved_bytes", "outside_allocator_bytes", "process_bytes", "capacity_bytes"]
    """The compared quantity; live_bytes includes the failed allocation."""
    said_bytes: float
    """Value in the message."""
    predicted_bytes: float
    """Value of the estimate: a peak, or the device's capacity."""
    difference_bytes: float
    """Stated less predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposition(Documented):
    """A single difference between the question and what ran that would explain the message."""

    patch: Annotated[dict[str, Any], Published("QuestionPatch")]
    """The difference, as a merge patch of the question."""
    message: str
    """The same in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Documented):
    """Why memory ran out, and what to change."""

    id: str
    """Id of the estimate that the message is compared with."""
    cause: Cause
    """Why it ran out."""
    reason: str
    """The same in one line."""
    confidence: Confidence
    """Confidence in the cause."""
    verdict: Verdict
    """Whether the job fits by the estimate."""
    said: Said
    """Values of the message."""
    step: StepName | None
    """Step of the failure, as far as live bytes show it; else null."""
    moment: Moment | None
    """Phase of the failure, from the traceback or live bytes."""
    totals: tuple[ComparedTotal, ...]
    """Numbers of the message beside those of the estimate."""
    lines: tuple[ComparedLine, ...]
    """The estimate at that moment line by line, the most different first."""
    tensors: tuple[MatchedTensor, ...]
    """Tensors with the size of the failed allocation."""
    supposition: Supposition | None
    """A configuration that may have run instead of the question; null where none explains the message."""
    changes: tuple[Change, ...]
    """Single changes that save memory, made to the configuration that seems to have run."""
    suggestions: tuple[str, ...]
    """What to do, the most useful first."""
    warnings: tuple[str, ...]
    """What the message leaves open."""
    versions: Versions
    """Versions of the formulas and facts behind the estimate."""


EndState = Literal[
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
]  # fmt: skip
"""How a job may end."""


Reason = Literal["not_ended", "never_started", "no_estimate", "no_gpus", "unknown_estimate"]
"""Why a job is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(Documented):
    """Jobs that are not compared."""

    reason: Reason
    """Code of the reason."""
    jobs: int
    """Number of jobs."""
    message: str
    """The reason in words."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Documented):
    """An error in one record, which is left out."""

    place: str
    """Which record: its row, the header being row 1, or its place in the list of jobs."""
    field: str
    """Column or field."""
    message: str
    """What is wrong."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledJob(Documented):
    """One job: what was predicted, and what it took."""

    cluster: str
    """Name of its cluster; empty where the accounting names none."""
    job_id: str
    """As sacct prints it; a task of an array is a job of its own, components of a heterogeneous one are one job."""
    state: EndState
    """How it ended."""
    estimate_id: str
    """The estimate that its comment names."""
    gpus: int
    """GPUs of its last attempt."""
    attempts: int
    """Number of times that it started."""
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
    """Whether the verdict allowed a job that completed; null for other ends, which show nothing about GPU memory."""
    is_asked_again: bool
    """Whether the prediction uses current formulas or facts, because those of its time are no longer available."""
    note: str | None
    """Why hours are not compared, or a caveat of the comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation(Documented):
    """Comparison of what jobs took with their predictions."""

    compared: int
    """Jobs whose hours are compared."""
    inside: int
    """Compared jobs whose hours lie inside the predicted interval."""
    median_used_over_predicted_fraction: float | None
    """Median of used over predicted GPU-hours; null where no job is compared."""
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
