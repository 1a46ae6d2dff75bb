"""Diagnoses of out-of-memory errors: the message, its comparison with the estimate, and changes."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from service.answers.estimates import Versions
from service.answers.names import Published
from service.estimator.answer import Change, Verdict
from service.estimator.memory.memory import Moment, StepName
from service.estimator.question import DESCRIBED

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
class SaidNumber:
    """One number of a message."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    name: str
    """What it is, e.g. requested_bytes."""
    bytes: float
    """The number."""
    precision_bytes: float
    """Rounding error: half a unit of the last digit."""
    words: str
    """The words that it was found in, # in the place of the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Values parsed from a message; null where it lacks them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    kind: MessageKind
    """Source of the out-of-memory message."""
    requested_bytes: float | None
    """Bytes of the failed allocation, as the allocator rounds it."""
    capacity_bytes: float | None
    """Memory of the device."""
    free_bytes: float | None
    """Free memory of the device."""
    allowed_bytes: float | None
    """What the process was limited to."""
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
    """Of those, bytes in pools of CUDA graphs."""
    peak_allocated_bytes: float | None
    """Most live tensors at once, of a summary."""
    moment: Moment | None
    """Where in a step it failed, of a traceback."""
    numbers: tuple[SaidNumber, ...]
    """Every number with its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedTensor:
    """A tensor of this model with the size of the failed allocation."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    tensor: str
    """What it is, in words."""
    kind: str
    """Line of the estimate that holds it."""
    bytes: float
    """Its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLine:
    """One line of the estimate at the moment of failure, beside what it seems to have been."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    kind: str
    """What the bytes are; unexplained: what no line tells."""
    predicted_bytes: float
    """Values of the estimate."""
    likely_bytes: float
    """What the message makes likely."""
    difference_bytes: float
    """Likely less predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTotal:
    """One number of the message beside that of the estimate."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    quantity: Literal["live_bytes", "reserved_bytes", "outside_allocator_bytes", "process_bytes", "capacity_bytes"]
    """The compared quantity; live_bytes includes the failed allocation."""
    said_bytes: float
    """Values of the message."""
    predicted_bytes: float
    """Value of the estimate: a peak, or the device's capacity."""
    difference_bytes: float
    """Stated less predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposition:
    """A single difference between the question and what ran that would explain the message."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    patch: Annotated[dict[str, Any], Published("QuestionPatch")]
    """The difference, as a merge patch of the question."""
    message: str
    """The same in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why memory ran out, and what to change."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    id: str
    """Of the estimate that the message is compared with."""
    cause: Cause
    """Why it ran out."""
    reason: str
    """The same in one line."""
    confidence: Confidence
    """How sure that is."""
    verdict: Verdict
    """Values of the estimate."""
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
    """Configurations that may have run instead of this question."""
    changes: tuple[Change, ...]
    """Single changes that save memory, of what seems to have run."""
    suggestions: tuple[str, ...]
    """What to do, in words, the first thing first."""
    warnings: tuple[str, ...]
    """What the message leaves open."""
    versions: Versions
    """What the estimate rests on."""
