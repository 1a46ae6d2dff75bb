"""Grids of layouts, with a dimension for each kind of axis, and the memory and time of all of their layouts.

Splits (tensor, context, sequence and expert parallelism) determine the cost of one layer, pipelines the layers of one
rank, shardings its state, and micro-batches multiply costs. A formula of one dimension broadcasts over others.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, reduce
from itertools import groupby
from math import prod
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.estimator.complete import PLAIN_LAYOUT, CompleteLayout
from service.estimator.degrees import ORDER_NUMBERS, Degrees, local_ranks, replica_spacing, stage_spacing
from service.estimator.memory.activations import RankLoad, mirrored, rank_load_of
from service.estimator.memory.device import allocator_room_bytes, reserved_bytes, reserved_shares, usable_bytes
from service.estimator.memory.memory import stage_bytes
from service.estimator.numeric import Amount, maximum
from service.estimator.parallelism.stages import Stage
from service.estimator.question import ContextMethod, RankOrder, ScheduleName
from service.estimator.rule import LayoutRule
from service.estimator.time.step import (
    LedgerSeconds,
    MicroBatchSeconds,
    StepOverhead,
    busy_seconds,
    ledger_seconds,
    whole_step_seconds,
)
from service.estimator.workload import Workload
from service.planner.space import ALL_REPLICAS, WITHIN_DOMAIN, Pipeline, SearchSpace, StageGroup, Variant

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
Whole = TypeVar("Whole")

_FIRST = np.zeros(1, dtype=np.intp)
"""The only place along an axis that a column does not depend on."""


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of some splits, pipelines, shardings and micro-batches."""

    splits: tuple[CompleteLayout, ...]
    """How the work of one layer is split: tensor, context, sequence and expert parallelism, the other fields unset."""
    pipelines: tuple[CompleteLayout, ...]
    """How layers are spread over stages, the other fields unset."""
    shardings: tuple[CompleteLayout, ...]
    """How state is spread over replicas, the other fields unset; shard_group may be WITHIN_DOMAIN or ALL_REPLICAS."""
    micro_batches: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of splits, pipelines, shardings and micro-batches [1]."""
        return tuple(map(len, self._axes))

    @property
    def _axes(self) -> tuple[Sequence[Any], ...]:
        return self.splits, self.pipelines, self.shardings, self.micro_batches

    @property
    def cells(self) -> int:
        """Layouts, legal or not [1]."""
        return prod(self.shape)

    def inside(self, box: "Box") -> "Grid":
        """Its layouts inside a box."""
        pairs = zip(self._axes, box.places, strict=True)
        return Grid(*(tuple(axis[place] for place in places) for axis, places in pairs))


@dataclass(frozen=True, slots=True)
class Box:
    """Some places along each axis of a grid, at all of whose combinations its columns are cut out."""

    places: tuple[NDArray[np.intp], ...]
    _columns: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    """Whole and cut columns by the identity of the whole ones, which stay alive as long."""
    _indices: dict[tuple[int, ...], tuple[NDArray[np.intp], ...] | None] = field(default_factory=dict)
    """Indices of columns by their shape; None for those that stay whole."""

    @classmethod
    def around(cls, mask: Mask) -> "Box":
        """The smallest box that contains the layouts of a mask."""
        held, last = mask.any(axis=-1), mask.reshape(-1, mask.shape[-1]).any(axis=0)
        others = [tuple({*range(held.ndim)} - {axis}) for axis in range(held.ndim)]
        return cls((*(np.flatnonzero(held.any(axis=axes)) for axes in others), np.flatnonzero(last)))

    def inside(self, box: "Box") -> "Box":
        """The places of a box whose own are places inside this one."""
        return Box(tuple(whole[places] for whole, places in zip(self.places, box.places, strict=True)))

    def cut(self, whole: Whole) -> Whole:
        """A column inside the box; of a dataclass or a tuple, all of its columns."""
        part: Whole = self._part_of(whole)
        return part

    def _part_of(self, whole: Any) -> Any:
        if isinstance(whole, np.ndarray):
            return self._cut_once(whole)
        if isinstance(whole, tuple):
            return tuple(map(self._part_of, whole))
        if not is_dataclass(whole) or isinstance(whole, type):
            return whole
        return replace(
            whole, **{one.name: self._part_of(getattr(whole, one.name)) for one in fields(whole) if one.init}
        )

    def _cut_once(self, whole: Numbers) -> Numbers:
        if id(whole) not in self._columns:
            if whole.shape not in self._indices:
                self._indices[whole.shape] = self._index(whole.shape)
            index = self._indices[whole.shape]
            self._columns[id(whole)] = whole, whole if index is None else whole[index]
        part: Numbers = self._columns[id(whole)][1]
        return part

    def _index(self, shape: tuple[int, ...]) -> tuple[NDArray[np.intp], ...] | None:
        places = [own if size > 1 else _FIRST for own, size in zip(self.places, shape, strict=True)]
        return None if tuple(map(len, places)) == shape else np.ix_(*places)


def along(numbers: Sequence[float], axis: int) -> Numbers:
    """Numbers of one axis of a grid."""
    shape = [1, 1, 1, 1]
    shape[axis] = len(numbers)
    return np.array(numbers, dtype=np.float64).reshape(shape)


def along_or_same(numbers: Sequence[float], axis: int) -> Amount:
    """Numbers of one axis of a grid, or the number itself if all are equal."""
    return float(numbers[0]) if len(set(numbers)) == 1 else along(numbers, axis)


def degrees_in(grid: Grid, workload: Workload) -> tuple[Degrees, dict[str, Mask]]:
    """The degrees of every layout of a grid, and masks of whole numbers of replicas and of micro-batches."""
    gpus, batch = workload.cluster.gpus, workload.recipe.global_batch
    tensor, context = (along([getattr(one, name) for one in grid.splits], 0) for name in ("tensor", "context"))
    pipeline = along([one.pipeline for one in grid.pipelines], 1)
    micro_batch = along(grid.micro_batches, 3)
    replica = tensor * context * pipeline
    data, divides_cluster = _whole(gpus / replica)
    accumulation, divides_batch = _whole(batch / (micro_batch * data))
    degrees = Degrees(
        data=data,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        virtual_pipeline=along_or_same([one.virtual_pipeline for one in grid.pipelines], 1),
        virtual_group=along_or_same([one.virtual_group for one in grid.pipelines], 1),
        expert=along_or_same([one.expert for one in grid.splits], 0),
        expert_tensor=along_or_same([one.expert_tensor for one in grid.splits], 0),
        zero_stage=along_or_same([one.zero_stage for one in grid.shardings], 2),
        shard_group=data * context,
        reshard_after_forward=along_or_same([one.reshard_after_forward for one in grid.shardings], 2),
        sequence_parallel=along_or_same([one.sequence_parallel for one in grid.splits], 0),
        rank_order=along_or_same([ORDER_NUMBERS[one.rank_order] for one in grid.pipelines], 1),
        micro_batch=micro_batch,
        accumulation=accumulation,
    )
    every = degrees.data * degrees.context
    domain = local_ranks(every, replica_spacing(degrees), workload.cluster.scale_up_gpus)
    group = along([one.shard_group for one in grid.shardings], 2)
    degrees.shard_group = np.where(_within_domain(grid), domain, np.where(group > 0, group, every))
    whole = {"replica_divides_cluster": divides_cluster, "accumulation_is_whole": divides_batch}
    return degrees, whole


def _whole(quotient: Numbers) -> tuple[Numbers, Mask]:
    """Quotients that are whole, 1 in place of the others; and which are."""
    is_whole: Mask = np.floor(quotient) == quotient
    return np.where(is_whole, quotient, 1.0), is_whole


def _within_domain(grid: Grid) -> Mask:
    within: Mask = along([one.shard_group == WITHIN_DOMAIN for one in grid.shardings], 2) == 1
    return within


def legal_layouts(
    grid: Grid,
    workload: Workload,
    rules: Mapping[str, LayoutRule],
    degrees: Degrees,
    whole: dict[str, Mask],
    data: Sequence[int],
) -> tuple[Mask, Counter[str]]:
    """Mask of the layouts of a grid that break no rule, and counts of the others by rule; equal shard groups once."""
    conditions: list[tuple[str, Mask]] = list(whole.items())
    if data:
        conditions.append(("data_is_as_pinned", np.isin(np.asarray(degrees.data), data)))
    is_whole_group = np.asarray(degrees.shard_group == degrees.data * degrees.context)
    conditions.append(("shard_groups_differ", np.logical_not(_within_domain(grid) & is_whole_group)))
    conditions.extend((name, np.asarray(rule.holds(workload, degrees))) for name, rule in rules.items())
    return apply_conditions(np.ones(grid.shape, dtype=np.bool_), conditions)


def apply_conditions(legal: Mask, conditions: Sequence[tuple[str, Mask]]) -> tuple[Mask, Counter[str]]:
    """Mask of the layouts that meet every condition, and counts of the others by the first one broken."""
    refused: Counter[str] = Counter()
    left = int(np.count_nonzero(legal))
    for name, holds in conditions:
        if holds.all():
            continue
        legal = legal & holds
        remaining = int(np.count_nonzero(legal))
        if remaining < left:
            refused[name] += left - remaining
        left = remaining
    return legal, refused


def with_rank_order(grid: Grid, order: RankOrder) -> Grid:
    """The same grid in another order of ranks."""
    return replace(grid, pipelines=tuple(replace(one, rank_order=order) for one in grid.pipelines))


def reordering_gains(grid: Grid, workload: Workload, degrees: Degrees) -> Mask:
    """Mask of the layouts whose stages fit one fast-link domain in another order of ranks that the stack can run."""
    domain, stack = workload.cluster.scale_up_gpus, workload.stack
    can_reorder = [
        one.zero_stage in stack.reordered_zero_stages and one.shard_group != WITHIN_DOMAIN for one in grid.shardings
    ]
    together = local_ranks(degrees.pipeline, stage_spacing(degrees), domain) == degrees.pipeline
    gains = together & (degrees.pipeline > 1) & (domain < workload.cluster.gpus)
    return np.asarray(gains & (along(can_reorder, 2) == 1))


def layout_at(grid: Grid, degrees: Degrees, place: tuple[int, ...]) -> CompleteLayout:
    """One layout of a grid, its schedule, context method and offload unset."""
    split, pipeline, sharding = grid.splits[place[0]], grid.pipelines[place[1]], grid.shardings[place[2]]

    def number(column: object) -> int:
        return int(np.broadcast_to(np.asarray(column), grid.shape)[place])

    return replace(
        pipeline,
        data=number(degrees.data),
        tensor=split.tensor,
        context=split.context,
        sequence_parallel=split.sequence_parallel,
        expert=split.expert,
        expert_tensor=split.expert_tensor,
        zero_stage=sharding.zero_stage,
        shard_group=number(degrees.shard_group),
        reshard_after_forward=sharding.reshard_after_forward,
    )


StagedPipeline = tuple[CompleteLayout, tuple[StageGroup, ...]]
"""A pipeline, and its stage groups."""

CELLS = 1 << 17
"""Layouts that are scored at once. Source: measured; larger columns leave the cache, smaller ones cost calls."""


@dataclass(frozen=True, slots=True)
class Block:
    """A grid, and the choices under which its layouts are scored."""

    variant: Variant
    grid: Grid
    stages: tuple[tuple[StageGroup, ...], ...]
    """The stage groups of each pipeline of the grid; every pipeline has the same number."""
    layouts: tuple[CompleteLayout, ...]
    """Schedule, context method and offload, the other fields unset."""
    mirrors: bool
    """Whether each rank has one stage from either end (DualPipe)."""
    other_orders: tuple[RankOrder, ...]
    data: tuple[int, ...]
    """Allowed numbers of replicas; empty for any."""
    ledgers: Mapping[ContextMethod, LedgerSeconds]
    """What one rank computes of each part of the ledger, of every split of the search and every micro-batch."""
    first_split: int
    """Which of those splits is the first of the grid."""

    def ledger_inside(self, box: Box, method: ContextMethod) -> LedgerSeconds:
        """What one rank computes of each part of the ledger, of the layouts of the grid inside a box."""
        splits, *_, micro_batches = box.places
        return Box((splits + self.first_split, _FIRST, _FIRST, micro_batches)).cut(self.ledgers[method])


_Alike = tuple[int, int, bool, tuple[CompleteLayout, ...]]
"""What pipelines of one grid share: virtual stages, kinds of stages, whether they are mirrored, and shardings."""


def blocks_of(variant: Variant, axes: SearchSpace, pipelines: tuple[Pipeline, ...]) -> tuple[list[Block], Counter[str]]:
    """The blocks of one variant."""
    workload = variant.workload
    splits = tuple(_splits(workload, axes))
    one_stage = Grid(splits, (PLAIN_LAYOUT,), (PLAIN_LAYOUT,), axes.micro_batch)
    degrees = degrees_in(one_stage, workload)[0]
    ledgers = {method: ledger_seconds(workload, degrees, method) for method in axes.context_method}
    refused: Counter[str] = Counter()
    groups: dict[_Alike, list[StagedPipeline]] = defaultdict(list)
    schedules: dict[_Alike, tuple[ScheduleName, ...]] = {}
    each = len(splits) * len(axes.micro_batch)
    for one in pipelines:
        pipeline = one.layout
        runs = tuple(name for name in axes.schedule if (name == "interleaved-1f1b") == (pipeline.virtual_pipeline > 1))
        if pipeline.pipeline == 1:
            runs = runs[:1]
        shardings = tuple(_shardings(workload, axes, variant, pipeline, refused, each))
        if not runs:
            refused["interleaving_has_chunks"] += each * len(shardings)
        for mirrors in (False, True):
            own_schedules = tuple(name for name in runs if (name == "dualpipe" and pipeline.pipeline > 1) == mirrors)
            if own_schedules and shardings:
                kinds = one.mirrored if mirrors else one.groups
                key = (pipeline.virtual_pipeline, len(kinds), mirrors, shardings)
                schedules[key] = own_schedules
                groups[key].append((pipeline, kinds))
    results = []
    for key, members in groups.items():
        choices = tuple(
            replace(PLAIN_LAYOUT, schedule=schedule, context_method=method, offload=offload)
            for method in axes.context_method
            for offload in axes.offload
            for schedule in schedules[key]
        )
        *_, mirrors, shardings = key
        each = len(shardings) * len(axes.micro_batch)
        for own in _by_pipeline_degree(members, len(splits), each):
            grids = (
                Grid(part, tuple(pipeline for pipeline, _ in own), shardings, axes.micro_batch)
                for part in _partition_splits(splits, len(own) * each)
            )
            stages, orders, first = tuple(kinds for _, kinds in own), axes.rank_order[1:], 0
            for grid in grids:
                results.append(Block(variant, grid, stages, choices, mirrors, orders, axes.data, ledgers, first))
                first += len(grid.splits)
    return results, refused


def _splits(workload: Workload, axes: SearchSpace) -> Iterator[CompleteLayout]:
    """Splits of one layer, sorted by the number of GPUs that one sequence uses."""
    result = {}
    for tensor in axes.tensor:
        for context in axes.context:
            if workload.cluster.gpus % (tensor * context):
                continue
            for parallel in axes.sequence_parallel if tensor > 1 else axes.sequence_parallel[-1:]:
                for expert in axes.expert:
                    for group in axes.expert_tensor:
                        split = replace(
                            PLAIN_LAYOUT,
                            tensor=tensor,
                            context=context,
                            sequence_parallel=parallel,
                            expert=expert,
                            expert_tensor=group or (1 if expert > 1 else tensor),
                        )
                        result[split] = tensor * context
    yield from sorted(result, key=lambda split: result[split])


def _shardings(
    workload: Workload, axes: SearchSpace, variant: Variant, pipeline: CompleteLayout, refused: Counter[str], each: int
) -> Iterator[CompleteLayout]:
    """How the replicas of one pipeline may share its state."""
    for zero in variant.zero_stages:
        if pipeline.pipeline > 1 and zero not in workload.stack.pipeline_zero_stages:
            refused["stack_shards_so_in_a_pipeline"] += each
            continue
        groups = axes.shard_group if zero else tuple(group for group in axes.shard_group if group != WITHIN_DOMAIN)
        reshard_choices = axes.reshard_after_forward if zero == 3 else (False,)
        if False not in axes.reshard_after_forward and reshard_choices == (False,):
            refused["resharding_needs_sharded_weights"] += each
            continue
        for group in groups:
            shard_group = ALL_REPLICAS if group is None else group
            for reshard in reshard_choices:
                yield replace(PLAIN_LAYOUT, zero_stage=zero, shard_group=shard_group, reshard_after_forward=reshard)


def _by_pipeline_degree(members: list[StagedPipeline], splits: int, each: int) -> Iterator[list[StagedPipeline]]:
    """Pipelines, grouped by degree if they are too many for one grid: equal degrees allow equal replicas."""
    if len(members) * splits * each <= CELLS:
        yield members
        return
    by_stages: dict[int, list[StagedPipeline]] = {}
    for member in members:
        by_stages.setdefault(member[0].pipeline, []).append(member)
    most = max(1, CELLS // each)
    for alike in by_stages.values():
        yield from (alike[start : start + most] for start in range(0, len(alike), most))


def _partition_splits(splits: tuple[CompleteLayout, ...], each: int) -> Iterator[tuple[CompleteLayout, ...]]:
    """Splits in parts whose grids have about CELLS layouts, with splits over equally many GPUs together."""
    part: list[CompleteLayout] = []
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


@dataclass(slots=True)
class StageColumn:
    """One kind of stage of every pipeline of a grid."""

    stage: Stage
    load: RankLoad
    count: Amount


def stage_columns(
    workload: Workload, degrees: Degrees, pipelines: Sequence[tuple[StageGroup, ...]], *, mirrors: bool
) -> list[StageColumn]:
    """Stages of many pipelines with the same number of stage kinds, kind by kind."""
    results = []
    for kind in zip(*pipelines, strict=True):
        stage = _columns([one.stage for one in kind])
        load = rank_load_of(workload, degrees, stage)
        if mirrors:
            load = mirrored(load, rank_load_of(workload, degrees, _columns([one.far for one in kind])), degrees)
        results.append(StageColumn(stage, load, along_or_same([one.count for one in kind], 1)))
    return results


def _columns(stages: Sequence[Stage]) -> Stage:
    """Stages of many pipelines as one stage; all or none have the embedding, and all or none the head."""
    first = stages[0]

    @cache
    def kind_columns(counts: tuple[tuple[Amount, ...], ...]) -> tuple[Amount, ...]:
        return tuple(along_or_same([float(count) for count in kind], 1) for kind in zip(*counts, strict=True))

    return Stage(
        index=along_or_same([float(one.index) for one in stages], 1),
        chunk_counts=tuple(map(kind_columns, zip(*(one.chunk_counts for one in stages), strict=True))),
        depths=along_or_same([float(one.depths) for one in stages], 1),
        is_first=first.is_first,
        is_last=first.is_last,
    )


def reserved_on_peak(
    workload: Workload, degrees: Degrees, columns: Sequence[StageColumn], layout: CompleteLayout
) -> Numbers:
    """Reserved bytes of the peak GPU of every layout of a grid."""
    share, room = reserved_shares(workload)[1], allocator_room_bytes(workload)
    reserved: list[Amount] = []
    for one in columns:
        rank_bytes = stage_bytes(workload, degrees, one.stage, one.load, layout)
        reserved.append(reserved_bytes(rank_bytes.peak, rank_bytes.cached, share, room))
    return np.asarray(reduce(maximum, reserved))


def step_seconds_of(
    workload: Workload,
    degrees: Degrees,
    columns: Sequence[StageColumn],
    micro: Sequence[MicroBatchSeconds],
    layout: CompleteLayout,
    reserved: Numbers,
) -> Numbers:
    """Seconds of the step of every layout of a grid, whose peak GPU reserves so many bytes."""
    sent = [one.count * each.sent_seconds for one, each in zip(columns, micro, strict=True)]
    overhead = StepOverhead(
        stage_seconds=reduce(add, sent) / degrees.pipeline, filled_fraction=reserved / usable_bytes(workload.gpu)
    )
    busy = [
        busy_seconds(workload, degrees, one.load, layout, each, overhead).total
        for one, each in zip(columns, micro, strict=True)
    ]
    return np.asarray(whole_step_seconds(reduce(maximum, busy), workload, degrees, overhead))
