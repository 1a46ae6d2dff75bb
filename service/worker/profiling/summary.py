"""What did the profiled steps spend their time on? Each by role as TensorBoard shows it, then what could be better."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from service.worker.profiling.classes import device_seconds_by_kind, host_seconds_by_kind
from service.worker.profiling.spans import Span, common, length_seconds, merged, without
from service.worker.profiling.trace import DATA, STEP, Event, Role

ROLES: tuple[Role, ...] = tuple(role for role in get_args(Role) if role not in ("step", "annotation"))
"""Roles in the order in which they claim time: a moment counts for the first of them that is there.
Source: torch-tb-profiler 0.4.3 profiler/overall_parser.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One profiled step."""

    name: str
    """Its number."""
    span: Span
    """From when the host begins it, or the device has done the one before, until both are done with it."""
    host: Span
    """The host's part."""


_LAUNCHES = ("LaunchKernel", "GraphLaunch")
_SYNCHRONISATIONS = ("Synchronize", "cudaMemcpy", "hipMemcpy", "WaitEvent")


def summary_of(events: Sequence[Event]) -> dict[str, Any]:
    """What a trace amounts to.

    Args:
        events: its events, in order

    Returns:
        steps, each by role; sums over the steps by kind of work, and what waits for what [s]
    """
    steps = steps_of(events)
    spans = [step.span for step in steps]
    return {
        "on": "device" if _has_device(events) else "host",
        "steps": [_step(step, events) for step in steps],
        "kinds_seconds": _kinds(events, spans),
        "copies": _copies(events, spans),
        "synchronisations": _synchronisations(events, spans),
    }


def _has_device(events: Iterable[Event]) -> bool:
    return any(event.on_device for event in events)


def steps_of(events: Sequence[Event]) -> list[Step]:
    """The steps of a trace; all of it where it names none.

    Args:
        events: events of a trace

    Returns:
        the steps, in order
    """
    hosts = [event for event in events if event.role == "step"]
    if not hosts and events:
        whole = (min(one.start_seconds for one in events), max(one.end_seconds for one in events))
        return [Step(name="0", span=whole, host=whole)]
    done = {one.correlation: one.end_seconds for one in events if one.on_device and one.correlation is not None}
    calls = [one for one in events if one.role == "runtime"]
    found: list[Step] = []
    for host in hosts:
        own = [one.correlation for one in calls if _contains(host, one)]
        ends = [done[one] for one in own if one in done]
        start = max(host.start_seconds, found[-1].span[1]) if done and found else host.start_seconds
        name, span = host.name.removeprefix(STEP), (start, max(host.end_seconds, start, *ends))
        found.append(Step(name=name, span=span, host=(host.start_seconds, host.end_seconds)))
    return found


def _contains(outer: Event, inner: Event) -> bool:
    return outer.start_seconds <= inner.start_seconds and inner.end_seconds <= outer.end_seconds


def _spans(events: Iterable[Event], *roles: str) -> list[Span]:
    return merged((event.start_seconds, event.end_seconds) for event in events if event.role in roles)


def _step(step: Step, events: Sequence[Event]) -> dict[str, Any]:
    """One step: its time by role, what of communication is exposed and could be hidden, idle device, launches."""
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
    has_device = _has_device(events)
    return {
        "step": step.name,
        "seconds": length_seconds([span]),
        **parts,
        "other_seconds": length_seconds(left),
        **_overlap(span, device if has_device else near),
        "waiting_for_data_seconds": length_seconds(common([span], _waiting(near))),
        "device_idle_seconds": length_seconds(without([span], _spans(device, *ROLES))) if has_device else None,
        "launches": len(launching),
        "launch_seconds": length_seconds(merged((one.start_seconds, one.end_seconds) for one in launching)),
    }


def _waiting(events: Iterable[Event]) -> list[Span]:
    """When the next batch was awaited."""
    return merged((event.start_seconds, event.end_seconds) for event in events if event.name.startswith(DATA))


def _overlap(span: Span, events: Sequence[Event]) -> dict[str, float]:
    """Communication that nothing runs beside, and as much of it as could hide behind work that runs alone."""
    sent = common([span], _spans(events, "communication"))
    work = common([span], _spans(events, "kernel", "cpu_op"))
    exposed, alone = length_seconds(without(sent, work)), length_seconds(without(work, sent))
    return {
        "computing_seconds": length_seconds(work),
        "communicating_seconds": length_seconds(sent),
        "exposed_communication_seconds": exposed,
        "could_overlap_seconds": min(exposed, alone),
    }


def _inside(events: Iterable[Event], spans: Sequence[Span]) -> list[Event]:
    """Events that begin in a step."""
    return [event for event in events if any(start <= event.start_seconds < end for start, end in spans)]


def _kinds(events: Sequence[Event], spans: Sequence[Span]) -> Mapping[str, float]:
    inside = _inside(events, spans)
    if _has_device(events):
        return device_seconds_by_kind(event for event in inside if event.on_device)
    return host_seconds_by_kind(event for event in inside if event.role in ("cpu_op", "communication", "annotation"))


def _copies(events: Sequence[Event], spans: Sequence[Span]) -> dict[str, dict[str, float]]:
    """Copies between host and device, by direction."""
    found: dict[str, dict[str, float]] = {}
    for event in _inside(events, spans):
        direction = next((way for way in ("HtoD", "DtoH") if event.role == "memcpy" and way in event.name), None)
        if direction is not None:
            way = {"HtoD": "host_to_device", "DtoH": "device_to_host"}[direction]
            told = found.setdefault(way, {"count": 0, "bytes": 0, "seconds": 0.0})
            told["count"] += 1
            told["bytes"] += event.bytes
            told["seconds"] += event.end_seconds - event.start_seconds
    return found


def _synchronisations(events: Sequence[Event], spans: Sequence[Span]) -> dict[str, dict[str, float]]:
    """Calls in which the host waits for the device, by name."""
    found: dict[str, dict[str, float]] = {}
    for event in _inside(events, spans):
        waits = any(word in event.name for word in _SYNCHRONISATIONS) and "Async" not in event.name
        if event.role == "runtime" and waits:
            told = found.setdefault(event.name, {"count": 0, "seconds": 0.0})
            told["count"] += 1
            told["seconds"] += event.end_seconds - event.start_seconds
    return found
