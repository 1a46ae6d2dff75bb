"""Which values may each axis of a layout take: all that the stack knows, or those that the caller leaves?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from service.estimator.names import ContextMethod, OffloadName, RankOrder, ScheduleName, ZeroStage
from service.estimator.question import Layout, Recompute, filled
from service.estimator.resolve import demands_unmet
from service.estimator.rule import divisors
from service.estimator.workload import Job

ONE_WAY = 1
"""The degree of an axis that is not used."""

MOST_VIRTUAL_STAGES = 24
"""Model chunks of one stage, where nothing is said of them. Source: NVIDIA-NeMo/Megatron-Bridge@067f987d
docs/performance-summary-archive.md, Qwen3 30B-A3B on H100: the most of any published layout."""

RECOMPUTES: tuple[str, ...] = ("none", "selective", "full")
"""What recompute may be where nothing is said of it."""


@dataclass(frozen=True, slots=True)
class Freedom:
    """What the caller leaves open: the values that each field may take, by its name; absent fields are free."""

    allowed: Mapping[str, tuple[Any, ...]]

    def of(self, name: str, free: tuple[Any, ...], is_able: Callable[[Any], bool] = lambda _: True) -> tuple[Any, ...]:
        """The values of one field.

        Args:
            name: the field
            free: what it may be where the caller says nothing
            is_able: whether the stack can do a value

        Returns:
            the values that are left, each once; those that the stack cannot do only where there is no other, so that
            whoever asks for one is told
        """
        values = tuple(dict.fromkeys(self.allowed.get(name, free)))
        return tuple(filter(is_able, values)) or values


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The values of every axis that one search goes through."""

    tensor: tuple[int, ...]
    context: tuple[int, ...]
    pipeline: tuple[int, ...]
    virtual_pipeline: tuple[int, ...]
    expert: tuple[int, ...]
    expert_tensor: tuple[int | None, ...]
    """None: as the estimator fills it, 1 where experts are split, else tensor."""
    zero_stage: tuple[ZeroStage, ...]
    shard_group: tuple[int | None, ...]
    """None: all replicas and context ranks; 0: those inside one fast-link domain."""
    reshard_after_forward: tuple[bool, ...]
    sequence_parallel: tuple[bool, ...]
    micro_batch: tuple[int, ...]
    schedule: tuple[ScheduleName, ...]
    context_method: tuple[ContextMethod, ...]
    rank_order: tuple[RankOrder, ...]
    """Those after the first only where they bring the stages of a replica into one fast-link domain."""
    offload: tuple[OffloadName, ...]
    ends_in_split: tuple[tuple[bool, bool], ...]
    """Whether embedding and head count as layers."""
    recompute: tuple[str | Recompute, ...]
    data: tuple[int, ...]
    """Empty where any will do."""
    stage_layers: tuple[int, ...] | None
    """Layers of each chunk, where the caller says them."""
    virtual_group: int | None
    """Where the caller says it; the pipeline degree where None."""


WITHIN_DOMAIN = 0
"""Stands for the shard group that stays inside one fast-link domain."""


def axes_of(job: Job, freedom: Freedom) -> Axes:
    """The values that the axes of a search take.

    Degrees divide the number of GPUs; what the stack cannot do is left out. Where the caller says nothing, schedules
    are those that the stack runs as it is released, the shard group is everybody or one fast-link domain, virtual
    stages are few, recompute is one of three granularities, nothing is offloaded, and keys and values travel the
    stack's first way. Ranks are numbered in the stack's first order, and in another too where that brings the stages
    of a replica into one fast-link domain.

    Args:
        job: the job, its cluster filled
        freedom: what the caller leaves open

    Returns:
        the values of each axis
    """
    stack, model, gpus = job.stack, job.model, job.cluster.gpus
    degrees = tuple(divisors(gpus))

    def split(axis: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return freedom.of(axis, values, lambda value: axis in stack.axes or value in (None, ONE_WAY))

    splits_experts = bool(model.num_experts) and "expert_tensor" in stack.axes
    released = tuple(name for name in stack.schedules if name not in stack.forked_schedules)
    layers = freedom.of("stage_layers", (None,))[0]
    return Axes(
        tensor=split("tensor", _at_most(degrees, model.num_attention_heads)),
        context=split("context", _at_most(degrees, job.recipe.sequence_length)),
        pipeline=split("pipeline", _at_most(degrees, model.num_hidden_layers)),
        virtual_pipeline=split("virtual_pipeline", tuple(range(1, MOST_VIRTUAL_STAGES + 1))),
        expert=split("expert", tuple(divisors(model.num_experts)) if model.num_experts else (1,)),
        expert_tensor=freedom.of("expert_tensor", (None, 1) if splits_experts else (None,)),
        zero_stage=freedom.of("zero_stage", stack.zero_stages),
        shard_group=freedom.of("shard_group", (None, WITHIN_DOMAIN)),
        reshard_after_forward=freedom.of("reshard_after_forward", (True, False)),
        sequence_parallel=freedom.of("sequence_parallel", (True, False), lambda value: stack.splits_norms or not value),
        micro_batch=freedom.of("micro_batch", tuple(divisors(filled(job.recipe.global_batch)))),
        schedule=freedom.of("schedule", released, stack.schedules.__contains__),
        context_method=freedom.of("context_method", stack.context_methods[:1], stack.context_methods.__contains__),
        rank_order=_rank_orders(job, freedom),
        offload=freedom.of("offload", ("none",), lambda value: _offloads(job, value)),
        ends_in_split=_ends_in_split(freedom, counts=not (layers or stack.deals_by_cost)),
        recompute=freedom.of("recompute", RECOMPUTES),
        data=freedom.of("data", ()),
        stage_layers=layers,
        virtual_group=freedom.of("virtual_group", (None,))[0],
    )


def _offloads(job: Job, offload: OffloadName) -> bool:
    """Whether the software sends that to host memory where everything is sharded."""
    layout = Layout(data=job.cluster.gpus, zero_stage=3, offload=offload)
    return "layout.offload" not in {problem.field for problem in demands_unmet(job, layout)}


def _ends_in_split(freedom: Freedom, *, counts: bool) -> tuple[tuple[bool, bool], ...]:
    """Whether embedding and head may count as layers."""
    free = (False, True) if counts else (False,)
    return tuple(
        (embedding, loss)
        for embedding in freedom.of("embedding_in_split", free)
        for loss in freedom.of("loss_in_split", free)
    )


def _rank_orders(job: Job, freedom: Freedom) -> tuple[RankOrder, ...]:
    """Orders of ranks, the one that others are held against first."""
    able = job.stack.rank_orders
    told = freedom.of("rank_order", able, able.__contains__)
    return tuple(sorted(told, key=lambda order: order in able[1:]))


def _at_most(values: tuple[int, ...], most: int) -> tuple[int, ...]:
    return tuple(value for value in values if value <= most)
