"""Launch checks: measurements beside predictions, a verdict and its reasons."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from service.answers.names import Published
from service.calibration.records import Environment, ProbeName, ProbeStatus
from service.estimator.answer import Interval, Verdict
from service.estimator.question import Documented

LaunchStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
"""State of a launch check."""

LaunchVerdict = Literal["go", "caution", "no-go"]
"""Whether the job may start."""

Where = Literal["matching", "any"]
"""Workers on which it may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredValue(Documented):
    """A measured quantity over its repeats."""

    low: float
    """10th percentile."""
    value: float
    """Median."""
    high: float
    """90th percentile."""
    repeats: int
    """Number of repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared(Documented):
    """A measurement beside its prediction."""

    operation: str
    """Measured operation."""
    shape: Mapping[str, Any]
    """Its parameters among the measurements of the probe: sizes, number format, kernel."""
    quantity: str
    """Measured quantity: seconds, bytes or bytes_per_s."""
    measured: MeasuredValue
    """The measured value."""
    predicted: Interval | None
    """The prediction; null where no formula covers the measured device."""
    ratio: float | None
    """Measured over predicted; null without a prediction."""
    count: float | None
    """Occurrences in one optimizer step of the job on one rank; null where it is no part of a step."""
    relative_error_fraction: float | None
    """Largest error of the result over the largest number of a reference in higher precision; null without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer(Documented):
    """Result of one probe."""

    probe: ProbeName
    """Name of the probe."""
    status: ProbeStatus
    """Its state."""
    reason: str | None
    """Reason for a failure, or a warning; null without either."""
    done_fraction: float
    """Fraction that is done."""
    seconds: float | None
    """Duration; null until it ended."""
    measurements: tuple[Compared, ...]
    """Its measurements beside their predictions."""
    summary: Mapping[str, Any] | None
    """Summary of a profile or a memory timeline, and missing measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(Documented):
    """One reason of the verdict."""

    code: str
    """Stable name of the rule."""
    verdict: LaunchVerdict
    """Best verdict under this reason."""
    message: str
    """The finding, with its numbers."""
    fix: str
    """The remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook(Documented):
    """Expected figures of the job."""

    verdict: Verdict
    """Verdict on the memory."""
    oom_probability_fraction: float
    """Probability that the device peak exceeds the usable memory."""
    device_peak_bytes: Interval
    """Memory of the GPU with the most."""
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
class Reestimate(Documented):
    """The estimate before and after the measurements."""

    before: Outlook
    """State at the creation of the check."""
    after: Outlook | None
    """Computed again with the measurements; null until then, and where no measurement changes it."""
    assumptions: tuple[str, ...]
    """Assumptions in applying the measurements to the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deepened(Documented):
    """Extrapolation from two reduced depths of the model to its full depth: one replica on one device."""

    quantity: str
    """Quantity measured at both depths: live_bytes_peak, allocated_peak or step."""
    depths: tuple[int, ...]
    """Layers of the measured models."""
    layers: int
    """Layers of the whole model."""
    each_layer: float
    """Addition of one layer: bytes, or seconds."""
    measured: float
    """Extrapolated value of the whole model: bytes, or seconds."""
    predicted: float | None
    """Its prediction in the probe's own configuration; null where no formula covers the device."""
    ratio: float | None
    """Measured over predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCheck(Documented):
    """Current state of a launch check."""

    id: str
    """lch_ and 32 hexadecimal digits."""
    status: LaunchStatus
    """Its state."""
    error: str | None
    """Reason of a failure, with the remedy where there is one; null otherwise."""
    question: Annotated[Mapping[str, Any], Published("QuestionRequest")]
    """The question of the check, as sent."""
    estimate_id: str
    """Id of the estimate of that question."""
    probes: tuple[ProbeAnswer, ...]
    """The requested probes."""
    time_budget_seconds: float
    """Planned time of all probes together."""
    on: Where
    """matching: only on the cluster's own GPU; any: on any worker."""
    comparable: bool | None
    """Whether it ran on the cluster's own GPU; null until it ran."""
    worker: str | None
    """Name of its worker; null while it waits."""
    environment: Environment | None
    """Device and software; null until the first probe has reported them."""
    verdict: LaunchVerdict | None
    """Whether the job may start; null until the check succeeded."""
    reasons: tuple[Reason, ...]
    """Reasons of the verdict, the worst first."""
    estimate: Reestimate
    """The estimate before and after."""
    depths: tuple[Deepened, ...]
    """Extrapolation from the step probe's two depths to the whole model."""
    assumptions: tuple[str, ...]
    """Changes and omissions so that it can be measured here in the given time."""
    files: tuple[str, ...]
    """Files of its probes."""
    created_at: str
    """Time of its creation, in UTC."""
    started_at: str | None
    """Time of its start; null while it waits."""
    finished_at: str | None
    """Time of its end; null until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCheckRow(Documented):
    """A launch check in short."""

    id: str
    """Its id."""
    status: LaunchStatus
    """Its state."""
    verdict: LaunchVerdict | None
    """Whether the job may start; null until the check succeeded."""
    comparable: bool | None
    """Whether it ran on the cluster's own GPU; null until it ran."""
    gpu: str
    """Catalogue name of the cluster's GPU."""
    gpus: int
    """GPUs of the cluster."""
    device: str | None
    """Name of the device that it ran on; null until it ran."""
    worker: str | None
    """Name of its worker; null while it waits."""
    probes: tuple[str, ...]
    """Its probes."""
    on: Where
    """matching: only on the cluster's own GPU; any: on any worker."""
    estimate_id: str
    """Id of the estimate of its question."""
    owner: str
    """Its owner."""
    created_at: str
    """Time of its creation, in UTC."""
    finished_at: str | None
    """When it ended; null until then."""
