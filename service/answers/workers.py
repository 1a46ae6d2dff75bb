"""Capabilities of workers and requirements of jobs, matched before a job is claimed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval, Len

from service.estimator.question import DESCRIBED, STRICT, Count, Name

Label = Annotated[str, Len(0, 200)]
"""Value of a label."""

Labels = Annotated[Mapping[Name, Label], Len(0, 50)]
"""Labels that operators set on a worker, beside what it detects itself, e.g. {"rack": "7"}."""

RunnerName = Literal["local", "ray"]
"""Where a worker runs what it is given: on its own host, or on a Ray cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """GPUs of one kind that a worker may use."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: Name
    """Name as the driver tells it."""
    gpu: Name | None = None
    """Catalogue name; null where the catalogue holds no such GPU."""
    count: Count = 1
    """How many there are."""
    memory_bytes: Annotated[float, Interval(ge=0, le=1e15)] | None = None
    """Memory of one of them; null where the driver does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a worker can do."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    devices: Annotated[tuple[Device, ...], Len(0, 100)] = ()
    """Its GPUs, by kind; empty on a machine without any."""
    cpu_threads: Count = 1
    """Threads of its processors that it may use."""
    labels: Labels = field(default_factory=dict)
    """Labels that its operator set."""
    measures: bool = False
    """Whether it can measure: torch is there."""
    sweeps: bool = False
    """Whether it can work out estimates: the estimator is there."""
    runner: RunnerName = "local"
    """Where it runs what it is given."""
    nodes: Annotated[int, Interval(ge=1, le=1 << 20)] = 1
    """Machines that its devices are spread over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a job asks of a worker."""

    gpu: str | None = None
    """Catalogue name of the GPU; None for any device, a processor too."""
    gpus: int = 0
    """GPUs that it needs; 0 for none."""
    memory_bytes: float | None = None
    """Memory that each of them needs; None for any."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the worker has to bear."""
    measures: bool = False
    """Whether it has to be able to measure."""


def does_match(requirements: Requirements, capabilities: Capabilities) -> bool:
    """Whether a worker can do what a job asks.

    Args:
        requirements: what the job asks
        capabilities: what the worker can do

    Returns:
        whether it can

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
    """The device of a worker that suits a job.

    Args:
        requirements: what the job asks
        capabilities: what the worker can do

    Returns:
        the name of the first that suits, as the worker reported it; None where any will do

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
class SeenWorker:
    """A registered worker."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    id: str
    """Its name."""
    is_alive: bool
    """Whether it was heard of so lately that it is taken to be there."""
    is_busy: bool
    """Whether it runs a job, of any owner."""
    jobs: tuple[str, ...]
    """Ids of those of its jobs that are the caller's."""
    capabilities: Capabilities
    """What it can do."""
    first_seen_at: str
    """When it was first heard of, in UTC."""
    last_seen_at: str
    """When it was last heard of, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job that a worker was given."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    id: str
    """What it is."""
    kind: str
    """What is to be done."""
    attempt: int
    """Which attempt this is."""
    lease: str
    """What the worker proves its claim with in all requests about this job; valid only with the key that claimed it."""
    payload: Mapping[str, Any]
    """What is to be done, in full."""
    timeout_seconds: float
    """Longest time that it may take."""
    lease_seconds: float
    """Time after which a worker that is not heard of loses it."""
    device: str | None
    """Which of the worker's devices it is for, by the name that the worker reported; null for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaim:
    """What there is to do for a worker."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    job: ClaimedJob
    """The job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """What a worker is to do with its job."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    state: Literal["run", "cancel"]
    """Continue, or stop because a caller cancelled the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """Workers that were heard of."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    items: tuple[SeenWorker, ...]
    """The workers, in the order of their names."""
    next_cursor: None = None
    """Always null: all of them are here."""
