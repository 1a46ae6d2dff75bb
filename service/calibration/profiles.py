"""Profiles: where the time of training steps goes, from a trace of torch's profiler."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, Literal, get_args

from service.calibration import traces
from service.calibration.records import DeviceKind, Environment, Measurement, ProbeRecord
from service.estimator.question import Documented

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


ROLES: tuple[traces.Role, ...] = tuple(role for role in get_args(traces.Role) if role not in ("step", "annotation"))
"""Roles by precedence. Source: torch-tb-profiler 0.4.3 profiler/overall_parser.py."""

MOST_STEPS = 64
"""Most steps of a profile. Source: a choice; people record 1 to 10."""
MOST_SHARED = 4
"""Steps to which an event belongs on average: two where the host is ahead of the device. Source: a choice."""
ROUNDING_SECONDS = 2e-6
"""By how much spans may cross that should nest. Source: a choice; in published traces it is 0.25 us."""
CROSSING_FRACTION = 0.01
"""Share of operations that may cross others, as those that end on another thread do. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One profiled step."""

    name: str
    span: Span
    """From the host's start, or the device's end of the step before, until both have ended."""
    host: Span
    """The host's part."""
    events: list[traces.Event] = field(default_factory=list)
    """Those of which a part lies in the step, or in the host's part."""


def steps_of(events: Sequence[traces.Event]) -> list[Step]:
    """The steps of a trace with their events; the whole trace where it names none."""
    hosts = sorted((event for event in events if event.role == "step"), key=lambda one: one.start_seconds)
    if len(hosts) > MOST_STEPS:
        fix = "record 3 to 10 of them: torch.profiler.schedule(wait=1, warmup=1, active=3)"
        raise traces.refused("too_long", f"the trace has {len(hosts)} steps, and {MOST_STEPS} are read", fix)
    if any(two.start_seconds < one.end_seconds - ROUNDING_SECONDS for one, two in pairwise(hosts)):
        message = "steps of the profiler overlap, so the file holds several processes or was merged"
        raise traces.refused("broken_nesting", message, "send the trace of one rank")
    steps = list(_spanned(hosts, events))
    if not hosts and events:
        whole = (events[0].start_seconds, max(one.end_seconds for one in events))
        steps = [Step(name="0", span=whole, host=whole)]
    ends, entries = [step.span[1] for step in steps], 0
    for event in events:
        for step in steps[bisect_right(ends, event.start_seconds) :]:
            if event.end_seconds <= step.host[0] and event.start_seconds < step.host[0]:
                break
            step.events.append(event)
            entries += 1
        if entries > MOST_SHARED * len(events):
            raise traces.refused("broken_nesting", "most events last longer than a step", traces.EXPORTED)
    return steps


def _spanned(hosts: Sequence[traces.Event], events: Sequence[traces.Event]) -> Iterator[Step]:
    """Steps from their spans on the host, and the ends of what they launched."""
    done = {one.correlation: one.end_seconds for one in events if one.on_device and one.correlation is not None}
    starts = [host.start_seconds for host in hosts]
    ends = [host.end_seconds for host in hosts]
    for one in events:
        place = bisect_right(starts, one.start_seconds) - 1
        is_inside = one.role == "runtime" and place >= 0 and one.end_seconds <= hosts[place].end_seconds
        if is_inside and one.correlation in done:
            ends[place] = max(ends[place], done[one.correlation])
    before = 0.0
    for host, end in zip(hosts, ends, strict=True):
        start = max(host.start_seconds, before)
        before = max(end, start)
        name = host.name.removeprefix(traces.STEP)
        yield Step(name=name, span=(start, before), host=(host.start_seconds, host.end_seconds))


_LAUNCHES = ("LaunchKernel", "GraphLaunch")
_DIRECTIONS = {"HtoD": "host_to_device", "DtoH": "device_to_host"}
_SYNCHRONISATIONS = ("Synchronize", "cudaMemcpy", "hipMemcpy", "WaitEvent")


def summary_of(events: Sequence[traces.Event]) -> dict[str, Any]:
    """Summary of a trace, as a worker sends it with its record."""
    steps, has_device = steps_of(events), any(event.on_device for event in events)
    inside = [event for step in steps for event in _beginning_in(step)]
    copies = (
        (direction, event)
        for event in inside
        for mark, direction in _DIRECTIONS.items()
        if event.role == "memcpy" and mark in event.name
    )
    waits = ((event.name, event) for event in inside if _is_wait(event))
    return {
        "on": "device" if has_device else "host",
        "steps": [_step_summary(step, has_device=has_device) for step in steps],
        "kinds_seconds": _kinds(inside, has_device=has_device),
        "copies": _totals(copies, has_bytes=True),
        "synchronisations": _totals(waits, has_bytes=False),
    }


def _beginning_in(step: Step) -> list[traces.Event]:
    return [event for event in step.events if _began(event, step.span)]


def _began(event: traces.Event, span: Span) -> bool:
    return span[0] <= event.start_seconds < span[1]


def _is_wait(event: traces.Event) -> bool:
    is_call = event.role == "runtime" and "Async" not in event.name
    return is_call and any(word in event.name for word in _SYNCHRONISATIONS)


def _spans(events: Iterable[traces.Event], *roles: str) -> list[Span]:
    return merged((event.start_seconds, event.end_seconds) for event in events if not roles or event.role in roles)


def _launches_of(step: Step) -> list[traces.Event]:
    calls = (one for one in step.events if any(word in one.name for word in _LAUNCHES))
    return [one for one in calls if _began(one, step.host)]


def _step_summary(step: Step, *, has_device: bool) -> dict[str, Any]:
    span, near = step.span, step.events
    device = [event for event in near if event.on_device]
    roles = {role: common([span], _spans(near, role)) for role in ROLES}
    left: list[Span] = [span]
    parts: dict[str, float] = {}
    for role in ROLES:
        parts[f"{role}_seconds"] = length_seconds(common(left, roles[role]))
        left = without(left, roles[role])
    launching = _launches_of(step)
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
            common([span], _spans(one for one in near if one.name.startswith(traces.DATA)))
        ),
        "device_idle_seconds": length_seconds(without([span], _spans(device, *ROLES))) if has_device else None,
        "launches": len(launching),
        "launch_seconds": length_seconds(_spans(launching)),
    }


def _kinds(events: Sequence[traces.Event], *, has_device: bool) -> Mapping[str, float]:
    """Seconds by kind of work: on a device those of kernels and copies, where parallel streams each count."""
    seconds: dict[str, float] = {}
    on_host = (one for one in events if one.role in ("cpu_op", "communication", "annotation"))
    for one in _device_segments(events, {}) if has_device else _host_segments(on_host, {}):
        kind = one.kind or "other"
        seconds[kind] = seconds.get(kind, 0.0) + one.end - one.start
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _totals(named: Iterable[tuple[str, traces.Event]], *, has_bytes: bool) -> dict[str, dict[str, float]]:
    totals: dict[str, dict[str, float]] = {}
    for name, event in named:
        total = totals.setdefault(name, {"count": 0, **({"bytes": 0} if has_bytes else {}), "seconds": 0.0})
        total["count"] += 1
        total["seconds"] += event.end_seconds - event.start_seconds
        if has_bytes:
            total["bytes"] += event.bytes
    return totals


@dataclass(frozen=True, slots=True)
class _Segment:
    """Time of one event without those inside it."""

    start: float
    end: float
    kind: str
    """Kind of work; empty where it is none, as in a call of the runtime or the host's own code."""
    event: traces.Event


_WHOLE = ("optimizer", "attention")
"""Kinds of an operation that count for the operations and kernels within it too."""


def _host_segments(events: Iterable[traces.Event], launched: dict[int, str]) -> Iterator[_Segment]:
    """Time on each thread by the innermost event; `launched` gets the kinds of launches within `_WHOLE`."""
    stacks: dict[str, list[tuple[traces.Event, str]]] = {}
    since: dict[str, float] = {}
    crossing = operations = 0
    for event in sorted(events, key=lambda one: (one.start_seconds, -one.end_seconds)):
        lane = event.lane
        if event.role == "communication":  # it ends when the last rank has sent, on no thread
            lane = f"{lane}/sent"
        stack = stacks.setdefault(lane, [])
        yield from _closed(stack, since, lane, event.start_seconds)
        kind = _host_kind(event, stack[-1][1] if stack else "")
        outer = stack[-1][0] if stack else event
        is_crossing = event.end_seconds > outer.end_seconds + ROUNDING_SECONDS
        if event.role == "annotation" and is_crossing:
            continue
        crossing += is_crossing and event.role == outer.role == "cpu_op"
        operations += event.role == "cpu_op"
        if event.correlation is not None and kind in _WHOLE:
            launched[event.correlation] = kind
        stack.append((event, kind))
        since[lane] = event.start_seconds
    for lane, stack in stacks.items():
        yield from _closed(stack, since, lane, inf)
    if crossing > CROSSING_FRACTION * operations:
        message = f"{crossing} operations of a thread end after the one in which they began"
        raise traces.refused("broken_nesting", message, traces.EXPORTED)


def _closed(
    stack: list[tuple[traces.Event, str]], since: dict[str, float], lane: str, now: float
) -> Iterator[_Segment]:
    """Time of the open events of a thread until now; those that have ended leave the stack."""
    while stack:
        event, kind = stack[-1]
        start, end = since[lane], min(event.end_seconds, now)
        if start < end:
            yield _Segment(start, end, kind, event)
            since[lane] = end
        if event.end_seconds > now:
            return
        stack.pop()


def _host_kind(event: traces.Event, outer: str) -> str:
    if event.name.startswith(traces.OPTIMIZER):
        return "optimizer"
    if outer in _WHOLE or event.role == "runtime":
        return outer if outer in _WHOLE else ""
    if event.name.startswith(traces.DATA):
        return "waiting_for_data"
    return outer if event.role == "annotation" else traces.kind_of(event.name)


def _device_segments(events: Iterable[traces.Event], launched: Mapping[int, str]) -> list[_Segment]:
    on_device = (one for one in events if one.on_device)
    return [_Segment(one.start_seconds, one.end_seconds, _device_kind(one, launched), one) for one in on_device]


def _device_kind(event: traces.Event, launched: Mapping[int, str]) -> str:
    if event.role == "communication":
        return "communication"
    if event.role in ("memcpy", "memset"):
        return "copies"
    inherited = launched.get(event.correlation) if event.correlation is not None else None
    return inherited or traces.kind_of(event.name)


PartKind = Literal[
    "gemm", "attention", "norm", "softmax_and_loss", "embedding", "reduction", "elementwise", "optimizer", "other",
    "exposed_communication", "copies", "waiting_for_data", "idle",
]  # fmt: skip
"""Parts of a step, by precedence."""

GapKind = Literal["waiting_for_data", "synchronisation", "operation", "host_code"]

NOT_RECORDED: tuple[str, GapKind] = ("host code", "host_code")

MOST_GAPS = 5
LEAST_COVERED = 0.5
"""Share of a gap that recorded events of the host must cover to explain it. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledPart(Documented):
    """One share of the step."""

    kind: PartKind
    """What the time goes to."""
    seconds: float
    """Time in which this is the first of the kinds that run; the parts sum to the step."""
    calls: int
    """Kernels, copies or operations that begin in the step."""
    longest: str | None
    """Name of the kernel or operation with the most time of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledCollective(Documented):
    """Collective operations of one kind in the step."""

    kind: str
    """all_reduce, all_gather, reduce_scatter, all_to_all, send (receiving too), broadcast or other."""
    calls: int
    """Operations that begin in the step."""
    bytes: float | None
    """Bytes of all of them on this rank, of what is sent and received the larger; null where the trace has none."""
    seconds: float
    """Time in which one of them runs, waiting for other ranks included."""
    exposed_seconds: float
    """Time in which nothing is computed beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledCopies(Documented):
    """Copies between host and device in one direction."""

    direction: str
    """host_to_device or device_to_host."""
    calls: int
    """Copies that begin in the step."""
    bytes: float
    """Their bytes."""
    seconds: float
    """Their time together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledGap(Documented):
    """A time in which nothing ran."""

    start_seconds: float
    """Beginning, from that of the step."""
    seconds: float
    """Length."""
    host: str
    """What the host did most of the time: an operation, a call of the runtime, or `host code` that is not recorded."""
    kind: GapKind
    """What that is."""
    after: str | None
    """Name of what ran before; null at the beginning."""
    before: str | None
    """Name of what ran next; null at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep(Documented):
    """One step of the trace."""

    name: str
    """The profiler's number of the step."""
    seconds: float
    """Wall time, from the host's start or the device's end of the step before, until both have ended."""
    computing_seconds: float
    """Time in which something is computed."""
    communicating_seconds: float
    """Time in which a collective operation runs."""
    exposed_communication_seconds: float
    """Time of these in which nothing is computed."""
    could_overlap_seconds: float
    """As much of it as the computation that runs alone could hide."""
    waiting_for_data_seconds: float
    """Time that the host waits for its data loader."""
    idle_seconds: float | None
    """Time in which no kernel and no copy runs; null without a device."""
    launches: int
    """Launches of kernels and graphs by the host."""
    launch_seconds: float
    """Time of these calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Documented):
    """Where the time of training steps goes."""

    on: Literal["device", "host"]
    """Whether kernels of a GPU are the work, or operations of a processor."""
    steps: tuple[ProfiledStep, ...]
    """Every step of the trace; a trace that names none is one step."""
    has_steps: bool
    """Whether the trace names its steps."""
    step: ProfiledStep
    """The median step, to which what follows belongs."""
    parts: tuple[ProfiledPart, ...]
    """Its time, part by part."""
    collectives: tuple[ProfiledCollective, ...]
    """Its collective operations by kind."""
    copies: tuple[ProfiledCopies, ...]
    """Its copies between host and device."""
    synchronisations: int
    """Its calls in which the host waits for the device."""
    synchronising_seconds: float
    """Time of these calls."""
    updates: int
    """Steps of optimizers in it; 0 where the trace names none."""
    gaps: tuple[ProfiledGap, ...]
    """Its longest gaps."""


def profile_of(trace: traces.Trace) -> Profile:
    """The profile of a trace."""
    steps, has_device = steps_of(trace.events), any(event.on_device for event in trace.events)
    profiled = tuple(_profiled_step(step, has_device=has_device) for step in steps)
    place = sorted(range(len(steps)), key=lambda one: profiled[one].seconds)[len(steps) // 2]
    step = steps[place]
    launched: dict[int, str] = {}
    hosts = (one for one in step.events if not one.on_device and one.role != "step")
    host = list(_host_segments(hosts, launched))
    segments = _device_segments(step.events, launched) if has_device else [one for one in host if one.kind]
    inside = _beginning_in(step)
    grouped: defaultdict[str, list[_Segment]] = defaultdict(list)
    for one in segments:
        grouped[one.kind].append(one)
    spans = {kind: merged((one.start, one.end) for one in own) for kind, own in grouped.items()}
    longest = {kind: _longest(own) for kind, own in grouped.items()}
    counts = _counts(inside, launched, has_device=has_device)
    waits = [event for event in inside if _is_wait(event)]
    return Profile(
        on="device" if has_device else "host",
        steps=profiled,
        has_steps=any(event.role == "step" for event in trace.events),
        step=profiled[place],
        parts=tuple(_parts(step.span, spans, counts, longest)),
        collectives=tuple(_collectives(step, spans, has_device=has_device)),
        copies=tuple(_copies(inside)),
        synchronisations=len(waits),
        synchronising_seconds=length_seconds(common([step.span], _spans(waits))),
        updates=sum(one.name.startswith(traces.OPTIMIZER) for one in step.events if _began(one, step.host)),
        gaps=tuple(_gaps(step, segments, host)),
    )


def _profiled_step(step: Step, *, has_device: bool) -> ProfiledStep:
    summary = _step_summary(step, has_device=has_device)
    names = (name for name in ProfiledStep.__annotations__ if name in summary)
    return ProfiledStep(
        name=step.name, idle_seconds=summary["device_idle_seconds"], **{name: summary[name] for name in names}
    )


def _counts(inside: Iterable[traces.Event], launched: Mapping[int, str], *, has_device: bool) -> Counter[str]:
    work = (one for one in inside if has_device == one.on_device and one.role not in ("step", "annotation", "runtime"))
    return Counter(_device_kind(one, launched) if has_device else _host_kind(one, "") for one in work)


def _longest(segments: Iterable[_Segment]) -> str:
    seconds: defaultdict[str, float] = defaultdict(float)
    for one in segments:
        seconds[one.event.name] += one.end - one.start
    return max(seconds, key=lambda name: seconds[name])


def _parts(
    span: Span, spans: Mapping[str, list[Span]], counts: Mapping[str, int], longest: Mapping[str, str]
) -> Iterator[ProfiledPart]:
    left: list[Span] = [span]
    for kind in get_args(PartKind):
        name = "communication" if kind == "exposed_communication" else kind
        own = left if kind == "idle" else common(left, spans.get(name, []))
        if own or name in spans:
            calls = counts.get(name, 0)
            yield ProfiledPart(kind=kind, seconds=length_seconds(own), calls=calls, longest=longest.get(name))
        left = without(left, own)


_NO_WORK = ("communication", "copies", "waiting_for_data")


def _collectives(step: Step, spans: Mapping[str, list[Span]], *, has_device: bool) -> Iterator[ProfiledCollective]:
    work = merged(span for kind, own in spans.items() if kind not in _NO_WORK for span in own)
    grouped: dict[str, list[traces.Event]] = {}
    for event in step.events:
        if event.role == "communication" and event.on_device == has_device:
            named = event.collective[0] if event.collective else event.name
            grouped.setdefault(traces.collective_of(named), []).append(event)
    for kind, own in grouped.items():
        running = common([step.span], _spans(own))
        known = [one.collective[1] for one in own if one.collective]
        yield ProfiledCollective(
            kind=kind,
            calls=sum(_began(one, step.span) for one in own),
            bytes=float(sum(known)) if known else None,
            seconds=length_seconds(running),
            exposed_seconds=length_seconds(without(running, work)),
        )


def _copies(inside: Sequence[traces.Event]) -> Iterator[ProfiledCopies]:
    for mark, direction in _DIRECTIONS.items():
        own = [one for one in inside if one.role == "memcpy" and mark in one.name]
        if own:
            yield ProfiledCopies(
                direction=direction,
                calls=len(own),
                bytes=float(sum(one.bytes for one in own)),
                seconds=sum(one.end_seconds - one.start_seconds for one in own),
            )


def _gaps(step: Step, segments: Sequence[_Segment], host: Sequence[_Segment]) -> Iterator[ProfiledGap]:
    work = [one for one in segments if one.kind != "waiting_for_data"]
    idle = without([step.span], merged((one.start, one.end) for one in work))
    for start, end in sorted(idle, key=lambda one: one[0] - one[1])[:MOST_GAPS]:
        shared: dict[tuple[str, GapKind], float] = {}
        for one in host:
            inside = min(one.end, end) - max(one.start, start)
            if inside > 0:
                name = one.event.name, _gap_kind(one.event)
                shared[name] = shared.get(name, 0.0) + inside
        name = max(shared, key=lambda one: shared[one], default=NOT_RECORDED)
        if sum(shared.values()) < LEAST_COVERED * (end - start):
            name = NOT_RECORDED
        before = max((one for one in work if one.end <= start), key=lambda one: one.end, default=None)
        after = min((one for one in work if one.start >= end), key=lambda one: one.start, default=None)
        yield ProfiledGap(
            start_seconds=start - step.span[0],
            seconds=end - start,
            host=name[0],
            kind=name[1],
            after=None if before is None else before.event.name,
            before=None if after is None else after.event.name,
        )


def _gap_kind(event: traces.Event) -> GapKind:
    if event.name.startswith(traces.DATA):
        return "waiting_for_data"
    if _is_wait(event) or (event.role == "runtime" and "Memcpy" in event.name):  # one from unpinned memory waits too
        return "synchronisation"
    return "host_code" if event.role == "annotation" else "operation"


LEAST_SECONDS = 1e-7
"""Shortest product that is measured: a kernel takes some microseconds."""
MOST_PRODUCTS = 256
"""Shapes of products that are measured."""


def _products(events: Sequence[traces.Event]) -> Iterator[Measurement]:
    """Seconds of each matrix product, the median over its calls; the sum where it has several kernels."""
    shapes = {one.outer: one.product for one in events if one.product is not None and one.outer is not None}
    calls: dict[int, float] = {}
    for event in events:
        if event.role == "kernel" and event.outer in shapes:
            calls[event.outer] = calls.get(event.outer, 0.0) + event.end_seconds - event.start_seconds
    grouped: dict[tuple[int, int, int, str], list[float]] = {}
    for outer, seconds in calls.items():
        shape = shapes[outer]
        if shape is not None and shape[3] != "fp32" and seconds > LEAST_SECONDS:  # fp32 may run as TF32
            grouped.setdefault(shape, []).append(seconds)
    for (rows, columns, inner, number_format), times in list(grouped.items())[:MOST_PRODUCTS]:
        times.sort()
        yield Measurement(
            operation="forward",
            shape={"rows": rows, "columns": columns, "inner": inner, "dtype": number_format, "copies": 1},
            quantity="seconds",
            value=times[len(times) // 2],
            low=times[len(times) // 10],
            high=times[len(times) * 9 // 10],
            repeats=len(times),
        )


def product_records(trace: traces.Trace) -> tuple[ProbeRecord, ...]:
    """Matrix products as a record that a calibration is fitted on: those of a named GPU whose shapes were recorded."""
    products = tuple(_products(trace.events))
    if trace.device is None or not products:
        return ()
    kind: DeviceKind = "rocm" if "AMD" in trace.device or "Instinct" in trace.device else "cuda"
    environment = Environment(kind=kind, device=trace.device, devices=1, memory_bytes=trace.memory_bytes)
    return (ProbeRecord(probe="gemm", status="succeeded", environment=environment, measurements=products),)
