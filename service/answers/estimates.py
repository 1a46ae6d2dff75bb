"""Answers to one question, whole or in part, with versions and sources."""

from dataclasses import dataclass
from typing import Literal

from service.estimator.answer import Communication, Explanation, Flop, Memory, Parameters, Step, Totals, Verdict
from service.estimator.other_tools.tool import Comparison
from service.estimator.question import Documented, Question
from service.estimator.run.run import StageTimeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What an answer rests on: the same question under the same versions is the same answer."""

    formulas: str
    """Version of the formulas."""
    catalogue: str
    """Digest of the catalogue's facts."""
    calibration: str | None
    """Calibration that corrected the predictions; null where none did."""


SourceKind = Literal["model", "gpu", "cluster", "price", "rate_card", "region", "calibration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Documented):
    """A row that an answer rests on: each one that is not shipped, and what a price was taken from in any case."""

    kind: SourceKind
    """What it is a row of."""
    name: str
    """Its slug; the id of a price or calibration; for what a GPU cost to buy, the GPU's slug."""
    owner: str
    """Whose row it is: catalogue for a shipped one."""
    scope: Literal["owner", "everyone"]
    """Whose answers it may change: its owner's alone, or everyone's, which an admin decides."""
    source: str
    """Where its numbers were read."""
    as_of: str
    """Date of the values: 2025, 2025-03 or 2025-03-17."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds(Documented):
    """Fields of every answer beside its numbers."""

    id: str
    """est_ and a digest of the resolved question and the versions."""
    resolved: Question
    """The question with names looked up and every default filled."""
    assumptions: tuple[str, ...]
    """Assumptions of the answer."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    sources: tuple[Source, ...]
    """Rows that it rests on: the calibration, the price or rate card, and every row that is not shipped."""
    versions: Versions
    """Versions under which the answer holds."""
    explain: dict[str, Explanation] | None
    """Equation, inputs and source of each number, by its cell name; null without explain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAnswer(Grounds):
    """Whether one configuration fits, and what its bytes are."""

    verdict: Verdict
    """Whether the job fits."""
    memory: Memory
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopAnswer(Grounds):
    """The operations of one configuration."""

    parameters: Parameters
    """Parameter counts, which the conventions multiply."""
    flop: Flop
    """Operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHoursAnswer(Grounds):
    """How long one configuration takes and what that costs."""

    verdict: Verdict
    """Whether the job fits. Hours of a job that does not are hypothetical."""
    step: Step
    """Seconds of one optimizer step."""
    communication: tuple[Communication, ...]
    """What one rank sends in that step, by axis and collective; empty on one GPU."""
    totals: Totals | None
    """The whole run; null without training_tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Grounds):
    """Everything about one configuration."""

    verdict: Verdict
    """Whether the job fits."""
    parameters: Parameters
    """Parameter counts."""
    memory: Memory
    """Bytes."""
    flop: Flop
    """Operations."""
    step: Step
    """Seconds of one optimizer step."""
    communication: tuple[Communication, ...]
    """What one rank sends in that step, by axis and collective; empty on one GPU."""
    totals: Totals | None
    """The whole run; null without training_tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineAnswer(Grounds):
    """Live and reserved bytes of one rank of every stage over the first step and over a later one."""

    usable_bytes: float
    """Memory a job can use on this GPU."""
    allocated_peak_bytes: float
    """The highest point of the fullest stage."""
    peak_stage: int
    """That stage."""
    stages: tuple[StageTimeline, ...]
    """Every pipeline stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodAnswer(Documented, Comparison):
    """Memory of one configuration by another tool's method, beside our own estimate."""

    id: str
    """The id of our own estimate."""
    resolved: Question
    """The question of both estimates, with names looked up and every default filled in."""
    assumptions: tuple[str, ...]
    """What was assumed to read the question, and by our own estimate."""
    warnings: tuple[str, ...]
    """Warnings about the question."""
    sources: tuple[Source, ...]
    """Rows that our own estimate rests on."""
    versions: Versions
    """What our own estimate rests on."""
