"""Space of legal layouts: values of each axis, partitions of the layers, pipelines, and variants of a job."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from math import inf
from typing import Any

from service.errors import Problem, Refused
from service.estimator.complete import PLAIN_LAYOUT, CompleteLayout
from service.estimator.degrees import Degrees
from service.estimator.memory.device import (
    allocated_interval,
    beside_allocator,
    device_interval,
    headroom_bytes,
    oom_probability_fraction,
    reserved_interval,
    reserved_shares,
    usable_bytes,
    verdict_of,
)
from service.estimator.parallelism.pipeline import partition_layers, partition_layers_by_cost
from service.estimator.parallelism.stages import Stage, stage_at
from service.estimator.question import (
    ContextMethod,
    Layout,
    Model,
    OffloadName,
    Question,
    RankOrder,
    Recompute,
    ScheduleName,
    ZeroStage,
)
from service.estimator.resolve import fill_defaults, problems_whatever_the_degrees, with_stack
from service.estimator.rule import divisors
from service.estimator.workload import Workload, workload_of

ONE_WAY = 1
"""The degree of an axis that is not used."""

MOST_VIRTUAL_STAGES = 24
"""Most model chunks of one stage where you do not restrict them. Source: NVIDIA-NeMo/Megatron-Bridge@067f987d
docs/performance-summary-archive.md, Qwen3 30B-A3B on H100: the most of any published layout."""

RECOMPUTES: tuple[str, ...] = ("none", "selective", "full")
"""Recompute granularities where you do not restrict them."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Values that each field may take, by its name; absent fields are free."""

    allowed: Mapping[str, tuple[Any, ...]]

    def of(self, name: str, free: tuple[Any, ...], is_able: Callable[[Any], bool] = lambda _: True) -> tuple[Any, ...]:
        """The values of one field."""
        values = tuple(dict.fromkeys(self.allowed.get(name, free)))
        return tuple(filter(is_able, values)) or values

    def software(self, question: Question) -> Question:
        """A question that names its software, which runs it in a layout of the first values."""
        names = {each.name for each in fields(Layout)} & self.allowed.keys()
        layout = Layout(**{"data": 1, **{name: self.allowed[name][0] for name in names}})
        return replace(question, recipe=with_stack(replace(question, layout=layout)).recipe)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Values of every axis of one search."""

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
    """Empty where any number will do."""
    stage_layers: tuple[int, ...] | None
    """Layers of each chunk, where you give them."""
    virtual_group: int | None
    """Where you give it; the pipeline degree where None."""


WITHIN_DOMAIN = 0
"""The shard group that stays inside one fast-link domain."""

ALL_REPLICAS = -1
"""The shard group of all replicas and context ranks, where a layout states it."""


def search_space(workload: Workload, constraints: Constraints) -> SearchSpace:
    """Values of the axes of a search; degrees divide the number of GPUs, and what the stack cannot do is left out."""
    stack, model, gpus = workload.stack, workload.model, workload.cluster.gpus
    degrees = tuple(divisors(gpus))

    def split(axis: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return constraints.of(axis, values, lambda value: axis in stack.axes or value in (None, ONE_WAY))

    splits_experts = bool(model.num_experts) and "expert_tensor" in stack.axes
    released = tuple(name for name in stack.schedules if name not in stack.forked_schedules)
    layers, able = constraints.of("stage_layers", (None,))[0], stack.rank_orders
    orders = constraints.of("rank_order", able, able.__contains__)
    counted = (False,) if layers or stack.partitions_by_cost else (False, True)
    return SearchSpace(
        tensor=split("tensor", _at_most(degrees, model.num_attention_heads)),
        context=split("context", _at_most(degrees, workload.recipe.sequence_length)),
        pipeline=split("pipeline", _at_most(degrees, model.num_hidden_layers)),
        virtual_pipeline=split("virtual_pipeline", tuple(range(1, MOST_VIRTUAL_STAGES + 1))),
        expert=split("expert", tuple(divisors(model.num_experts)) if model.num_experts else (1,)),
        expert_tensor=constraints.of("expert_tensor", (None, 1) if splits_experts else (None,)),
        zero_stage=constraints.of("zero_stage", stack.zero_stages),
        shard_group=constraints.of("shard_group", (None, WITHIN_DOMAIN)),
        reshard_after_forward=constraints.of("reshard_after_forward", (True, False)),
        sequence_parallel=constraints.of(
            "sequence_parallel", (True, False), lambda value: stack.splits_norms or not value
        ),
        micro_batch=constraints.of("micro_batch", tuple(divisors(workload.recipe.global_batch))),
        schedule=constraints.of("schedule", released, stack.schedules.__contains__),
        context_method=constraints.of("context_method", stack.context_methods[:1], stack.context_methods.__contains__),
        rank_order=tuple(sorted(orders, key=lambda order: order in able[1:])),
        offload=constraints.of("offload", ("none",), lambda value: _offloads(workload, value)),
        ends_in_split=tuple(
            product(constraints.of("embedding_in_split", counted), constraints.of("loss_in_split", counted))
        ),
        recompute=constraints.of("recompute", RECOMPUTES),
        data=constraints.of("data", ()),
        stage_layers=layers,
        virtual_group=constraints.of("virtual_group", (None,))[0],
    )


def _offloads(workload: Workload, offload: OffloadName) -> bool:
    """Whether the software offloads this where everything is sharded."""
    layout = replace(PLAIN_LAYOUT, data=workload.cluster.gpus, zero_stage=3, offload=offload)
    return "layout.offload" not in {problem.field for problem in problems_whatever_the_degrees(workload, layout)}


def _at_most(values: tuple[int, ...], most: int) -> tuple[int, ...]:
    return tuple(value for value in values if value <= most)


@dataclass(frozen=True, slots=True)
class StageGroup:
    """Stages of one pipeline that are alike."""

    stage: Stage
    """The first of them, which holds most micro-batches."""
    far: Stage
    """The stage as far from the other end, whose weights a DualPipe rank holds too."""
    count: int


def stage_groups(workload: Workload, layout: CompleteLayout, *, mirrors: bool) -> tuple[StageGroup, ...]:
    """The stages of one pipeline, grouped by their load; `stage_at` reads only the degrees of the pipeline."""
    pipeline = {"pipeline": layout.pipeline, "virtual_pipeline": layout.virtual_pipeline}
    degrees = Degrees(**{**dict.fromkeys(Degrees.__slots__, 1), **pipeline})
    stages = [
        stage_at(workload, degrees, index, layout.stage_layers, layout.virtual_pipeline)
        for index in range(layout.pipeline)
    ]
    shapes = [stage.shape for stage in stages]
    places: dict[tuple[object, object], list[int]] = {}
    for index, shape in enumerate(shapes):
        places.setdefault((shape, shapes[-1 - index] if mirrors else ()), []).append(index)
    return tuple(StageGroup(stages[first], stages[-1 - first], 1 + len(others)) for first, *others in places.values())


HALVINGS = 100
"""Halvings of an interval after which its ends are neighbours. Source: 53 bits of a double, and some to spare."""


def fits(workload: Workload, reserved: float, headroom_fraction: float = 0.0) -> bool:
    """Whether a job fits whose allocator reserves so much on the peak GPU."""
    spread = reserved_interval(allocated_interval(workload, 1.0), reserved, reserved_shares(workload))
    device, usable = device_interval(spread, beside_allocator(workload)), usable_bytes(workload.gpu)
    free = headroom_bytes(usable, device) >= headroom_fraction * usable
    return free and verdict_of(oom_probability_fraction(device, usable)) == "fits"


def most_reserved_bytes(workload: Workload, headroom_fraction: float = 0.0) -> float:
    """Most bytes that the allocator may reserve on the peak GPU of a layout that fits.

    Formula: the largest reserved memory of which `fits` is true, which is true of all that are smaller
    Args:
        headroom_fraction: share of the usable memory that has to stay free [1]
    Returns: bytes of one GPU [byte]; minus infinity where nothing fits
    Source: device.reserved_interval, device.device_interval, verdict

    >>> from service.estimator.samples import sample_workload
    >>> most = most_reserved_bytes(sample_workload())
    >>> fits(sample_workload(), most), fits(sample_workload(), most * 1.0001)
    (True, False)
    """
    low, high = 1.0, 2 * usable_bytes(workload.gpu)
    if not fits(workload, low, headroom_fraction):
        return -inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(workload, middle, headroom_fraction) else (low, middle)
    return low


def partitions_of(
    workload: Workload, axes: SearchSpace, stages: int
) -> Iterator[tuple[int, tuple[CompleteLayout, ...]]]:
    """The pipelines of so many stages, for each number of virtual stages.

    Layers are partitioned evenly, with embedding and head counted as layers or not; where no even partition exists, as
    in published runs: unevenly, or all chunks but the last full.
    """
    one_way = replace(
        PLAIN_LAYOUT, pipeline=stages, virtual_group=axes.virtual_group or stages, rank_order=axes.rank_order[0]
    )
    plain = {virtual: replace(one_way, virtual_pipeline=virtual) for virtual in axes.virtual_pipeline}
    if axes.stage_layers or workload.stack.partitions_by_cost:
        for virtual, layout in plain.items():
            yield virtual, _fixed_partition(workload, axes, layout)
        return
    even = {virtual: _even_partitions(workload.model, axes, layout) for virtual, layout in plain.items()}
    never_even = not any(layouts for virtual, layouts in even.items() if virtual > 1)
    for virtual, layouts in even.items():
        may_differ = (False, False) in axes.ends_in_split and (virtual == 1 or never_even)
        yield virtual, layouts or (_uneven_partitions(workload.model, plain[virtual]) if may_differ else ())


def _fixed_partition(workload: Workload, axes: SearchSpace, plain: CompleteLayout) -> tuple[CompleteLayout, ...]:
    """The one partition that the caller gives, or that the stack makes."""
    chunks, layers = plain.pipeline * plain.virtual_pipeline, workload.model.num_hidden_layers
    if axes.stage_layers:
        fills = len(axes.stage_layers) == chunks and sum(axes.stage_layers) == layers
        return (replace(plain, stage_layers=axes.stage_layers),) if fills else ()
    if chunks == 1:
        return (plain,)
    return (replace(plain, stage_layers=partition_layers_by_cost(chunks, workload.model)),) if chunks <= layers else ()


def _even_partitions(model: Model, axes: SearchSpace, plain: CompleteLayout) -> tuple[CompleteLayout, ...]:
    chunks, results = plain.pipeline * plain.virtual_pipeline, []
    for embedding, loss in axes.ends_in_split:
        counted = replace(plain, embedding_in_split=embedding, loss_in_split=loss)
        layers = partition_layers(counted, model)
        if layers is not None and chunks > 1:
            results.append(replace(counted, stage_layers=layers))
        elif not (embedding or loss) and model.num_hidden_layers % chunks == 0:
            results.append(counted)
    return tuple(results)


def _uneven_partitions(model: Model, plain: CompleteLayout) -> tuple[CompleteLayout, ...]:
    chunks, layers = plain.pipeline * plain.virtual_pipeline, model.num_hidden_layers
    partitions = [full_but_last(layers, chunks)]
    if plain.virtual_pipeline == 1:
        partitions += [balanced_layers(layers, chunks), larger_first(layers, chunks)]
    return tuple(replace(plain, stage_layers=one) for one in dict.fromkeys(partitions) if one is not None)


def balanced_layers(layers: int, chunks: int) -> tuple[int, ...] | None:
    """Layers of each chunk, as even as they go with embedding and head counted as a layer each.

    Formula: L + 2 split over n chunks, the larger shares in the middle and last of them first; one fewer at both ends
    Args:
        layers: layers of the model, L [1]
        chunks: stages x virtual stages, n [1]
    Returns: layers of each chunk in the order of the model [1]; None where a chunk would have none
    Source: Llama 3, arXiv:2407.21783, section 3.3.2 (one layer fewer on the first and the last stage)

    >>> balanced_layers(32, 5)
    (5, 7, 7, 7, 6)
    """
    if chunks < 2:
        return None
    each, more = divmod(layers + 2, chunks)
    partitions = [each] * chunks
    order = [*range(chunks - 2, 0, -1), chunks - 1, 0]
    for place in order[:more]:
        partitions[place] += 1
    partitions[0] -= 1
    partitions[-1] -= 1
    return tuple(partitions) if min(partitions) > 0 else None


def larger_first(layers: int, chunks: int) -> tuple[int, ...] | None:
    """Layers of each chunk, as even as they go, the larger shares first.

    Formula: floor(L / n), one more in the first L mod n
    Args:
        layers: layers of the model, L [1]
        chunks: stages x virtual stages, n [1]
    Returns: layers of each chunk in the order of the model [1]; None where a chunk would have none
    Source: deepspeedai/DeepSpeed@edaa722 runtime/utils.py partition_uniform

    >>> larger_first(32, 5)
    (7, 7, 6, 6, 6)
    """
    each, more = divmod(layers, chunks)
    return (each + 1,) * more + (each,) * (chunks - more) if each else None


def full_but_last(layers: int, chunks: int) -> tuple[int, ...] | None:
    """Layers of each chunk, the same in all but the last, which has the head beside what is left.

    Formula: q = ceil(L / n), and L - (n - 1) q in the last
    Args:
        layers: layers of the model, L [1]
        chunks: stages x virtual stages, n [1]
    Returns: layers of each chunk in the order of the model [1]; None where the last would have none
    Source: Megatron-LM decoder-last-pipeline-num-layers; Megatron-Bridge's DeepSeek-V3 and Kimi K2 in 16 chunks

    >>> full_but_last(61, 16)
    (4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1)
    """
    each = -(-layers // chunks)
    last = layers - (chunks - 1) * each
    return (each,) * (chunks - 1) + (last,) if last > 0 else None


@dataclass(frozen=True, slots=True)
class Variant:
    """A workload under one recompute rule and some ZeRO stages."""

    workload: Workload
    recompute: str | Recompute
    zero_stages: tuple[ZeroStage, ...]
    most_reserved_bytes: float
    """Most bytes that the allocator may reserve on the peak GPU of a layout that fits."""


def variants_of(question: Question, axes: SearchSpace, headroom_fraction: float) -> tuple[list[Variant], Counter[str]]:
    """The workloads of a question: one for each recompute rule, and for each kind of state that ZeRO stages keep."""
    results: list[Variant] = []
    problems: list[Problem] = []
    refused: Counter[str] = Counter()
    for recompute in axes.recompute:
        by_kind: dict[tuple[object, ...], tuple[Workload, list[ZeroStage]]] = {}
        for zero in axes.zero_stage:
            workload = plain_workload(question, recompute, zero)
            plain = replace(
                PLAIN_LAYOUT,
                data=workload.cluster.gpus,
                zero_stage=zero,
                shard_group=workload.cluster.gpus,
                schedule=workload.stack.schedules[0],
                context_method=workload.stack.context_methods[0],
                reshard_after_forward=zero == 3,
                rank_order=axes.rank_order[0],
            )
            unmet = problems_whatever_the_degrees(workload, plain)
            if unmet:
                problems.extend(unmet)
                refused[unmet[0].code] += 1
                continue
            by_kind.setdefault((workload.state, workload.recipe.gradient_dtype), (workload, []))[1].append(zero)
        for workload, zeros in by_kind.values():
            results.append(Variant(workload, recompute, tuple(zeros), most_reserved_bytes(workload, headroom_fraction)))
    if not results:
        raise Refused(*dict.fromkeys(problems))
    return results, refused


def plain_workload(
    question: Question, recompute: str | Recompute = "none", zero_stage: ZeroStage | None = None
) -> Workload:
    """The workload of a question, before a layout divides it."""
    plain = Layout(data=1, zero_stage=zero_stage)
    recipe = replace(question.recipe, micro_batch=1, recompute=recompute)  # type: ignore[arg-type]  # a name of the table
    return workload_of(fill_defaults(replace(question, recipe=recipe, layout=plain)))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One way to partition the layers of a model."""

    layout: CompleteLayout
    """Stages, virtual stages, layers of each, order of ranks; the other fields unset."""
    groups: tuple[StageGroup, ...]
    mirrored: tuple[StageGroup, ...]
    """The same where each rank serves a stage from either end (DualPipe)."""


def pipelines_of(workload: Workload, axes: SearchSpace) -> tuple[tuple[Pipeline, ...], Counter[str]]:
    """Every pipeline that the layers of a model can fill, and how many pairs of degrees each rule leaves out."""
    results: list[Pipeline] = []
    refused: Counter[str] = Counter()
    for stages in axes.pipeline:
        for virtual, partitions in partitions_of(workload, axes, stages):
            if virtual > 1 and stages == 1:
                refused["virtual_pipeline_needs_pipeline"] += 1
                continue
            if not partitions:
                refused["stage_layers_cover_the_model" if axes.stage_layers else "pipeline_divides_layers"] += 1
            for layout in partitions:
                mirrors = virtual == 1 and stages > 1
                mirrored = stage_groups(workload, layout, mirrors=True) if mirrors else ()
                results.append(Pipeline(layout, stage_groups(workload, layout, mirrors=False), mirrored))
    return tuple(results), refused
