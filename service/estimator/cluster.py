"""What does it run on: how many of which GPU, wired how, failing how often, on which electricity?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Interval, Len, Lt

from service.estimator.measured_step import MeasuredStep
from service.estimator.noun import STRICT, Degree, Name

Ratio = Annotated[float, Ge(0), Lt(10)]
"""A share of something, or a small multiple of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What it runs on: how many of which GPU, how they are wired, how often they fail and what they draw."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    gpu: Name
    """Catalogue name of the GPU."""
    gpus: Degree
    """GPUs in all."""
    gpus_per_node: Annotated[int, Interval(ge=1, le=1024)] = 8
    """GPUs in one node."""
    scale_up_gpus: Annotated[int, Interval(ge=1, le=1 << 16)] | None = None
    """GPUs that share the fast link (NVLink domain); the GPU's own where absent."""
    inter_node_bytes_per_s: Annotated[float, Ge(1e3), Lt(1e15)] | None = None
    """Network rate of one GPU, one direction; the GPU's usual adapter where absent."""
    network_oversubscription: Annotated[float, Interval(ge=1, le=1024)] = 1.0
    """What all adapters can send, over what the network carries between domains at once; 1 for a full fat tree."""
    network_reduction: bool = False
    """The switches between domains add (SHARP), so an all-reduce sends each byte out once, not twice."""
    measured_steps: Annotated[tuple[MeasuredStep, ...], Len(0, 1024)] = ()
    """Own steps on such a cluster with the same software: what was predicted of each, and what it took. They move later
    predictions and narrow their intervals as far as they warrant."""
    power_limit_watts: Annotated[float, Ge(1), Lt(1e6)] | None = None
    """Power that one GPU is limited to, below which it lowers its clock; its rated power where absent."""
    failures_per_gpu_hour: Annotated[float, Ge(1e-12), Lt(1)] | None = None
    """Interruptions of a job for each GPU-hour, 1 / MTBF; 1.97e-5, as Llama 3 405B had them, where absent."""
    restart_seconds: Annotated[float, Ge(0), Lt(1e7)] | None = None
    """Time from an interruption to the first new step; 600 where absent."""
    spare_fraction: Annotated[float, Ge(0), Lt(1)] | None = None
    """Spare GPUs over GPUs of the job, rounded up to whole nodes: idle, and paid for; none where absent."""
    grid_region: Name | None = None
    """Where it stands, as GET /v1/regions lists it: a cloud's region, e.g. gcp:us-central1, or a country, e.g. USA; its
    electricity decides the carbon, and its operator the pue where that is known."""
    grid_kg_co2e_per_kwh: Annotated[float, Ge(0), Lt(10)] | None = None
    """Carbon intensity of its electricity; that of grid_region where absent, and no carbon without either."""
    pue: Annotated[float, Ge(1), Lt(10)] | None = None
    """Power usage effectiveness: energy of the building over that of its machines; that of grid_region, else 1.1, where
    absent."""
    busy_power_fraction: Ratio | None = None
    """Power of a node at work over its rated power; 0.76 where absent."""
    idle_power_fraction: Ratio | None = None
    """Power of a node that waits (spares, restarts) over its rated power; 0.2 where absent."""
    host_power_fraction: Ratio | None = None
    """Rated power of hosts, network and fans over that of the GPU boards; 0.82, as in a DGX H100, where absent."""
