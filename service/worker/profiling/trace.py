"""What does a Chrome trace of torch's profiler say happened? Its events, each with its role."""

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Role = Literal["kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_op", "step", "annotation"]

MICROSECONDS_PER_S = 1e6
"""Unit of times in a Chrome trace. Source: Trace Event Format, ts and dur."""

STEP = "ProfilerStep#"
"""How the profiler names a step. Source: torch.profiler.profile.step."""

COLLECTIVES = tuple(
    f"{library}:{name}"
    for library in ("nccl", "gloo")
    for name in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)
"""Names of collective operations on the host. Source: torch-tb-profiler 0.4.3 profiler/trace.py."""

DATA = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
"""How a loader of data names the time in which the next batch is awaited; newer traces have it as an annotation.
Source: torch.utils.data.dataloader."""

_CATEGORIES: Mapping[str, Role] = {
    "kernel": "kernel",
    "memcpy": "memcpy",
    "gpu_memcpy": "memcpy",
    "memset": "memset",
    "gpu_memset": "memset",
    "runtime": "runtime",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "hip_runtime": "runtime",
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "python": "cpu_op",
    "user_annotation": "annotation",
}
"""Roles of the categories of a trace. Source: torch-tb-profiler 0.4.3 profiler/trace.py; newer names of the runtime:
pytorch/kineto libkineto/src/ActivityType.cpp."""

_DEVICE_CATEGORIES = ("kernel", "memcpy", "gpu_memcpy", "memset", "gpu_memset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that took time."""

    role: Role
    """What it counts as."""
    name: str
    """Its name."""
    start_seconds: float
    """When it began, since the first of them did."""
    end_seconds: float
    """When it ended."""
    lane: str
    """Thread or stream that it ran on."""
    on_device: bool
    """Whether a device did it."""
    correlation: int | None
    """Number that a launch on the host shares with what it launched."""
    bytes: int
    """Bytes that it copied."""


def read_trace(path: Path) -> list[Event]:
    """The events of a trace.

    Args:
        path: the file; compressed where its name ends in .gz

    Returns:
        the events, in order
    """
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return trace_events(json.loads(text)["traceEvents"])


def trace_events(raw: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Events with a duration and a role.

    Args:
        raw: events as a trace has them

    Returns:
        the events, in order
    """
    raw = [one for one in raw if one.get("ph") == "X"]
    collective = _collective_ids(raw)
    origin = min((float(one["ts"]) for one in raw), default=0.0)
    found = []
    for one in raw:
        role = _role(one, collective)
        if role is not None:
            given = one.get("args", {})
            start = (float(one["ts"]) - origin) / MICROSECONDS_PER_S
            found.append(
                Event(
                    role=role,
                    name=str(one["name"]),
                    start_seconds=start,
                    end_seconds=start + float(one.get("dur", 0)) / MICROSECONDS_PER_S,
                    lane=f"{one.get('pid')}/{one.get('tid')}",
                    on_device=_category(one) in _DEVICE_CATEGORIES,
                    correlation=given.get("correlation"),
                    bytes=int(given.get("bytes", 0)),
                )
            )
    return sorted(found, key=lambda event: event.start_seconds)


def _category(one: Mapping[str, Any]) -> str:
    return str(one.get("cat", "")).lower()


def _outer_id(one: Mapping[str, Any]) -> Any:
    given = one.get("args", {})
    return given.get("External id", given.get("external id"))


def _collective_ids(raw: Iterable[Mapping[str, Any]]) -> set[Any]:
    """Numbers of collective operations on the host, which the kernels that they launch carry too."""
    return {_outer_id(one) for one in raw if one["name"] in COLLECTIVES} - {None}


def _role(one: Mapping[str, Any], collective: set[Any]) -> Role | None:
    role = _CATEGORIES.get(_category(one))
    name = str(one["name"])
    if role == "kernel":
        return "communication" if _outer_id(one) in collective or name.startswith("nccl") else role
    if role not in ("cpu_op", "annotation"):
        return role
    if name.startswith(STEP):
        return "step"
    if name in COLLECTIVES:
        return "communication"
    return "dataloader" if role == "cpu_op" and name.startswith(DATA) else role
