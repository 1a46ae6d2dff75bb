"""Random questions that break no rule: every axis, ZeRO stage and choice of every stack, every model family."""

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

from hypothesis import strategies as st

from service.estimator import Layout, Model, Question, Recipe
from service.estimator.model.build import recurrences_of
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import (
    AttentionName,
    DocumentLength,
    HeldUntil,
    MatrixName,
    Method,
    OffloadName,
    OptimizerName,
    PartName,
    PrecisionName,
    RankOrder,
    RecomputeName,
    RunStage,
    Software,
    StackName,
    Versions,
)
from service.estimator.software.precision import OPTIMIZERS
from service.estimator.software.precision import PRECISIONS as ROWS
from service.estimator.software.stacks import IMPLEMENTATIONS, STACKS, Implementation, Stack
from tests.ask import question
from tests.estimator.small_models import FAMILIES

ENGINE = (
    Versions(transformer_engine="2.1", megatron_core="0.11"),
    Versions(transformer_engine="2.11", megatron_core="0.14", torch="2.9"),
    Versions(transformer_engine="2.19", megatron_core="0.19"),
)
TITAN = (Versions(torchtitan="2024.11", torch="2.5"), Versions(torchtitan="2025.8"))
OTHER = (Versions(), Versions(torch="1.10"), Versions(torch="2.1"))


def stacks_for(model: Model, among: Collection[StackName] = tuple(STACKS)) -> list[StackName]:
    """Stacks that have code for every layer of a model."""
    return [name for name in among if set(recurrences_of(model)) <= set(STACKS[name].recurrences)]


def implementation_in(software: Software) -> Implementation:
    """Whose operations a software runs, the stack's usual ones where it does not say."""
    rows = IMPLEMENTATIONS[software.name]
    return next(iter(rows.values())) if software.implementation is None else rows[software.implementation]


@st.composite
def software(draw: st.DrawFn, model: Model, among: Collection[StackName] = tuple(STACKS)) -> Software:
    """A stack by its usual ways, or with any of its choices made."""
    name = draw(st.sampled_from(stacks_for(model, among)))
    plain = Software(name=name)
    if draw(st.booleans()):
        return plain
    asked = replace(plain, implementation=draw(st.sampled_from((None, *IMPLEMENTATIONS[name]))))
    run = implementation_in(asked)
    libraries = ENGINE if run.uses_transformer_engine else TITAN if name == "torchtitan" else OTHER
    versions = draw(st.sampled_from((None, *libraries)))
    lacks_loss = versions in (ENGINE[0], ENGINE[2])
    deterministic = draw(st.booleans())
    lacking = {"transformer-engine"} if lacks_loss else set()
    lacking |= {"transformer-engine", "fused"} if deterministic and name == "megatron-core" else set()
    losses = [loss for loss in run.cross_entropies if loss not in lacking]
    optional = (None, False, True)
    engine = optional if run.uses_transformer_engine else (None, False)
    fuses = optional if name == "megatron-core" else (None, False)
    launches = (False, True) if run.uses_transformer_engine or asked.implementation == "compiled" else (False,)
    sends = (None, "alltoall", "allgather", "flex") if model.num_experts and name == "megatron-core" else (None,)
    return replace(
        asked,
        versions=versions,
        cross_entropy=draw(st.sampled_from((None, *losses))),
        gradient_fusion=draw(st.sampled_from(fuses)),
        cuda_graphs=draw(st.sampled_from(launches)),
        fused_update=draw(st.sampled_from(optional)),
        deterministic=deterministic,
        grouped_experts=draw(st.sampled_from(engine if model.num_experts else (None, False))),
        dispatcher=draw(st.sampled_from(sends)),
        attention_mask=draw(st.booleans()),
        expandable_segments=draw(st.sampled_from(optional)),
        logits_until=draw(st.sampled_from((None, *get_args(HeldUntil)))),
    )


def kernels_of(asked: Software) -> tuple[AttentionName, ...]:
    """Attention kernels that a software calls on Hopper."""
    run = implementation_in(asked)
    plain: tuple[AttentionName, ...] = ("eager", "flash", "flash-2", "flash-3")
    return (*plain, "cudnn") if run.uses_transformer_engine or asked.name == "torchtitan" else plain


PRECISIONS = ("fp32", "fp16-mixed", "bf16", "bf16-mixed", "fp8-tensorwise", "fp8-blockwise")
FP8 = ("fp8-tensorwise", "fp8-blockwise")


@st.composite
def axes(draw: st.DrawFn, model: Model, stack: Stack) -> dict[str, Any]:
    """Degrees that are powers of two divide each other, and the small models, wherever the rules ask for it."""

    def degree(axis: str, sizes: tuple[int, ...]) -> int:
        return draw(st.sampled_from(sizes)) if axis in stack.axes else 1

    data, tensor, pipeline = (
        draw(st.sampled_from((1, 2, 4))),
        degree("tensor", (1, 2, 4)),
        degree("pipeline", (1, 2, 4)),
    )
    context = 1 if recurrences_of(model) else degree("context", (1, 2, 4))
    chunks = tuple(v for v in (1, 2) if v == 1 or (pipeline > 1 and model.num_hidden_layers % (pipeline * v) == 0))
    whole_norms = tensor > 1 and not stack.splits_norms
    experts = tuple(e for e in (1, 2, 4, 8) if data * context * tensor % e == 0 and not (whole_norms and e > 1))
    return {
        "data": data,
        "tensor": tensor,
        "context": context,
        "pipeline": pipeline,
        "virtual_pipeline": degree("virtual_pipeline", chunks),
        "expert": degree("expert", experts) if model.num_experts else 1,
    }


def shard_groups(degrees: dict[str, int]) -> tuple[int | None, ...]:
    """Sizes of a group that shards, smaller than all replicas or not (HSDP), as replicas of experts allow."""
    replicas = degrees["data"] * degrees["context"]
    holders = replicas * degrees["tensor"] // degrees["expert"] if degrees["expert"] > 1 else replicas
    return (None, *(size for size in (1, 2, 4, 8) if replicas % size == 0 and holders % size == 0))


@st.composite
def layouts(draw: st.DrawFn, model: Model, run: Software) -> Layout:
    """Degrees, and any way to shard, to schedule, to exchange, to deal layers and to offload."""
    stack = STACKS[run.name]
    sends_activations = stack.offloads_activations and (run.name, run.implementation) != ("megatron-core", "local")
    degrees = draw(axes(model, stack))
    pipeline, virtual = degrees["pipeline"], degrees["virtual_pipeline"]
    zero_stages = stack.zero_stages if pipeline == 1 else tuple({*stack.zero_stages} & {*stack.pipeline_zero_stages})
    zero_stage = draw(st.sampled_from(sorted(zero_stages)))
    plain = [s for s in stack.schedules if s != "interleaved-1f1b" and (s != "dualpipe" or pipeline > 1)]
    kept_back = () if sends_activations else ("activations", "optimizer-and-activations")
    kept_back = kept_back if run.name == "megatron-core" else (*kept_back, "moments")
    offloads = [o for o in get_args(OffloadName) if o not in kept_back and (o != "model" or zero_stage == 3)]
    frees = (None, True, False) if zero_stage == 3 else (None, False)
    needs_split_norms = degrees["expert"] > 1 and degrees["tensor"] > 1
    layout = Layout(
        **degrees,
        zero_stage=zero_stage,
        shard_group=draw(st.sampled_from(shard_groups(degrees))) if zero_stage else None,
        reshard_after_forward=draw(st.sampled_from(frees)),
        sequence_parallel=None if needs_split_norms else draw(st.sampled_from((None, False))),
        context_method=draw(st.sampled_from(stack.context_methods)),
        virtual_group=draw(st.sampled_from((None, pipeline, 2 * pipeline))) if virtual > 1 else None,
        schedule="interleaved-1f1b" if virtual > 1 else draw(st.sampled_from(plain)),
        offload=draw(st.sampled_from(offloads)),
        rank_order=draw(st.sampled_from(orders(model, stack, degrees, zero_stage))),
    )
    return replace(layout, **draw(dealings(model, stack, layout)))


def orders(model: Model, stack: Stack, degrees: dict[str, int], zero_stage: int) -> tuple[RankOrder, ...]:
    """Orders of ranks: without FSDP, and with experts that fill a stage of a replica, any that the stack has."""
    replica = degrees["tensor"] * degrees["context"]
    filled = degrees["expert"] if degrees["expert"] > 1 else degrees["tensor"]
    is_able = degrees["pipeline"] == 1 or not model.num_experts or filled == replica
    return stack.rank_orders if is_able and zero_stage in stack.reordered_zero_stages else stack.rank_orders[:1]


@st.composite
def dealings(draw: st.DrawFn, model: Model, stack: Stack, layout: Layout) -> dict[str, Any]:
    """Layers dealt evenly, with an end of the model counted as a layer, or as a list says, empty stages among them."""
    chunks = layout.pipeline * layout.virtual_pipeline
    if chunks == 1:
        return {}
    ends: list[dict[str, Any]] = [
        {"embedding_in_split": e, "loss_in_split": h} for e in (False, True) for h in (False, True)
    ]
    legal = [e for e in ends if not stack.partitions_by_cost and partition_layers(replace(layout, **e), model)]
    cuts = sorted(draw(st.lists(st.integers(0, model.num_hidden_layers), min_size=chunks - 1, max_size=chunks - 1)))
    bounds = [0, *cuts, model.num_hidden_layers]
    listed = {"stage_layers": tuple(after - before for before, after in pairwise(bounds))}
    even: list[dict[str, Any]] = [] if model.num_hidden_layers % chunks else [{}, {}]
    return draw(st.sampled_from([*even, *legal, listed]))


WHOLE: tuple[tuple[PartName, ...], ...] = ((), ("embedding", "head"), ("norms",))
TARGETS: tuple[tuple[MatrixName, ...], ...] = (("o_proj",), ("o_proj", "down_proj"), ("all-linear",))


@st.composite
def methods(draw: st.DrawFn, model: Model, stack: Stack, layout: Layout) -> Method:
    """Full training, first layers and tables frozen, or adapters; schedules that split the backward pass train all."""
    whole = Method(name="full")
    if layout.schedule in ("zero-bubble", "dualpipe") or not stack.freezes:
        return whole
    layers = draw(st.integers(0, model.num_hidden_layers - 1))
    choices = [whole, Method(name="full", frozen=("embedding", "head"), frozen_layers=layers)]
    targets, rank = draw(st.sampled_from(TARGETS)), draw(st.sampled_from((1, 16)))
    beside, dropped = draw(st.sampled_from(WHOLE)), draw(st.sampled_from((0.0, 0.05)))
    adapted = Method(name="lora", rank=rank, targets=targets, whole=beside, dropout_fraction=dropped)
    choices.append(adapted)
    if stack.quantizes:
        choices.append(replace(adapted, name="qlora"))
    return draw(st.sampled_from(choices))


HISTOGRAMS: tuple[tuple[DocumentLength, ...], ...] = (
    (),
    (DocumentLength(tokens=300, count=20), DocumentLength(tokens=5000, count=3)),
)


@st.composite
def formats(draw: st.DrawFn, layout: Layout, run: Software, method: Method) -> dict[str, Any]:
    """Formats of weights, gradients, master copy and moments, and the optimizer."""
    stack = STACKS[run.name]
    usable = [
        name for name in PRECISIONS if name in stack.precisions and (ROWS[name].is_mixed or not run.expert_overlap)
    ]
    precision: PrecisionName = draw(st.sampled_from(usable))
    is_sharded = run.name == "megatron-core" and (layout.zero_stage or 0) >= 2
    updates = ("adamw", "sgd-momentum") if is_sharded else get_args(OptimizerName)
    optimizer: OptimizerName = draw(st.sampled_from(updates))
    moments = stack.moment_dtypes if OPTIMIZERS[optimizer].moment_bytes is None else ()
    keeps_master = ROWS[precision].is_mixed and stack.mixed_weights == "compute"
    gathers = implementation_in(run).uses_transformer_engine and bool(layout.zero_stage)
    replaces = (
        gathers
        and layout.offload in ("none", "activations", "model")
        and precision in FP8
        and method == Method(name="full")
    )
    master = draw(st.sampled_from((None, *(stack.master_dtypes if keeps_master else ()))))
    reads: list[bool | None] = [None]
    if stack.decouples_gradients:
        reads += [True] if keeps_master and optimizer == "adamw" else []
        reads += [False] if master != "fp16" else []
    return {
        "precision": precision,
        "gradient_dtype": draw(
            st.sampled_from((None, "fp32", *((ROWS[precision].attention_format,) if keeps_master else ())))
        ),
        "optimizer": optimizer,
        "moment_dtype": draw(st.sampled_from((None, *moments))),
        "master_dtype": master,
        "stack": replace(run, decoupled_gradients=draw(st.sampled_from(reads))),
        "fp8_weights": replaces and draw(st.booleans()),
        "ema": draw(st.booleans()),
    }


@st.composite
def run_stages(draw: st.DrawFn, batch: int) -> dict[str, Any]:
    """Tokens of the run, and stages before its last one: of another length, or with a batch that rises."""
    tokens = draw(st.sampled_from((None, 1e11, 1e13)))
    stages = (
        (),
        (RunStage(until_tokens=1e9, sequence_length=2048),),
        (RunStage(until_tokens=2e9, final_global_batch=3 * batch), RunStage(until_tokens=4e9, sequence_length=16384)),
    )
    return {"training_tokens": tokens, "stages": draw(st.sampled_from(stages)) if tokens else ()}


@st.composite
def recipes(draw: st.DrawFn, model: Model, run: Software, layout: Layout) -> Recipe:
    """A batch that fills the pipeline in whole groups, and any choice of numbers, optimizer, recompute and method."""
    stack, lengths = STACKS[run.name], draw(st.sampled_from(HISTOGRAMS))
    micro_batch = draw(st.sampled_from((1, 2, 3)))
    group = max(layout.pipeline * (2 if layout.schedule == "dualpipe" else 1), layout.virtual_group or 1)
    method = draw(methods(model, stack, layout))
    batch = micro_batch * (layout.data or 1) * group * draw(st.sampled_from((1, 2, 5)))
    granularities: tuple[RecomputeName, ...] = ("none", "selective") if run.expert_overlap else get_args(RecomputeName)
    recompute = draw(st.sampled_from(granularities))
    redraws = run.name == "megatron-core" and run.cuda_graphs and recompute == "selective"
    return Recipe(
        sequence_length=draw(st.sampled_from((1024, 4096, 8192))),
        micro_batch=micro_batch,
        global_batch=batch,
        **draw(run_stages(batch)),
        recompute=recompute,
        attention=draw(st.sampled_from(kernels_of(run))),
        dropout_fraction=0.0 if redraws else draw(st.sampled_from((0.0, 0.1))),
        method=method,
        document_lengths=lengths,
        batching=draw(st.sampled_from(("packed", "padded"))) if lengths else "packed",
        expert_capacity_factor=draw(st.sampled_from((None, 1.0, 1.25))) if model.num_experts else None,
        expert_imbalance=draw(st.sampled_from((1.0, 1.5))) if layout.expert > 1 else 1.0,
        **draw(formats(layout, run, method)),
    )


@st.composite
def exchanges(draw: st.DrawFn, run: Software, layout: Layout) -> dict[str, Any]:
    """Buckets and overlap of the data group, as far as the stack chooses them in a layout."""
    stack, hides = STACKS[run.name], implementation_in(run).overlap.hides_gradients
    stage = stack.zero_stages[0] if layout.zero_stage is None else layout.zero_stage
    able = run.name != "deepspeed" or (layout.pipeline == 1 and stage > 0)
    reduces = (None, False, True)[: 3 if able else 2] if "reduce" in stack.chooses_overlap else (None,)
    reduce = draw(st.sampled_from(reduces))
    serves = (hides if reduce is None else reduce) or not stack.buckets_serve_overlap
    gathers = (None, False, True) if "gather" in stack.chooses_overlap else (None,)
    has_shards = stage > 0 and (hides if reduce is None else reduce)
    fills = serves and stack.bucket_stage is not None and stage <= stack.bucket_stage
    return {
        "overlap_reduce": reduce,
        "overlap_gather": draw(st.sampled_from(gathers if has_shards else gathers[:2])),
        "reduce_bucket_numbers": draw(st.sampled_from((None, 10**6, 10**9) if fills else (None,))),
        "gather_bucket_numbers": draw(
            st.sampled_from((None, 10**6, 10**9) if stage == 3 and stack.gather_bucket_numbers else (None,))
        ),
    }


@st.composite
def overlapping(draw: st.DrawFn, run: Software, model: Model, layout: Layout) -> Software:
    """A software that hides under its compute what a layout sends, or does not."""
    engine = implementation_in(run).uses_transformer_engine
    splits = layout.tensor > 1 and layout.sequence_parallel is not False
    tensor = splits and (run.name == "torchtitan" or (engine and not run.deterministic))
    experts = engine and bool(model.num_experts) and layout.expert > 1 and run.dispatcher != "allgather"
    return replace(
        run,
        **draw(exchanges(run, layout)),
        tensor_overlap=draw(st.sampled_from((None, False, True) if tensor else (None, False))),
        expert_overlap=draw(st.sampled_from((False, True) if experts else (False,))),
    )


@st.composite
def questions(draw: st.DrawFn, among: Collection[StackName] = tuple(STACKS)) -> Question:
    """One question of any family that one of the stacks has."""
    model = draw(st.sampled_from([model for model in FAMILIES.values() if stacks_for(model, among)]))
    run = draw(software(model, among))
    layout = draw(layouts(model, run))
    if layout.tensor == 1 and run.cross_entropy == "loss-parallel":
        run = replace(run, cross_entropy=None)
    run = draw(overlapping(run, model, layout))
    gpus = (layout.data or 1) * layout.tensor * layout.context * layout.pipeline
    return question(model, draw(recipes(model, run, layout)), layout, gpus=gpus)


def with_recipe(asked: Question, **changes: object) -> Question:
    """The question with some fields of the recipe changed."""
    return replace(asked, recipe=replace(asked.recipe, **changes))  # type: ignore[arg-type]  # fields by name


def with_layout(asked: Question, **changes: object) -> Question:
    """The question with some fields of the layout changed."""
    return replace(asked, layout=replace(asked.layout, **changes))  # type: ignore[arg-type]  # fields by name
