"""Memory and step time of every pipeline stage, and the timeline of its bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import reduce
from math import ceil
from operator import add

from service.estimator.answer import Memory, MemoryLine, StageMemory, StageParameters
from service.estimator.answer import Phase as StepPhase
from service.estimator.memory.activations import RankLoad, mirrored, rank_load_of
from service.estimator.memory.device import (
    allocated_interval,
    allocator_room_bytes,
    beside_allocator,
    device_interval,
    headroom_bytes,
    memory_basis,
    oom_probability_fraction,
    reserved_bytes,
    reserved_interval,
    reserved_shares,
    usable_bytes,
)
from service.estimator.memory.memory import (
    BETWEEN_STEPS,
    LIVE,
    MOMENTS,
    PERSISTENT,
    Moment,
    StageBytes,
    StepName,
    first_step_peak_bytes,
    live_bytes,
    missing_kinds,
    stage_bytes,
)
from service.estimator.memory.states import checkpoint_bytes
from service.estimator.numeric import Amount, maximum
from service.estimator.parallelism.stages import Stage, stage_at, stage_total
from service.estimator.resolve import ResolvedQuestion
from service.estimator.time.step import StepOverhead, StepSeconds, ledger_seconds, micro_batch_seconds, step_seconds


@dataclass(slots=True)
class LoadedStage:
    """One stage of a single layout, and the load of a rank of it."""

    stage: Stage
    load: RankLoad
    shape: tuple[Amount, ...]
    """Key of its load and its step; stages with equal keys share both."""


def stages_of(resolved: ResolvedQuestion) -> list[LoadedStage]:
    """Every stage of a layout with its load; stages of equal shape share one."""
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    loads: dict[tuple[Amount, ...], RankLoad] = {}
    loaded = []
    for index in range(layout.pipeline):
        stage = stage_at(workload, degrees, index, layout.stage_layers, layout.virtual_pipeline)
        shape = stage.shape
        if shape not in loads:
            loads[shape] = rank_load_of(workload, degrees, stage)
        loaded.append(LoadedStage(stage, loads[shape], shape))
    if layout.schedule == "dualpipe" and layout.pipeline > 1:
        pairs = zip(loaded, reversed(loaded), strict=True)
        return [
            LoadedStage(first.stage, mirrored(first.load, mirror.load, degrees), (*first.shape, *mirror.shape))
            for first, mirror in pairs
        ]
    return loaded


def rank_bytes_of(resolved: ResolvedQuestion, loaded: LoadedStage) -> StageBytes:
    """Bytes of one rank of a stage, kind by kind."""
    layout = resolved.question.layout
    return stage_bytes(resolved.workload, resolved.degrees, loaded.stage, loaded.load, layout)


def _stage_memory(resolved: ResolvedQuestion, loaded: LoadedStage) -> tuple[StageMemory, float]:
    """StageMemory of one rank of a stage, and its bytes in host memory."""
    stage, workload, rank_bytes = loaded.stage, resolved.workload, rank_bytes_of(resolved, loaded)
    phases = rank_bytes.phases
    phase = max(LIVE, key=lambda name: float(phases[name]))
    lines = tuple(MemoryLine(kind=kind, bytes=live) for kind, live in live_bytes(rank_bytes, LIVE[phase], ()).items())
    peak = sum(line.bytes for line in lines)
    return (
        StageMemory(
            stage=int(float(stage.index)),
            layers=int(float(stage.layers - stage.depths)),
            micro_batches_in_flight=float(rank_bytes.in_flight),
            peak_phase=phase,
            allocated_peak_bytes=peak,
            reserved_peak_bytes=float(
                reserved_bytes(
                    peak, float(rank_bytes.cached), reserved_shares(workload)[1], allocator_room_bytes(workload)
                )
            ),
            first_step_peak_bytes=first_step_peak_bytes(rank_bytes, several=float(resolved.degrees.accumulation) > 1),
            idle_bytes=float(phases["idle"]),
            lines=lines,
        ),
        float(rank_bytes.host),
    )


def stage_parameters(resolved: ResolvedQuestion, stages: list[LoadedStage]) -> tuple[StageParameters, ...]:
    """Parameters of each stage: of the whole stage, and of one rank before data-parallel sharding."""
    return tuple(
        StageParameters(
            stage=int(float(one.stage.index)),
            total=stage_total(resolved.workload, resolved.degrees, one.stage),
            per_rank=round(float(one.load.parameters.dense + one.load.parameters.expert)),
        )
        for one in stages
    )


def slowest_step(resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float = 0.0) -> StepSeconds:
    """The step of the slowest stage."""
    return max(_steps(resolved, stages, filled_fraction), key=total_seconds)


def _steps(resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float) -> list[StepSeconds]:
    """The step of each distinct stage; in bubbles all stages wait for the mean micro-batch time of the stages."""
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    distinct = {one.shape: one for one in stages}
    op_seconds = ledger_seconds(workload, degrees)
    micro = {
        shape: micro_batch_seconds(workload, degrees, one.stage, one.load, layout, op_seconds)
        for shape, one in distinct.items()
    }
    mean = reduce(add, [micro[one.shape].sent_seconds for one in stages]) / len(stages)
    overhead = StepOverhead(stage_seconds=mean, filled_fraction=filled_fraction)
    return [
        step_seconds(workload, degrees, one.load, layout, micro[shape], overhead) for shape, one in distinct.items()
    ]


def slowest_seconds(resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float = 0.0) -> Amount:
    """Seconds of one step on the slowest stage, for one batch or a column of them.

    Formula:
        max over the stages of the sum of their parts

    Args:
        resolved: the configuration; accumulation may be a column
        stages: the stages, whose loads no batch changes
        filled_fraction: reserved memory of the fullest device over what it has [1]

    Returns:
        seconds of one step [s]

    Source:
        definition

    >>> from service.estimator.samples import sample_resolved
    >>> resolved = sample_resolved()
    >>> stages = stages_of(resolved)
    >>> slowest_seconds(resolved, stages) == total_seconds(slowest_step(resolved, stages))
    True
    """
    steps = _steps(resolved, stages, filled_fraction)
    parts = ([getattr(step, field.name) for field in fields(StepSeconds)] for step in steps)
    slowest: Amount = reduce(maximum, (reduce(add, seconds) for seconds in parts))
    return slowest


def total_seconds(step: StepSeconds) -> float:
    """Seconds of one step: the sum of its parts.

    Formula:
        sum of the fields

    Returns:
        seconds of one step [s]

    Source:
        definition

    >>> total_seconds(StepSeconds(**{field.name: 1.0 for field in fields(StepSeconds)}))
    19.0
    """
    return sum(float(getattr(step, field.name)) for field in fields(StepSeconds))


def memory_of(resolved: ResolvedQuestion, stages: list[LoadedStage]) -> Memory:
    """The memory part of an answer; `advised` adds changes and suggestions."""
    workload = resolved.workload
    answers = [_stage_memory(resolved, stage) for stage in stages]
    peak, _ = max(answers, key=lambda answer: answer[0].reserved_peak_bytes)
    allocated = allocated_interval(workload, peak.allocated_peak_bytes)
    reserved = reserved_interval(allocated, peak.reserved_peak_bytes, reserved_shares(workload))
    device = device_interval(reserved, beside_allocator(workload), memory_basis(workload.gpu))
    usable = usable_bytes(workload.gpu)
    return Memory(
        allocated_peak_bytes=allocated,
        reserved_peak_bytes=reserved,
        device_peak_bytes=device,
        usable_bytes=usable,
        headroom_bytes=headroom_bytes(usable, device),
        host_bytes=max(host_bytes for _, host_bytes in answers),
        oom_probability_fraction=oom_probability_fraction(device, usable),
        peak_stage=peak.stage,
        peak_phase=peak.peak_phase,
        biggest_line=max(peak.lines, key=lambda line: line.bytes).kind,
        checkpoint_bytes=checkpoint_bytes(workload),
        changes=(),
        suggestions=(),
        stages=tuple(stage for stage, _ in answers),
    )


def filled_fraction(memory: Memory) -> float:
    """Share of the device's room that the allocator holds at the peak.

    Formula:
        reserved / usable

    Returns:
        share [1]

    Source:
        definition

    >>> from service.estimator.samples import sample_resolved
    >>> resolved = sample_resolved()
    >>> filled_fraction(memory_of(resolved, stages_of(resolved))) > 1
    True
    """
    return memory.reserved_peak_bytes.value / memory.usable_bytes


MOST_FORWARDS = 32
"""Most points of a timeline for the forward passes that fill a stage; more micro-batches share points.
Source: a choice; a plot needs no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Live bytes of one rank of a stage at one moment."""

    step: StepName
    """The first step, or any later one."""
    moment: Moment
    """Moment of the step."""
    micro_batches: int
    """Micro-batches whose activations are kept."""
    allocated_bytes: float
    """Sum of the series at this point."""
    series_bytes: tuple[float, ...]
    """Bytes of each kind, in the order of the stage's kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment of a stage with the most live bytes."""

    step: StepName
    """The first step, or any later one."""
    moment: Moment
    """Moment of the step."""
    allocated_bytes: float
    """Live bytes."""
    lines: tuple[MemoryLine, ...]
    """Which tensors hold them, largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimeline:
    """One stage over the first and over a later step."""

    stage: int
    """Stage, from 0."""
    first_step_peak_bytes: float
    """Peak of the first step."""
    later_step_peak_bytes: float
    """Peak of any later step."""
    peak: Peak
    """The higher of both."""
    kinds: tuple[str, ...]
    """Kinds of tensors that the stage ever holds, in the order of the points' series."""
    points: tuple[Point, ...]
    """The moments of both steps, in order."""


def timeline(resolved: ResolvedQuestion) -> tuple[StageTimeline, ...]:
    """The timeline of every stage."""
    return tuple(_stage_timeline(resolved, one) for one in stages_of(resolved))


def _stage_timeline(resolved: ResolvedQuestion, loaded: LoadedStage) -> StageTimeline:
    rank_bytes, several = rank_bytes_of(resolved, loaded), float(resolved.degrees.accumulation) > 1
    moments = [moment for step in ("first", "later") for moment in _step_moments(rank_bytes, step, several=several)]
    kinds = tuple(dict.fromkeys(kind for *_, live in moments for kind in live))
    points = tuple(
        Point(
            step=step,
            moment=moment,
            micro_batches=count,
            allocated_bytes=sum(live.values()),
            series_bytes=tuple(live.get(kind, 0.0) for kind in kinds),
        )
        for step, moment, count, live in moments
    )
    highest = max(points, key=lambda point: point.allocated_bytes)
    pairs = sorted(zip(kinds, highest.series_bytes, strict=True), key=lambda pair: -pair[1])
    return StageTimeline(
        stage=int(float(loaded.stage.index)),
        first_step_peak_bytes=max(point.allocated_bytes for point in points if point.step == "first"),
        later_step_peak_bytes=max(point.allocated_bytes for point in points if point.step == "later"),
        peak=Peak(
            step=highest.step,
            moment=highest.moment,
            allocated_bytes=highest.allocated_bytes,
            lines=tuple(MemoryLine(kind=kind, bytes=amount) for kind, amount in pairs if amount),
        ),
        kinds=kinds,
        points=points,
    )


def _step_moments(
    rank_bytes: StageBytes, step: StepName, *, several: bool
) -> Iterator[tuple[StepName, Moment, int, dict[str, float]]]:
    """The moments of one step: its start, the forward passes that fill the stage, and the phases that follow."""
    in_flight = ceil(float(rank_bytes.in_flight))
    held = (*PERSISTENT, "buffered_gradients")
    yield step, "start", 0, live_bytes(rank_bytes, held, missing_kinds(step, "start", several=False))
    shown = min(in_flight, MOST_FORWARDS)
    for index in range(shown):
        count = ceil(in_flight * (index + 1) / shown)
        live = live_bytes(rank_bytes, LIVE["loss"], missing_kinds(step, "forward", several=several and index > 0))
        live.pop("logits", None)
        live["activations"] = float(rank_bytes.activations) * count / in_flight
        yield step, "forward", count, {kind: amount for kind, amount in live.items() if amount}
    counts: dict[StepPhase, int] = {
        "loss": in_flight, "backward": in_flight, "reduction": in_flight - 1, "optimizer": 0,
    }  # fmt: skip
    for phase, count in counts.items():
        if phase != "loss" or float(rank_bytes.logits):
            live = live_bytes(rank_bytes, LIVE[phase], missing_kinds(step, MOMENTS[phase], several=several))
            yield step, MOMENTS[phase], count, live
    yield step, "end", 0, live_bytes(rank_bytes, BETWEEN_STEPS, ())
