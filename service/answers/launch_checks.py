"""Launch checks: measurements beside predictions, a verdict and its reasons."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from service.answers.names import Published
from service.calibration.records import Environment, ProbeName, ProbeStatus
from service.estimator.answer import Interval, Verdict
from service.estimator.question import DESCRIBED

LaunchStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
"""Where a launch check is."""

LaunchVerdict = Literal["go", "caution", "no-go"]
"""May the job start?"""

Where = Literal["matching", "any"]
"""On which workers it may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredValue:
    """A measured quantity over its repeats."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    low: float
    """10th percentile."""
    value: float
    """Median."""
    high: float
    """90th percentile."""
    repeats: int
    """How often it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measurement beside what was predicted of it before."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    operation: str
    """What ran."""
    shape: Mapping[str, Any]
    """What tells it from other measurements of the probe: sizes, number format, kernel."""
    quantity: str
    """What was measured: seconds, bytes or bytes_per_s."""
    measured: MeasuredValue
    """What was found."""
    predicted: Interval | None
    """What was predicted; null where no formula holds for the device that it was measured on."""
    ratio: float | None
    """Measured over predicted; null without a prediction."""
    count: float | None
    """How often one optimizer step of the job has it on one rank; null where it is no part of a step."""
    relative_error_fraction: float | None
    """Largest error of the result over the largest number of a reference in higher precision; null where none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """What came of one probe."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    probe: ProbeName
    """Which probe."""
    status: ProbeStatus
    """Where it is, or how it ended."""
    reason: str | None
    """Reason for a failure, or a warning; null without either."""
    done_fraction: float
    """How far it is."""
    seconds: float | None
    """How long it ran; null until it ended."""
    measurements: tuple[Compared, ...]
    """What was measured, beside what was predicted."""
    summary: Mapping[str, Any] | None
    """What a profile or a memory timeline amounts to, and what was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that the verdict rests on."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    code: str
    """Stable name of the rule."""
    verdict: LaunchVerdict
    """The best verdict that it leaves."""
    message: str
    """What was found, with its numbers."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the job is expected to take."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    verdict: Verdict
    """Does it fit?"""
    oom_probability_fraction: float
    """Probability that the device peak exceeds the usable memory."""
    device_peak_bytes: Interval
    """Memory of the fullest GPU."""
    usable_bytes: float
    """Memory a job can use on this GPU."""
    step_seconds: Interval
    """One optimizer step."""
    mfu_fraction: Interval
    """Model FLOP utilisation."""
    gpu_hours: Interval | None
    """The whole run; null without training_tokens."""
    cost_usd: Interval | None
    """The whole run; null without training_tokens or a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reestimate:
    """The estimate before and after the measurements."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    before: Outlook
    """State at the creation of the check."""
    after: Outlook | None
    """Computed again with what was measured; null until then, and where nothing measured changes it."""
    assumptions: tuple[str, ...]
    """What carrying the measurements over to the whole job takes for granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deepened:
    """Extrapolation from two reduced depths of the model to its full depth: one replica on one device."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    quantity: str
    """What was measured at both depths: live_bytes_peak, allocated_peak or step."""
    depths: tuple[int, ...]
    """Layers of the models that were measured."""
    layers: int
    """Layers of the whole model."""
    each_layer: float
    """What one layer adds: bytes, or seconds."""
    measured: float
    """What the whole model would take: bytes, or seconds."""
    predicted: float | None
    """What is predicted of it in the probe's own configuration; null where no formula holds for the device."""
    ratio: float | None
    """Measured over predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCheck:
    """A launch check as it is now."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    id: str
    """lch_ and 32 hexadecimal digits."""
    status: LaunchStatus
    """Where it is."""
    error: str | None
    """Why it failed, with the command that mends it where there is one; null otherwise."""
    question: Annotated[Mapping[str, Any], Published("QuestionRequest")]
    """The question of the check, as sent."""
    estimate_id: str
    """What the estimate of that question is read by."""
    probes: tuple[ProbeAnswer, ...]
    """The requested probes."""
    time_budget_seconds: float
    """Time that the probes should keep within together."""
    on: Where
    """matching: on the cluster's own GPU alone; any: on what there is."""
    comparable: bool | None
    """Whether it ran on the cluster's own GPU; null until it ran."""
    worker: str | None
    """Who runs it; null while it waits."""
    environment: Environment | None
    """What it ran on; null until the first probe has reported it."""
    verdict: LaunchVerdict | None
    """May the job start? Null until the check succeeded."""
    reasons: tuple[Reason, ...]
    """What the verdict rests on; the worst first."""
    estimate: Reestimate
    """The estimate before and after."""
    depths: tuple[Deepened, ...]
    """Extrapolation from the step probe's two depths to the whole model."""
    assumptions: tuple[str, ...]
    """What was changed or left out so that it can be measured here in the time there is."""
    files: tuple[str, ...]
    """Files that its probes left."""
    created_at: str
    """Time of its creation, in UTC."""
    started_at: str | None
    """When it began; null while it waits."""
    finished_at: str | None
    """When it ended; null until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCheckRow:
    """A launch check in short."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    id: str
    """What it is read by."""
    status: LaunchStatus
    """Where it is."""
    verdict: LaunchVerdict | None
    """May the job start? Null until the check succeeded."""
    comparable: bool | None
    """Whether it ran on the cluster's own GPU; null until it ran."""
    gpu: str
    """Catalogue name of the cluster's GPU."""
    gpus: int
    """GPUs of the cluster."""
    device: str | None
    """Name of the device that it ran on; null until it ran."""
    worker: str | None
    """Who ran it; null while it waits."""
    probes: tuple[str, ...]
    """What was measured."""
    on: Where
    """matching: on the cluster's own GPU alone; any: on what there is."""
    estimate_id: str
    """What the estimate of its question is read by."""
    owner: str
    """Whose it is."""
    created_at: str
    """Time of its creation, in UTC."""
    finished_at: str | None
    """When it ended; null until then."""
