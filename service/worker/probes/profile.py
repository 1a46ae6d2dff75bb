"""A profile of training steps: a trace for TensorBoard and Chrome's viewer, and its summary.

The summary has time by role as TensorBoard shows it, then what could be better. Torch is imported by `run` alone, so
that a summary of a trace needs none.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import inf
from pathlib import Path
from tomllib import loads
from typing import Any, Literal, get_args

from service.worker.probing import ProbeContext, ProbeResult
from service.worker.supported import step_model, step_recipe

Span = tuple[float, float]
"""A beginning and an end [s]."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """The fewest spans that cover the same time.

    >>> merged([(4, 6), (0, 2), (1, 3)])
    [(0, 3), (4, 6)]
    """
    union: list[Span] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        elif end > start:
            union.append((start, end))
    return union


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Intersection of two sets of spans.

    >>> common([(0, 3), (4, 6)], [(2, 5)])
    [(2, 3), (4, 5)]
    """
    shared: list[Span] = []
    first = second = 0
    while first < len(one) and second < len(other):
        start, end = max(one[first][0], other[second][0]), min(one[first][1], other[second][1])
        if start < end:
            shared.append((start, end))
        if one[first][1] < other[second][1]:
            first += 1
        else:
            second += 1
    return shared


def without(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Difference of two sets of spans.

    >>> without([(0, 3), (4, 6)], [(2, 5)])
    [(0, 2), (5, 6)]
    """
    starts, ends = [start for start, _ in other], [end for _, end in other]
    return common(one, list(zip([-inf, *ends], [*starts, inf], strict=True)))


def length_seconds(spans: Iterable[Span]) -> float:
    """Length of merged spans.

    >>> length_seconds([(0, 3), (4, 6)])
    5
    """
    return sum(end - start for start, end in spans)


Role = Literal["kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_op", "step", "annotation"]

MICROSECONDS_PER_S = 1e6
"""Unit of times in a Chrome trace. Source: Trace Event Format, ts and dur."""

STEP = "ProfilerStep#"
"""Prefix of the profiler's names of steps. Source: torch.profiler.profile.step."""

COLLECTIVES = tuple(
    f"{library}:{name}"
    for library in ("nccl", "gloo")
    for name in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)
"""Names of collective operations on the host. Source: torch-tb-profiler 0.4.3 profiler/trace.py."""

DATA = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
"""Name of the wait of a data loader for the next batch; newer traces have it as an annotation. Source:
torch.utils.data.dataloader."""

_NAMES = loads(files("service.worker.probes").joinpath("profile.toml").read_text(encoding="utf-8"))
_CATEGORIES: Mapping[str, Role] = _NAMES["categories"]

_DEVICE_CATEGORIES = ("kernel", "memcpy", "gpu_memcpy", "memset", "gpu_memset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a trace."""

    role: Role
    name: str
    start_seconds: float
    """Start, relative to the first event."""
    end_seconds: float
    lane: str
    """Thread or stream."""
    on_device: bool
    correlation: int | None
    """Number that a launch on the host shares with its kernel."""
    bytes: int


def read_trace(path: Path) -> list[Event]:
    """The events of a trace."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return trace_events(json.loads(text)["traceEvents"])


def trace_events(raw: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Events with a duration and a role."""
    raw = [one for one in raw if one.get("ph") == "X"]
    collective = {_outer_id(one) for one in raw if one["name"] in COLLECTIVES} - {None}  # their kernels have them too
    origin = min((float(one["ts"]) for one in raw), default=0.0)
    events = []
    for one in raw:
        role = _role(one, collective)
        if role is not None:
            args = one.get("args", {})
            start = (float(one["ts"]) - origin) / MICROSECONDS_PER_S
            events.append(
                Event(
                    role=role,
                    name=str(one["name"]),
                    start_seconds=start,
                    end_seconds=start + float(one.get("dur", 0)) / MICROSECONDS_PER_S,
                    lane=f"{one.get('pid')}/{one.get('tid')}",
                    on_device=_category(one) in _DEVICE_CATEGORIES,
                    correlation=args.get("correlation"),
                    bytes=int(args.get("bytes", 0)),
                )
            )
    return sorted(events, key=lambda event: event.start_seconds)


def _category(one: Mapping[str, Any]) -> str:
    return str(one.get("cat", "")).lower()


def _outer_id(one: Mapping[str, Any]) -> Any:
    args = one.get("args", {})
    return args.get("External id", args.get("external id"))


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


OPTIMIZER = "Optimizer.step#"
"""Prefix of the profiler's names of an optimizer's step. Source: torch.optim.Optimizer.profile_hook_step."""

_PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _NAMES["patterns"].items()}


def kind_of(name: str) -> str:
    """The kind of work of a kernel or operation.

    >>> kind_of("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>"), kind_of("aten::mul")
    ('gemm', 'elementwise')
    >>> kind_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), kind_of("unknown")
    ('communication', 'other')
    """
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(name)), "other")


def host_seconds_by_kind(events: Iterable[Event]) -> dict[str, float]:
    """Seconds of operations on a processor by kind, without nested ones; an optimizer's step counts as a whole."""
    seconds: dict[str, float] = {}
    open_events: dict[str, list[tuple[Event, str]]] = {}
    for event in sorted(events, key=lambda one: (one.start_seconds, -one.end_seconds)):
        stack = open_events.setdefault(event.lane, [])
        while stack and stack[-1][0].end_seconds <= event.start_seconds:
            stack.pop()
        is_update = event.name.startswith(OPTIMIZER) or (bool(stack) and stack[-1][1] == "optimizer")
        kind = "optimizer" if is_update else kind_of(event.name)
        spent = event.end_seconds - event.start_seconds
        seconds[kind] = seconds.get(kind, 0.0) + spent
        if stack:
            seconds[stack[-1][1]] -= spent
        stack.append((event, kind))
    return seconds


ROLES: tuple[Role, ...] = tuple(role for role in get_args(Role) if role not in ("step", "annotation"))
"""Roles by precedence: a moment counts for the first role that is active. Source: torch-tb-profiler 0.4.3
profiler/overall_parser.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One profiled step."""

    name: str
    span: Span
    """From the host's start, or the device's end of the step before, until both have ended."""
    host: Span
    """The host's part."""


_LAUNCHES = ("LaunchKernel", "GraphLaunch")
_DIRECTIONS = {"HtoD": "host_to_device", "DtoH": "device_to_host"}
_SYNCHRONISATIONS = ("Synchronize", "cudaMemcpy", "hipMemcpy", "WaitEvent")


def summary_of(events: Sequence[Event]) -> dict[str, Any]:
    """Summary of a trace."""
    steps, has_device = steps_of(events), any(event.on_device for event in events)
    inside = _inside(events, [step.span for step in steps])
    copies = (
        (direction, event)
        for event in inside
        for mark, direction in _DIRECTIONS.items()
        if event.role == "memcpy" and mark in event.name
    )
    waits = (
        (event.name, event)
        for event in inside
        if event.role == "runtime" and "Async" not in event.name
        if any(word in event.name for word in _SYNCHRONISATIONS)
    )
    return {
        "on": "device" if has_device else "host",
        "steps": [_step_summary(step, events, has_device=has_device) for step in steps],
        "kinds_seconds": _kinds(inside, has_device=has_device),
        "copies": _totals(copies, has_bytes=True),
        "synchronisations": _totals(waits, has_bytes=False),
    }


def steps_of(events: Sequence[Event]) -> list[Step]:
    """The steps of a trace; the whole trace where it names none."""
    hosts = [event for event in events if event.role == "step"]
    if not hosts and events:
        whole = (min(one.start_seconds for one in events), max(one.end_seconds for one in events))
        return [Step(name="0", span=whole, host=whole)]
    done = {one.correlation: one.end_seconds for one in events if one.on_device and one.correlation is not None}
    calls = [one for one in events if one.role == "runtime"]
    steps: list[Step] = []
    for host in hosts:
        own = [
            one.correlation
            for one in calls
            if host.start_seconds <= one.start_seconds and one.end_seconds <= host.end_seconds
        ]
        ends = [done[one] for one in own if one in done]
        start = max(host.start_seconds, steps[-1].span[1]) if done and steps else host.start_seconds
        name, span = host.name.removeprefix(STEP), (start, max(host.end_seconds, start, *ends))
        steps.append(Step(name=name, span=span, host=(host.start_seconds, host.end_seconds)))
    return steps


def _spans(events: Iterable[Event], *roles: str) -> list[Span]:
    """Merged spans of events, of some roles where given."""
    return merged((event.start_seconds, event.end_seconds) for event in events if not roles or event.role in roles)


def _step_summary(step: Step, events: Sequence[Event], *, has_device: bool) -> dict[str, Any]:
    """One step: its time by role, exposed communication and the part that could be hidden, idle device, launches."""
    span = step.span
    near = [event for event in events if event.end_seconds > span[0] and event.start_seconds < span[1]]
    device = [event for event in near if event.on_device]
    roles = {role: common([span], _spans(near, role)) for role in ROLES}
    left: list[Span] = [span]
    parts: dict[str, float] = {}
    for role in ROLES:
        parts[f"{role}_seconds"] = length_seconds(common(left, roles[role]))
        left = without(left, roles[role])
    launching = [one for one in _inside(events, [step.host]) if any(word in one.name for word in _LAUNCHES)]
    work_on = device if has_device else near
    sent, work = common([span], _spans(work_on, "communication")), common([span], _spans(work_on, "kernel", "cpu_op"))
    exposed, alone = length_seconds(without(sent, work)), length_seconds(without(work, sent))
    return {
        "step": step.name,
        "seconds": length_seconds([span]),
        **parts,
        "other_seconds": length_seconds(left),
        "computing_seconds": length_seconds(work),
        "communicating_seconds": length_seconds(sent),
        "exposed_communication_seconds": exposed,
        "could_overlap_seconds": min(exposed, alone),  # what work that runs alone could hide
        "waiting_for_data_seconds": length_seconds(
            common([span], _spans(one for one in near if one.name.startswith(DATA)))
        ),
        "device_idle_seconds": length_seconds(without([span], _spans(device, *ROLES))) if has_device else None,
        "launches": len(launching),
        "launch_seconds": length_seconds(_spans(launching)),
    }


def _inside(events: Iterable[Event], spans: Sequence[Span]) -> list[Event]:
    return [event for event in events if any(start <= event.start_seconds < end for start, end in spans)]


def _kinds(events: Sequence[Event], *, has_device: bool) -> Mapping[str, float]:
    """Seconds by kind of work: on a device those of kernels and copies, where parallel streams each count."""
    if not has_device:
        seconds = host_seconds_by_kind(one for one in events if one.role in ("cpu_op", "communication", "annotation"))
    else:
        seconds = {}
        for event in events:
            if event.on_device:
                kind = "copies" if event.role in ("memcpy", "memset") else kind_of(event.name)
                seconds[kind] = seconds.get(kind, 0.0) + (event.end_seconds - event.start_seconds)
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _totals(named: Iterable[tuple[str, Event]], *, has_bytes: bool) -> dict[str, dict[str, float]]:
    """Number, bytes where they count, and seconds of events by name."""
    totals: dict[str, dict[str, float]] = {}
    for name, event in named:
        total = totals.setdefault(name, {"count": 0, **({"bytes": 0} if has_bytes else {}), "seconds": 0.0})
        total["count"] += 1
        total["seconds"] += event.end_seconds - event.start_seconds
        if has_bytes:
            total["bytes"] += event.bytes
    return totals


TRACE = "trace.json.gz"
"""Name of the file; TensorBoard requires `.pt.trace.json.gz` at its end."""

WAIT, WARM_UP, ACTIVE = 1, 1, 3
"""Steps before the profiler starts, those that it discards, and those that it records. Source:
torch.profiler.schedule, as torch's tutorials use it."""


def run(parameters: Mapping[str, Any], context: ProbeContext) -> ProbeResult:
    """Profile three steps of the model at one depth."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    from torch.utils.data import DataLoader, IterableDataset

    from service.worker.decoder import trainer_of

    recipe, depth = step_recipe(parameters["recipe"]), int(parameters["depth"])
    model = step_model(parameters["model"], depth)
    trainer = trainer_of(model, recipe, context.device)

    class Batches(IterableDataset):
        """Random tokens without end, which the host creates batch after batch as a loader of real data does."""

        def __iter__(self) -> Iterator[torch.Tensor]:
            while True:
                yield torch.randint(model.vocab_size, trainer.tokens.shape)

    path = context.folder / TRACE
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if trainer.device.type == "cuda" else [])]
    loader = iter(DataLoader(Batches(), batch_size=None))
    steps = WAIT + WARM_UP + ACTIVE
    with profile(
        activities=activities,
        schedule=schedule(wait=WAIT, warmup=WARM_UP, active=ACTIVE, repeat=1),
        on_trace_ready=lambda profiled: profiled.export_chrome_trace(str(path)),
    ) as profiler:
        for step in range(steps):
            context.report(step / steps, f"step {step + 1} of {steps}")
            trainer.tokens = next(loader).to(trainer.device, non_blocking=True)
            trainer.step()
            profiler.step()
    return ProbeResult(summary={**summary_of(read_trace(path)), "depth": depth, "files": [TRACE]})
