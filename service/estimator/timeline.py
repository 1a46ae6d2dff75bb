"""How do the bytes of a stage rise and fall over a step, the first one and any later one?"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from service.estimator.degrees import Degrees
from service.estimator.first_step import MOMENTS, Moment, StepName, live_bytes, missing_kinds
from service.estimator.job import Job
from service.estimator.memory import BETWEEN_STEPS, LIVE, STANDING, StageBytes, stage_bytes
from service.estimator.memory_parts import MemoryLine, Phase
from service.estimator.question import Layout
from service.estimator.resolve import Resolved
from service.estimator.stage_answers import LoadedStage, stages_of

MOST_FORWARDS = 32
"""Moments in which a timeline tells how forward passes fill a stage; more micro-batches share them.
Source: a choice; a plot needs no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Live bytes of one rank of a stage at one moment."""

    step: StepName
    """The first step, or any later one."""
    moment: Moment
    """Where in the step."""
    micro_batches: int
    """Micro-batches whose activations are kept."""
    allocated_bytes: float
    """Sum of the series at this point."""
    series_bytes: tuple[float, ...]
    """Bytes of each kind, in the order of the stage's kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The fullest moment of a stage."""

    step: StepName
    """In which step."""
    moment: Moment
    """Where in it."""
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


def timeline(resolved: Resolved) -> tuple[StageTimeline, ...]:
    """The timeline of every stage.

    Args:
        resolved: the question

    Returns:
        one timeline a stage
    """
    job, degrees, layout = resolved.job, resolved.degrees, resolved.question.layout
    return tuple(_stage_timeline(job, degrees, layout, one) for one in stages_of(job, degrees, layout))


def _stage_timeline(job: Job, degrees: Degrees, layout: Layout, loaded: LoadedStage) -> StageTimeline:
    held = stage_bytes(job, degrees, loaded.stage, loaded.load, layout)
    several = float(degrees.accumulation) > 1
    moments = [told for step in ("first", "later") for told in _step(held, step, several=several)]
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
    first = max(point.allocated_bytes for point in points if point.step == "first")
    return StageTimeline(
        stage=int(float(loaded.stage.index)),
        first_step_peak_bytes=first,
        later_step_peak_bytes=max(point.allocated_bytes for point in points if point.step == "later"),
        peak=_peak(highest, kinds),
        kinds=kinds,
        points=points,
    )


def _peak(point: Point, kinds: tuple[str, ...]) -> Peak:
    pairs = sorted(zip(kinds, point.series_bytes, strict=True), key=lambda pair: -pair[1])
    return Peak(
        step=point.step,
        moment=point.moment,
        allocated_bytes=point.allocated_bytes,
        lines=tuple(MemoryLine(kind=kind, bytes=amount) for kind, amount in pairs if amount),
    )


def _step(
    held: StageBytes, step: StepName, *, several: bool
) -> Iterator[tuple[StepName, Moment, int, dict[str, float]]]:
    """The moments of one step: its start, the forward passes that fill the stage, and the phases that follow."""
    flying = ceil(float(held.in_flight))
    resting = (*STANDING, "kept_gradients")
    yield step, "start", 0, live_bytes(held, resting, missing_kinds(step, "start", several=False))
    shown = min(flying, MOST_FORWARDS)
    for index in range(shown):
        count = ceil(flying * (index + 1) / shown)
        live = live_bytes(held, LIVE["loss"], missing_kinds(step, "forward", several=several and index > 0))
        live.pop("logits", None)
        live["activations"] = float(held.activations) * count / flying
        yield step, "forward", count, {kind: amount for kind, amount in live.items() if amount}
    phases: tuple[Phase, ...] = ("loss", "backward", "reduction", "optimizer")
    counts = {"loss": flying, "backward": flying, "reduction": flying - 1, "optimizer": 0}
    for phase in phases:
        if phase != "loss" or float(held.logits):
            moment = MOMENTS[phase]
            live = live_bytes(held, LIVE[phase], missing_kinds(step, moment, several=several))
            yield step, moment, counts[phase], live
    yield step, "end", 0, live_bytes(held, BETWEEN_STEPS, ())
