"""Answers about the trace of a training step: where its time goes, beside what was predicted."""

from dataclasses import dataclass
from typing import Annotated, Literal

from service.answers.names import Published
from service.calibration.profiles import Profile
from service.calibration.records import ProbeRecord
from service.estimator.answer import Interval
from service.estimator.question import Documented, MeasuredStep

ComparedKind = Literal[
    "gemm", "attention", "elementwise", "optimizer", "exposed_communication", "copies", "idle",
]  # fmt: skip
"""Parts of a step that both a trace and an estimate have."""

ProfileFindingKind = Literal[
    "waiting_for_data", "synchronisation", "launch_bound", "idle", "no_overlap", "copies", "gemm", "attention",
    "elementwise", "optimizer", "exposed_communication", "faster",
]  # fmt: skip
"""What a finding is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart(Documented):
    """One part of the step, measured and predicted."""

    kind: ComparedKind
    """What the time goes to."""
    measured_seconds: float
    """Its time in the trace."""
    predicted_seconds: float
    """Its time in the estimate."""
    difference_seconds: float
    """Measured less predicted; the differences sum to that of the step."""
    measured_parts: tuple[str, ...]
    """Parts of the profile that it sums."""
    predicted_parts: tuple[str, ...]
    """Parts of the estimate's step that it sums; recompute is divided over the kinds of kernels that it repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFinding(Documented):
    """One thing that costs time, or that explains a difference from the prediction."""

    kind: ProfileFindingKind
    """What it is about."""
    seconds: float
    """Time of the step that it concerns; below 0 where the step is faster than predicted."""
    message: str
    """What the trace shows."""
    fix: str
    """What to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePrediction(Documented):
    """The profiled step beside its estimate."""

    estimate_id: str
    """Id of the estimate."""
    step_seconds: Interval
    """Predicted wall time of the step."""
    measured_over_predicted_fraction: float
    """Measured over predicted wall time."""
    is_inside: bool
    """Whether the measured time is inside the predicted interval."""
    parts: tuple[ComparedPart, ...]
    """The step part by part."""
    measured_step: MeasuredStep | None
    """An item for cluster.measured_steps, which moves later predictions; null where the trace is not known to be of
    the question's GPU, or the two are too far apart for one configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileAnswer(Documented):
    """Where the time of a profiled training step goes."""

    step_seconds: Interval
    """Wall time of the steps in the trace: the median, between the shortest and the longest."""
    device: str | None
    """Name of the GPU; null where the trace has none."""
    gpu: str | None
    """Its name in the catalogue; null where it has none."""
    ranks: int | None
    """Processes of the job; null where the trace does not say."""
    profile: Profile
    """The steps, and the median one part by part."""
    prediction: ProfilePrediction | None
    """The same beside an estimate; null without a question."""
    findings: tuple[ProfileFinding, ...]
    """What costs time and what to change, the most seconds first."""
    records: tuple[Annotated[ProbeRecord, Published("ProbeRecord")], ...] | None
    """Matrix products of the trace, for POST /v1/measurements and so for a calibration; null unless requested."""
    warnings: tuple[str, ...]
    """What limits the comparison."""
