"""What memory and time do many layouts take? The estimator's own formulas, fed with columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from service.estimator.degrees import Degrees
from service.estimator.memory.device import allocator_room_bytes, reserved_bytes, reserved_shares, usable_bytes
from service.estimator.memory.memory import stage_bytes
from service.estimator.memory.rank_load import StageLoad, mirrored, stage_load
from service.estimator.numeric import Amount, maximum
from service.estimator.parallelism.stages import Stage
from service.estimator.question import Layout
from service.estimator.time.step import (
    MicroBatchSeconds,
    Waits,
    busy_seconds,
    ledger_seconds,
    micro_batch_seconds,
    whole_step_seconds,
)
from service.estimator.workload import Job
from service.planner.grid import Numbers, along_or_same
from service.planner.stages import Distinct


@dataclass(slots=True)
class Carried:
    """One kind of stage of every pipeline of a grid."""

    stage: Stage
    load: StageLoad
    count: Amount
    """Stages of this kind."""


@dataclass(slots=True)
class Scores:
    """What every layout of a grid takes."""

    step_seconds: Numbers
    """Seconds of one optimizer step."""
    reserved_bytes: Numbers
    """What the allocator holds on the fullest GPU."""


def carried_by(
    job: Job, degrees: Degrees, pipelines: Sequence[tuple[Distinct, ...]], *, mirrors: bool
) -> list[Carried]:
    """The stages of many pipelines that have equally many kinds of stages, kind by kind.

    Args:
        job: the job
        degrees: the degrees of the grid
        pipelines: the distinct stages of each spread of the grid
        mirrors: each rank serves a stage from either end (DualPipe)

    Returns:
        one kind of stage after the other, with what a rank of it carries
    """
    found = []
    for kind in zip(*pipelines, strict=True):
        stage = _columns([one.stage for one in kind])
        load = stage_load(job, degrees, stage)
        if mirrors:
            load = mirrored(load, stage_load(job, degrees, _columns([one.far for one in kind])), degrees)
        found.append(Carried(stage, load, along_or_same([one.count for one in kind], 1)))
    return found


def _columns(stages: Sequence[Stage]) -> Stage:
    """Stages of many pipelines as one; they are all at the same end, or all at none."""
    first = stages[0]
    chunks, kinds = range(len(first.chunk_counts)), range(len(first.kind_counts))
    alike: dict[tuple[tuple[Amount, ...], ...], tuple[Amount, ...]] = {}
    counts = []
    for chunk in chunks:
        own = tuple(one.chunk_counts[chunk] for one in stages)
        if own not in alike:
            alike[own] = tuple(along_or_same([float(each[kind]) for each in own], 1) for kind in kinds)
        counts.append(alike[own])
    return Stage(
        index=along_or_same([float(one.index) for one in stages], 1),
        chunk_counts=tuple(counts),
        depths=along_or_same([float(one.depths) for one in stages], 1),
        is_first=first.is_first,
        is_last=first.is_last,
    )


def micro_batches_of(job: Job, degrees: Degrees, carried: Sequence[Carried], layout: Layout) -> list[MicroBatchSeconds]:
    """What each kind of stage does for one micro-batch.

    Args:
        job: the job
        degrees: the degrees of the grid
        carried: its stages
        layout: schedule, context method and offload

    Returns:
        the seconds of each kind of stage [s]
    """
    each = ledger_seconds(job, degrees)
    return [micro_batch_seconds(job, degrees, one.stage, one.load, layout, each) for one in carried]


def scores_of(
    job: Job, degrees: Degrees, carried: Sequence[Carried], micro: Sequence[MicroBatchSeconds], layout: Layout
) -> Scores:
    """The step and the memory of every layout of a grid.

    Args:
        job: the job
        degrees: the degrees of the grid
        carried: its stages
        micro: what each kind of stage does for one micro-batch
        layout: schedule, context method and offload

    Returns:
        the slowest stage's step [s], and the fullest stage's memory [byte]
    """
    share, room = reserved_shares(job)[1], allocator_room_bytes(job)
    reserved: list[Amount] = []
    for one in carried:
        held = stage_bytes(job, degrees, one.stage, one.load, layout)
        reserved.append(reserved_bytes(held.peak, held.held, share, room))
    fullest = reduce(maximum, reserved)
    sent = [one.count * each.sent_seconds for one, each in zip(carried, micro, strict=True)]
    waits = Waits(stage_seconds=reduce(add, sent) / degrees.pipeline, filled_fraction=fullest / usable_bytes(job.gpu))
    busy = [
        busy_seconds(job, degrees, one.load, layout, each, waits).total
        for one, each in zip(carried, micro, strict=True)
    ]
    step = whole_step_seconds(reduce(maximum, busy), job, degrees, waits)
    return Scores(np.asarray(step), np.asarray(fullest))
