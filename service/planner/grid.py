"""Many layouts at once: three kinds of axes, a dimension for each, so that what depends on few is worked out once.

Tensor, context, sequence and expert parallelism decide what one layer costs; pipelines and sharding, how layers and
their numbers are spread; micro-batches multiply both. A formula that reads one of the three broadcasts over the others.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from service.estimator.degrees import Degrees, local_ranks, order_number, replica_spacing, stage_spacing
from service.estimator.names import RankOrder, ZeroStage
from service.estimator.numeric import Amount
from service.estimator.question import Layout, filled
from service.estimator.rule import Rule
from service.estimator.workload import Job
from service.planner.freedom import WITHIN_DOMAIN

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Splits:
    """How the work of one layer is split."""

    tensor: int
    context: int
    sequence_parallel: bool
    expert: int
    expert_tensor: int


@dataclass(frozen=True, slots=True)
class Spreads:
    """How layers are spread over stages, and their numbers over replicas."""

    pipeline: Layout
    """Its pipeline and its order of ranks, the other fields unsaid."""
    zero_stage: ZeroStage
    shard_group: int | None
    """None: all that there are; 0: those inside one fast-link domain."""
    reshard_after_forward: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """Layouts of all splits with all spreads and all micro-batches."""

    splits: tuple[Splits, ...]
    spreads: tuple[Spreads, ...]
    micro_batches: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of splits, spreads and micro-batches [1]."""
        return len(self.splits), len(self.spreads), len(self.micro_batches)

    @property
    def cells(self) -> int:
        """Layouts, legal or not [1]."""
        return prod(self.shape)

    def part(self, legal: Mask) -> tuple["Grid", Mask]:
        """The splits, spreads and micro-batches of which any layout is legal, and what is legal of them."""
        rows, columns, sizes = (np.flatnonzero(legal.any(axis=axes)) for axes in ((1, 2), (0, 2), (0, 1)))
        part = Grid(
            tuple(self.splits[i] for i in rows),
            tuple(self.spreads[i] for i in columns),
            tuple(self.micro_batches[i] for i in sizes),
        )
        return part, legal[np.ix_(rows, columns, sizes)]


def along(numbers: Sequence[float], axis: int) -> Numbers:
    """Numbers of one axis of a grid.

    Args:
        numbers: one for each of its values
        axis: 0 splits, 1 spreads, 2 micro-batches

    Returns:
        a column that broadcasts over the other two
    """
    shape = [1, 1, 1]
    shape[axis] = len(numbers)
    return np.array(numbers, dtype=np.float64).reshape(shape)


def along_or_same(numbers: Sequence[float], axis: int) -> Amount:
    """Numbers of one axis of a grid, or the one number that they all are.

    Args:
        numbers: one for each of its values
        axis: 0 splits, 1 spreads, 2 micro-batches

    Returns:
        a column that broadcasts over the other two, or a plain number
    """
    return float(numbers[0]) if len(set(numbers)) == 1 else along(numbers, axis)


def degrees_in(grid: Grid, job: Job) -> tuple[Degrees, dict[str, Mask]]:
    """The degrees of every layout of a grid, and where they are whole.

    Args:
        grid: the layouts
        job: the job, its batch and its cluster filled

    Returns:
        the degrees, 1 where they would be no whole number; by rule, where they are
    """
    gpus, batch = job.cluster.gpus, filled(job.recipe.global_batch)
    tensor, context = (along([getattr(one, name) for one in grid.splits], 0) for name in ("tensor", "context"))
    pipeline = along([one.pipeline.pipeline for one in grid.spreads], 1)
    micro_batch = along(grid.micro_batches, 2)
    replica = tensor * context * pipeline
    data, divides_cluster = _whole(gpus / replica)
    accumulation, divides_batch = _whole(batch / (micro_batch * data))
    degrees = Degrees(
        data=data,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        virtual_pipeline=along_or_same([one.pipeline.virtual_pipeline for one in grid.spreads], 1),
        virtual_group=along_or_same([filled(one.pipeline.virtual_group) for one in grid.spreads], 1),
        expert=along_or_same([one.expert for one in grid.splits], 0),
        expert_tensor=along_or_same([one.expert_tensor for one in grid.splits], 0),
        zero_stage=along_or_same([one.zero_stage for one in grid.spreads], 1),
        shard_group=data * context,
        reshard_after_forward=along_or_same([one.reshard_after_forward for one in grid.spreads], 1),
        sequence_parallel=along_or_same([one.sequence_parallel for one in grid.splits], 0),
        rank_order=along_or_same([order_number(filled(one.pipeline.rank_order)) for one in grid.spreads], 1),
        micro_batch=micro_batch,
        accumulation=accumulation,
    )
    degrees.shard_group = _shard_groups(grid, job, degrees)
    whole = {"replica_divides_cluster": divides_cluster, "accumulation_is_whole": divides_batch}
    return degrees, whole


def _whole(quotient: Numbers) -> tuple[Numbers, Mask]:
    """Quotients that are whole, 1 in place of the others; and which are."""
    is_whole: Mask = np.floor(quotient) == quotient
    return np.where(is_whole, quotient, 1.0), is_whole


def _shard_groups(grid: Grid, job: Job, degrees: Degrees) -> Numbers:
    everybody = degrees.data * degrees.context
    domain = local_ranks(everybody, replica_spacing(degrees), filled(job.cluster.scale_up_gpus))
    said = along([one.shard_group or 0 for one in grid.spreads], 1)
    within = along([one.shard_group == WITHIN_DOMAIN for one in grid.spreads], 1) == 1
    return np.where(within, domain, np.where(said > 0, said, everybody))


def legal_layouts(
    grid: Grid, job: Job, rules: Sequence[Rule], degrees: Degrees, whole: dict[str, Mask], data: Sequence[int]
) -> tuple[Mask, Counter[str]]:
    """Which layouts of a grid break no rule, and how many break which.

    Args:
        grid: the layouts
        job: the job
        rules: the rules of the grid's pipelines
        degrees: the degrees
        whole: by rule, where the degrees are whole
        data: numbers of replicas that the caller leaves; any where empty

    Returns:
        a mask of the layouts; the others by the first rule that they break
    """
    held: list[tuple[str, Mask]] = list(whole.items())
    if data:
        held.append(("data_is_as_pinned", np.isin(np.asarray(degrees.data), data)))
    held.append(("shard_groups_differ", _differs(grid, degrees)))
    held.extend((rule.name, np.asarray(rule.holds(job, degrees))) for rule in rules)
    return met(np.ones(grid.shape, dtype=np.bool_), held)


def met(legal: Mask, held: Sequence[tuple[str, Mask]]) -> tuple[Mask, Counter[str]]:
    """Which layouts meet every condition, and how many break which.

    Args:
        legal: the layouts that are looked at
        held: by rule, where it holds

    Returns:
        a mask of those that meet all; the others by the first rule that they break
    """
    refused: Counter[str] = Counter()
    left = int(np.count_nonzero(legal))
    for name, holds in held:
        if holds.all():
            continue
        legal = legal & holds
        still = int(np.count_nonzero(legal))
        if still < left:
            refused[name] += left - still
        left = still
    return legal, refused


def _differs(grid: Grid, degrees: Degrees) -> Mask:
    """Whether a shard group inside one domain is another than all replicas, which the grid has anyway."""
    within = along([one.shard_group == WITHIN_DOMAIN for one in grid.spreads], 1) == 1
    same: Mask = np.asarray(degrees.shard_group == degrees.data * degrees.context)
    differs: Mask = np.logical_not(np.logical_and(within, same))
    return differs


def in_order(grid: Grid, order: RankOrder) -> Grid:
    """The same grid in another order of ranks.

    Args:
        grid: the layouts
        order: the order

    Returns:
        the layouts in it
    """
    reordered = (replace(one, pipeline=replace(one.pipeline, rank_order=order)) for one in grid.spreads)
    return replace(grid, spreads=tuple(reordered))


def reordering_gains(grid: Grid, job: Job, degrees: Degrees) -> Mask:
    """Where an order of ranks brings all stages of a replica into one fast-link domain, and the stack can run it.

    Args:
        grid: the layouts, in that order
        job: the job
        degrees: their degrees

    Returns:
        a mask of the layouts; none where one domain holds the whole cluster in any order
    """
    domain, stack = filled(job.cluster.scale_up_gpus), job.stack
    able = [
        one.pipeline.pipeline > 1 and one.zero_stage in stack.reordered_zero_stages and one.shard_group != WITHIN_DOMAIN
        for one in grid.spreads
    ]
    together = local_ranks(degrees.pipeline, stage_spacing(degrees), domain) == degrees.pipeline
    return np.asarray(together & (along(able, 1) == 1) & (domain < job.cluster.gpus))


def layout_at(grid: Grid, degrees: Degrees, place: tuple[int, int, int]) -> Layout:
    """One layout of a grid, its schedule, context method and offload unsaid.

    Args:
        grid: the layouts
        degrees: their degrees
        place: which split, spread and micro-batch

    Returns:
        the layout
    """
    split, spread = grid.splits[place[0]], grid.spreads[place[1]]

    def number(column: object) -> int:
        return int(np.broadcast_to(np.asarray(column), grid.shape)[place])

    return replace(
        spread.pipeline,
        data=number(degrees.data),
        tensor=split.tensor,
        context=split.context,
        sequence_parallel=split.sequence_parallel,
        expert=split.expert,
        expert_tensor=split.expert_tensor,
        zero_stage=spread.zero_stage,
        shard_group=number(degrees.shard_group),
        reshard_after_forward=spread.reshard_after_forward,
    )
