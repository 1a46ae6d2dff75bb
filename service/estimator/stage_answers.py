"""What does every stage hold and take? The answer's stages, and the slowest of them."""

from dataclasses import dataclass, fields
from functools import reduce
from operator import add

from service.estimator.allocator import reserved_bytes, reserved_shares
from service.estimator.answer import StageParameters
from service.estimator.degrees import Degrees
from service.estimator.device import allocator_room_bytes
from service.estimator.first_step import first_step_peak_bytes, live_bytes
from service.estimator.job import Job
from service.estimator.load import StageLoad, mirrored, stage_load
from service.estimator.memory import LIVE, stage_bytes
from service.estimator.memory_parts import MemoryLine, StageMemory
from service.estimator.numeric import Amount, maximum, where
from service.estimator.question import Layout
from service.estimator.stages import Stage, stage_at, stage_total
from service.estimator.step_time import StepSeconds, ledger_seconds, micro_batch_seconds, step_seconds
from service.estimator.waiting import Waits


@dataclass(slots=True)
class LoadedStage:
    """One stage of a single layout and what a rank of it carries."""

    stage: Stage
    load: StageLoad
    shape: tuple[Amount, ...]
    """What tells its load and its step from another stage's."""


def stages_of(job: Job, degrees: Degrees, layout: Layout) -> list[LoadedStage]:
    """Every stage of one layout with its load; equal stages share theirs.

    Args:
        job: the job
        degrees: the layout's degrees, plain numbers
        layout: the layout

    Returns:
        the stages, first to last
    """
    loads: dict[tuple[Amount, ...], StageLoad] = {}
    loaded = []
    for index in range(layout.pipeline):
        stage = stage_at(job, degrees, index, layout.stage_layers, layout.virtual_pipeline)
        shape = (
            *(count for chunk in stage.chunk_counts for count in chunk),
            where(stage.is_first, 1, 0),
            where(stage.is_last, 1, 0),
        )
        if shape not in loads:
            loads[shape] = stage_load(job, degrees, stage)
        loaded.append(LoadedStage(stage, loads[shape], shape))
    if layout.schedule == "dualpipe" and layout.pipeline > 1:
        pairs = zip(loaded, reversed(loaded), strict=True)
        return [
            LoadedStage(one.stage, mirrored(one.load, far.load, degrees), (*one.shape, *far.shape))
            for one, far in pairs
        ]
    return loaded


def stage_memory(job: Job, degrees: Degrees, layout: Layout, loaded: LoadedStage) -> tuple[StageMemory, float]:
    """The memory of one rank of one stage as the answer tells it.

    Args:
        job: the job
        degrees: the layout's degrees, plain numbers
        layout: the layout
        loaded: the stage

    Returns:
        its lines at its peak, and the bytes it keeps on the host [byte]
    """
    stage = loaded.stage
    held = stage_bytes(job, degrees, stage, loaded.load, layout)
    phases = held.phases
    phase = max(LIVE, key=lambda name: float(phases[name]))
    lines = tuple(MemoryLine(kind=kind, bytes=live) for kind, live in live_bytes(held, LIVE[phase], ()).items())
    peak = sum(line.bytes for line in lines)
    return (
        StageMemory(
            stage=int(float(stage.index)),
            layers=int(float(stage.layers - stage.depths)),
            micro_batches_in_flight=float(held.in_flight),
            peak_phase=phase,
            allocated_peak_bytes=peak,
            reserved_peak_bytes=float(
                reserved_bytes(peak, float(held.held), reserved_shares(job)[1], allocator_room_bytes(job))
            ),
            first_step_peak_bytes=first_step_peak_bytes(held, several=float(degrees.accumulation) > 1),
            idle_bytes=float(phases["idle"]),
            lines=lines,
        ),
        float(held.host),
    )


def stage_parameters(job: Job, degrees: Degrees, stages: list[LoadedStage]) -> tuple[StageParameters, ...]:
    """Parameters of each stage: of the whole stage, and of one rank before data-parallel sharding.

    Args:
        job: the job
        degrees: the layout's degrees, plain numbers
        stages: the stages

    Returns:
        the counts [1]
    """
    return tuple(
        StageParameters(
            stage=int(float(one.stage.index)),
            total=stage_total(job, degrees, one.stage),
            per_rank=round(float(one.load.held.dense + one.load.held.expert)),
        )
        for one in stages
    )


def slowest_step(
    job: Job, degrees: Degrees, layout: Layout, stages: list[LoadedStage], filled_fraction: float = 0.0
) -> StepSeconds:
    """The step as the slowest stage lives it; each distinct stage is tried once.

    Args:
        job: the job
        degrees: the layout's degrees, plain numbers
        layout: the layout
        stages: the stages
        filled_fraction: reserved memory of the fullest device over what it has [1]

    Returns:
        the seconds by kind [s]
    """
    return max(_steps(job, degrees, layout, stages, filled_fraction), key=total_seconds)


def _steps(
    job: Job, degrees: Degrees, layout: Layout, stages: list[LoadedStage], filled_fraction: float
) -> list[StepSeconds]:
    """The step as each distinct stage lives it; all wait for the mean of the stages where the pipeline is empty."""
    distinct = {one.shape: one for one in stages}
    each = ledger_seconds(job, degrees)
    micro = {
        shape: micro_batch_seconds(job, degrees, one.stage, one.load, layout, each) for shape, one in distinct.items()
    }
    mean = reduce(add, [micro[one.shape].sent_seconds for one in stages]) / len(stages)
    waits = Waits(stage_seconds=mean, filled_fraction=filled_fraction)
    return [step_seconds(job, degrees, one.load, layout, micro[shape], waits) for shape, one in distinct.items()]


def slowest_seconds(
    job: Job, degrees: Degrees, layout: Layout, stages: list[LoadedStage], filled_fraction: float = 0.0
) -> Amount:
    """Seconds of one step on the slowest stage, for one batch or a column of them.

    Formula:
        max over the stages of the sum of their parts

    Args:
        job: the job
        degrees: the layout's degrees; accumulation may be a column
        layout: the layout
        stages: the stages, whose loads no batch changes
        filled_fraction: reserved memory of the fullest device over what it has [1]

    Returns:
        seconds of one step [s]

    Source:
        definition

    >>> from service.estimator.samples import sample_resolved
    >>> first = sample_resolved()
    >>> stages = stages_of(first.job, first.degrees, first.question.layout)
    >>> step = slowest_step(first.job, first.degrees, first.question.layout, stages)
    >>> slowest_seconds(first.job, first.degrees, first.question.layout, stages) == total_seconds(step)
    True
    """
    steps = _steps(job, degrees, layout, stages, filled_fraction)
    parts = ([getattr(step, field.name) for field in fields(StepSeconds)] for step in steps)
    slowest: Amount = reduce(maximum, (reduce(add, seconds) for seconds in parts))
    return slowest


def total_seconds(step: StepSeconds) -> float:
    """Seconds of one step: the sum of its parts.

    Formula:
        sum of the fields

    Args:
        step: the seconds by kind

    Returns:
        seconds of one step [s]

    Source:
        definition

    >>> total_seconds(StepSeconds(**{field.name: 1.0 for field in fields(StepSeconds)}))
    19.0
    """
    return sum(float(getattr(step, field.name)) for field in fields(StepSeconds))
