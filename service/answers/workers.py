"""Capabilities of workers and requirements of jobs, matched before a job is claimed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval, Len

from service.estimator.question import Count, Documented, Name, Strict

Label = Annotated[str, Len(0, 200)]
"""Value of a label."""

Labels = Annotated[Mapping[Name, Label], Len(0, 50)]
"""Labels that operators set on a worker, beside what it detects itself, e.g. {"rack": "7"}."""

RunnerName = Literal["local", "ray"]
"""Runner of a worker: its own host, or a Ray cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Strict):
    """GPUs of one kind that a worker may use."""

    name: Name
    """Name by the driver."""
    gpu: Name | None = None
    """Catalogue name; null where the catalogue holds no such GPU."""
    count: Count = 1
    """Number of devices."""
    memory_bytes: Annotated[float, Interval(ge=0, le=1e15)] | None = None
    """Memory of one device; null where the driver does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities(Strict):
    """Capabilities of a worker."""

    devices: Annotated[tuple[Device, ...], Len(0, 100)] = ()
    """Its GPUs, by kind; empty on a machine without any."""
    cpu_threads: Count = 1
    """Usable threads of its processors."""
    labels: Labels = field(default_factory=dict)
    """Labels from its operator."""
    measures: bool = False
    """Whether it can measure: torch is installed."""
    sweeps: bool = False
    """Whether it can compute estimates: the estimator's packages are installed."""
    runner: RunnerName = "local"
    """Its runner."""
    nodes: Annotated[int, Interval(ge=1, le=1 << 20)] = 1
    """Machines of its devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """Requirements of a job on its worker."""

    gpu: str | None = None
    """Catalogue name of the GPU; None for any device, also a processor."""
    gpus: int = 0
    """Least number of GPUs; 0 for none."""
    memory_bytes: float | None = None
    """Least memory of each GPU; None for any."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the worker must have."""
    measures: bool = False
    """Whether the worker must be able to measure."""


def does_match(requirements: Requirements, capabilities: Capabilities) -> bool:
    """Whether a worker meets the requirements of a job.

    >>> h100 = Capabilities(devices=(Device(name="NVIDIA H100", gpu="h100-sxm5-80gb", count=4),))
    >>> [does_match(Requirements(gpu="h100-sxm5-80gb", gpus=gpus), h100) for gpus in (4, 8)]
    [True, False]
    """
    if requirements.measures and not capabilities.measures:
        return False
    if any(capabilities.labels.get(name) != value for name, value in requirements.labels.items()):
        return False
    needs_none = requirements.gpu is None and not requirements.gpus
    return needs_none or any(_does_suit(requirements, device) for device in capabilities.devices)


def device_for(requirements: Requirements, capabilities: Capabilities) -> str | None:
    """The name of a worker's first device that suits a job, as the worker reported it; None where any will do.

    >>> both = Capabilities(devices=(Device(name="A", gpu="a", count=8), Device(name="B", gpu="b", count=4)))
    >>> device_for(Requirements(gpu="b", gpus=4), both)
    'B'
    """
    if requirements.gpu is None and not requirements.gpus:
        return None
    return next((device.name for device in capabilities.devices if _does_suit(requirements, device)), None)


def _does_suit(requirements: Requirements, device: Device) -> bool:
    least_bytes = requirements.memory_bytes or 0.0
    return (
        requirements.gpu in (None, device.gpu)
        and device.count >= max(requirements.gpus, 1)
        and (device.memory_bytes or 0.0) >= least_bytes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWorker(Documented):
    """A registered worker."""

    id: str
    """Its name."""
    is_alive: bool
    """Whether it sent a request lately."""
    is_busy: bool
    """Whether it runs a job, of any owner."""
    jobs: tuple[str, ...]
    """Ids of its jobs that belong to the caller."""
    capabilities: Capabilities
    """Its capabilities."""
    first_seen_at: str
    """Time of its first request, in UTC."""
    last_seen_at: str
    """Time of its last request, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob(Documented):
    """A job of a worker."""

    id: str
    """Its id."""
    kind: str
    """Kind of the job."""
    attempt: int
    """Number of the attempt."""
    lease: str = field(repr=False)
    """Token that proves the claim in all requests about this job; valid only with the key that claimed it."""
    payload: Mapping[str, Any]
    """Content of the job."""
    timeout_seconds: float
    """Longest duration."""
    lease_seconds: float
    """Time without a heartbeat after which the lease expires."""
    device: str | None
    """Device of the worker for this job, by the name that the worker reported; null for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaim(Documented):
    """Answer to a claim."""

    job: ClaimedJob
    """The job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer(Documented):
    """Answer to a heartbeat."""

    state: Literal["run", "cancel"]
    """Continue, or stop because a caller cancelled the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList(Documented):
    """Registered workers."""

    items: tuple[SeenWorker, ...]
    """The workers, in the order of their names."""
    next_cursor: None = None
    """Always null: the list is complete."""
