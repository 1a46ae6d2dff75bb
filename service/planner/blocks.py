"""In which pieces is a space searched? Grids whose layouts share a job, a schedule and a kind of pipeline."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from service.estimator.names import RankOrder, ScheduleName
from service.estimator.question import Layout, filled
from service.estimator.workload import Job
from service.planner.freedom import WITHIN_DOMAIN, Axes
from service.planner.grid import Grid, Splits, Spreads
from service.planner.pipelines import Pipeline
from service.planner.stages import Distinct
from service.planner.variants import Variant

Member = tuple[Spreads, tuple[Distinct, ...]]
"""One way to spread layers and numbers, and the distinct stages of its pipeline."""

CELLS = 1 << 16
"""Layouts that are worked out at once. Source: measured; larger columns leave the cache, smaller ones cost calls."""


@dataclass(frozen=True, slots=True)
class Block:
    """A grid, and the choices that each of its layouts is worked out with."""

    variant: Variant
    grid: Grid
    stages: tuple[tuple[Distinct, ...], ...]
    """The distinct stages of each spread of the grid; equally many."""
    layouts: tuple[Layout, ...]
    """Schedule, context method and offload, the other fields unsaid."""
    mirrors: bool
    """Each rank serves a stage from either end (DualPipe)."""
    other_orders: tuple[RankOrder, ...]
    """Orders of ranks beside that of the grid."""
    data: tuple[int, ...]
    """Numbers of replicas that the caller leaves; any where empty."""


def blocks_of(variant: Variant, axes: Axes, pipelines: tuple[Pipeline, ...]) -> tuple[list[Block], Counter[str]]:
    """The blocks of one variant.

    Args:
        variant: the job
        axes: what each axis may be
        pipelines: the pipelines that its layers can fill

    Returns:
        the blocks; and how many layouts are left out for which rule
    """
    job = variant.job
    splits = tuple(_splits(job, axes))
    refused: Counter[str] = Counter()
    groups: dict[tuple[int, int, bool], list[Member]] = defaultdict(list)
    schedules: dict[tuple[int, int, bool], tuple[ScheduleName, ...]] = {}
    each = len(splits) * len(axes.micro_batch)
    for one in pipelines:
        pipeline = one.layout
        runs = tuple(name for name in axes.schedule if (name == "interleaved-1f1b") == (pipeline.virtual_pipeline > 1))
        if pipeline.pipeline == 1:
            runs = runs[:1]
        spreads = tuple(_spreads(job, axes, variant, pipeline, refused, each))
        if not runs:
            refused["interleaving_has_chunks"] += each * len(spreads)
        for mirrors in (False, True):
            mine = tuple(name for name in runs if (name == "dualpipe" and pipeline.pipeline > 1) == mirrors)
            if mine:
                kinds = one.mirrored if mirrors else one.alone
                key = (pipeline.virtual_pipeline, len(kinds), mirrors)
                schedules[key] = mine
                groups[key].extend((spread, kinds) for spread in spreads)
    found = []
    for key, members in groups.items():
        choices = _choices(axes, schedules[key])
        for own in _apart(members, len(splits), len(axes.micro_batch)):
            for part in _cut(splits, len(own) * len(axes.micro_batch)):
                grid = Grid(part, tuple(spread for spread, _ in own), axes.micro_batch)
                stages, orders = tuple(kinds for _, kinds in own), axes.rank_order[1:]
                found.append(Block(variant, grid, stages, choices, key[2], orders, axes.data))
    return found, refused


def _splits(job: Job, axes: Axes) -> Iterator[Splits]:
    """How one layer may be split, those that use equally many GPUs for a sequence side by side."""
    found = {}
    for tensor in axes.tensor:
        for context in axes.context:
            if job.cluster.gpus % (tensor * context):
                continue
            for parallel in axes.sequence_parallel if tensor > 1 else axes.sequence_parallel[-1:]:
                for expert in axes.expert:
                    for said in axes.expert_tensor:
                        width = said or (1 if expert > 1 else tensor)
                        found[Splits(tensor, context, parallel, expert, width)] = tensor * context
    yield from sorted(found, key=lambda split: found[split])


def _spreads(
    job: Job, axes: Axes, variant: Variant, pipeline: Layout, refused: Counter[str], each: int
) -> Iterator[Spreads]:
    """How one pipeline's layers and their numbers may be spread over replicas."""
    for zero in variant.zero_stages:
        if pipeline.pipeline > 1 and zero not in job.stack.pipeline_zero_stages:
            refused["stack_shards_so_in_a_pipeline"] += each
            continue
        groups = axes.shard_group if zero else tuple(group for group in axes.shard_group if group != WITHIN_DOMAIN)
        frees = axes.reshard_after_forward if zero == 3 and pipeline.pipeline == 1 else (False,)
        if False not in axes.reshard_after_forward and frees == (False,):
            refused["resharding_needs_sharded_weights"] += each
            continue
        for group in groups:
            for free in frees:
                yield Spreads(pipeline, zero, group, free)


def _choices(axes: Axes, schedules: tuple[ScheduleName, ...]) -> tuple[Layout, ...]:
    return tuple(
        Layout(schedule=schedule, context_method=method, offload=offload)
        for method in axes.context_method
        for offload in axes.offload
        for schedule in schedules
    )


def _apart(members: list[Member], splits: int, sizes: int) -> Iterator[list[Member]]:
    """Spreads by their pipeline degree where they are too many for one grid: the same replicas suit them all."""
    if len(members) * splits * sizes <= CELLS:
        yield members
        return
    by_stages: dict[int, list[Member]] = {}
    for member in members:
        by_stages.setdefault(member[0].pipeline.pipeline, []).append(member)
    most = max(1, CELLS // sizes)
    for alike in by_stages.values():
        yield from (alike[start : start + most] for start in range(0, len(alike), most))


def _cut(splits: tuple[Splits, ...], each: int) -> Iterator[tuple[Splits, ...]]:
    """Splits in pieces whose grids have about CELLS layouts, those for equally many GPUs together."""
    part: list[Splits] = []
    most = max(1, CELLS // max(1, each))
    for _, alike in groupby(splits, key=lambda split: split.tensor * split.context):
        same = list(alike)
        for start in range(0, len(same), most):
            few = same[start : start + most]
            if part and len(part) + len(few) > most:
                yield tuple(part)
                part = []
            part += few
    yield tuple(part)


def with_choices(layout: Layout, choices: Layout) -> Layout:
    """A layout with its schedule, context method and offload.

    Args:
        layout: the layout
        choices: the three

    Returns:
        the whole layout
    """
    return replace(
        layout,
        schedule=filled(choices.schedule),
        context_method=filled(choices.context_method),
        offload=choices.offload,
    )
