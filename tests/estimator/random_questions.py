"""Random questions that the service accepts: any model, stack, layout and recipe, by field and not by rule.

Unlike `legal_questions`, which draws only what the rules allow, a draft may break any rule: the service's refusals name
the fields to drop.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from math import gcd
from random import Random
from typing import Any, get_args

from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.estimator import Cluster, Gpu, Layout, Model, Question, Recipe
from service.estimator.question import (
    AttentionName,
    BatchingName,
    ContextMethod,
    CrossEntropyName,
    DispatcherName,
    DocumentLength,
    GradientDtype,
    HeldUntil,
    MasterDtype,
    Method,
    MomentDtype,
    OffloadName,
    OptimizerName,
    PrecisionName,
    RankOrder,
    Recompute,
    RecomputeModule,
    RecomputeName,
    ScheduleName,
    Software,
    StackName,
    Versions,
)
from service.estimator.resolve import resolve
from service.estimator.software.stacks import IMPLEMENTATIONS, STACKS, Stack
from tests.estimator.small_models import FAMILIES

MENDS = 12
"""Times that refused fields of a draft are dropped before another one is drawn."""

DEGREES = (1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 3, 16)
REPLICAS = (1, 2, 3, 4, 8, 16, 64)
LENGTHS = (256, 1000, 1024, 2048, 3072, 4096, 6144, 8192, 16384, 32768, 131072)
VERSIONS = (
    Versions(transformer_engine="2.1", megatron_core="0.11", torch="2.5"),
    Versions(transformer_engine="2.11", megatron_core="0.14", torch="2.9"),
    Versions(torchtitan="2024.11", torch="2.5"),
    Versions(torchtitan="2025.8"),
    Versions(torch="1.10"),
    Versions(torch="2.1"),
)
METHODS = (
    Method(name="lora", rank=16, targets=("q_proj", "v_proj")),
    Method(name="lora", rank=64, targets=("o_proj", "up_proj", "down_proj"), whole=("norms",)),
    Method(name="lora", rank=8, targets=("all-linear",), whole=("embedding", "head"), dropout_fraction=0.1),
    Method(name="qlora", rank=16),
    Method(name="qlora", rank=1, targets=("all-linear",), quantization="gptq"),
    Method(name="qlora", rank=16, targets=("q_proj", "k_proj", "v_proj", "lm_head"), dropout_fraction=0.05),
    Method(name="full", frozen=("embedding", "head"), frozen_layers=1),
    Method(name="full", frozen=("experts", "router")),
    Method(name="full", frozen=("attention", "norms")),
)
DOCUMENTS = (DocumentLength(tokens=300, count=20), DocumentLength(tokens=5000, count=3))
RECOMPUTES: tuple[RecomputeName | Recompute, ...] = (
    *get_args(RecomputeName),
    Recompute(granularity="full", method="block", layers=1),
    Recompute(granularity="full", method="block", layers=3),
    Recompute(granularity="full", method="uniform", layers=2),
    *(Recompute(granularity="selective", modules=(module,)) for module in get_args(RecomputeModule)),
)


@cache
def models() -> dict[str, Model]:
    """Every model of the catalogue that can be estimated, and a small one of each family."""
    rows = shipped_catalogue().models
    known = {slug: row.model for slug, row in rows.items() if row.model is not None}
    return {**known, **{f"small {name}": model for name, model in FAMILIES.items()}}


@cache
def gpus() -> dict[str, Gpu]:
    """Every accelerator of the catalogue."""
    return {slug: row.gpu for slug, row in shipped_catalogue().gpus.items()}


def questions(count: int, seed: int) -> Iterator[Question]:
    """So many random questions that the service accepts, the same ones for the same seed."""
    chance = Random(seed)  # noqa: S311 - repeatable
    for _ in range(count):
        while (question := accepted(draft(chance))) is None:
            pass
        yield question


def accepted(question: Question | None) -> Question | None:
    """The question without the fields that the service refuses; None where that helps nothing."""
    for _ in range(MENDS):
        if question is None:
            return None
        try:
            resolve(question)
        except Refused as refused:
            for problem in refused.problems:
                question = without(question, problem.field) if question is not None else None
        else:
            return question
    return None


def without(question: Question, path: str) -> Question | None:
    """The question with one field as it is where absent; None where it has to be given."""
    noun, _, name = path.partition(".")
    name, _, inner = name.partition(".")
    if noun == "recipe" and name == "stack" and isinstance(question.recipe.stack, Software):
        plain = Software(name=question.recipe.stack.name)
        kept = replace(question.recipe.stack, **{inner: getattr(plain, inner)}) if hasattr(plain, inner) else plain
        return replace(
            question, recipe=replace(question.recipe, stack=plain if kept == question.recipe.stack else kept)
        )
    if noun not in ("recipe", "layout"):
        return None
    part: Any = getattr(question, noun)
    absent = {"data": 1, "pipeline": 1, "global_batch": None}
    usual = {field.name: field.default for field in fields(part) if field.default is not MISSING} | absent
    if name not in usual or getattr(part, name) == usual[name]:
        return None
    return filled(replace(question, **{noun: replace(part, **{name: usual[name]})}))


def filled(question: Question) -> Question:
    """The question on as many GPUs as its layout needs, without an interleaved schedule of one chunk."""
    layout = question.layout
    count = (layout.data or 1) * layout.tensor * layout.context * layout.pipeline
    if layout.virtual_pipeline > 1 and layout.pipeline == 1:
        layout = replace(layout, virtual_pipeline=1, schedule=None)
    return replace(question, layout=layout, cluster=replace(question.cluster, gpus=count))


def draft(chance: Random) -> Question:
    """A question with some of every kind of field set; most drafts break a rule."""
    stack: StackName = chance.choice(list(STACKS))
    model = _model(chance)
    layout = _layout(chance, STACKS[stack], model)
    chunks = layout.pipeline * layout.virtual_pipeline
    if not is_listed(model) and chance.random() < 0.5:
        model = replace(model, num_hidden_layers=-(-model.num_hidden_layers // chunks) * chunks)
    gpu = gpus()[chance.choice(list(gpus()))]
    recipe = _recipe(chance, layout, _software(chance, stack))
    return filled(Question(model=model, recipe=recipe, layout=layout, cluster=Cluster(gpu=gpu.slug, gpus=1), gpu=gpu))


def perhaps(chance: Random, share: float, options: tuple[Any, ...], usual: Any = None) -> Any:
    """One of some options in a share of all draws, else the usual one."""
    return chance.choice(options) if chance.random() < share else usual


def is_listed(model: Model) -> bool:
    """Whether a model says of each layer what it is, so that it has no other depth."""
    return bool(model.layer_types or model.mlp_layer_types)


def _model(chance: Random) -> Model:
    """A model of the catalogue or a small one, or one with another depth and other widths; often with experts."""
    kinds = list(models().values())
    model: Model = chance.choice(perhaps(chance, 0.3, ([one for one in kinds if one.num_experts],), kinds))
    if chance.random() < 0.7:
        return model
    heads = max(1, model.num_attention_heads)
    changes: dict[str, tuple[Any, ...]] = {
        "num_hidden_layers": (1, 2, 5, 12, 61),
        "hidden_size": (heads * 64, heads * 128, 2 * model.hidden_size),
        "head_dim": (64, 128, 256),
        "num_key_value_heads": (1, heads),
        "intermediate_size": (1000, 4096, 65536),
        "vocab_size": (1000, 50257, 262144),
        "tie_word_embeddings": (True, False),
        "scalar_head": (True,),
        "moe_intermediate_size": (512, 2048, 16384),
        "num_experts": (8, 64, 256),
        "shared_expert_intermediate_size": (0, 1024),
        "first_k_dense_replace": (0, 1),
        "num_nextn_predict_layers": (0, 1, 2),
    }
    kept = {"num_hidden_layers"} if is_listed(model) else set()
    if not model.num_experts:
        kept |= {name for name in changes if "expert" in name or name.startswith(("moe", "first_k"))}
    drawn = {name: chance.choice(options) for name, options in changes.items() if chance.random() < 0.25}
    return replace(model, **{name: value for name, value in drawn.items() if name not in kept})


def _layout(chance: Random, row: Stack, model: Model) -> Layout:
    """Degrees on the axes of a stack, and any way to shard, to schedule, to exchange and to offload."""
    axes = ("tensor", "pipeline", "context")
    degrees: dict[str, Any] = {axis: chance.choice(DEGREES) if axis in row.axes else 1 for axis in axes}
    degrees["data"], pipeline = chance.choice(REPLICAS), degrees["pipeline"]
    if model.num_experts and "expert" in row.axes:
        ranks = gcd(degrees["data"] * degrees["tensor"] * degrees["context"], model.num_experts)
        degrees["expert"] = chance.choice([each for each in range(1, ranks + 1) if ranks % each == 0])
    interleaves = pipeline > 1 and "virtual_pipeline" in row.axes and chance.random() < 0.5
    return Layout(
        **degrees,
        expert_tensor=perhaps(chance, 0.1, (1, 2, 4)),
        virtual_pipeline=chance.choice((2, 2, 3, 4)) if interleaves else 1,
        virtual_group=perhaps(chance, 0.3, (pipeline, 2 * pipeline)) if interleaves else None,
        zero_stage=chance.choice((None, *row.zero_stages)),
        shard_group=perhaps(chance, 0.15, (1, 2, 4, 8)),
        reshard_after_forward=perhaps(chance, 0.2, (True, False)),
        sequence_parallel=perhaps(chance, 0.2, (True, False)),
        context_method=perhaps(chance, 0.2, get_args(ContextMethod)),
        schedule="interleaved-1f1b" if interleaves else perhaps(chance, 0.3, get_args(ScheduleName)),
        embedding_in_split=chance.random() < 0.1,
        loss_in_split=chance.random() < 0.1,
        rank_order=perhaps(chance, 0.1, get_args(RankOrder)),
        offload=perhaps(chance, 0.2, get_args(OffloadName), "none"),
    )


def _recipe(chance: Random, layout: Layout, stack: Software) -> Recipe:
    """A batch that fills the pipeline, and any numbers, optimizer, recompute, kernel and method."""
    micro_batch, several = chance.choice((1, 1, 2, 3)), chance.choice((1, 2, 5)) * layout.pipeline
    lengths = perhaps(chance, 0.1, (DOCUMENTS,), ())
    return Recipe(
        sequence_length=chance.choice(LENGTHS),
        micro_batch=micro_batch,
        global_batch=micro_batch * (layout.data or 1) * perhaps(chance, 0.8, (several,), 1),
        document_lengths=lengths,
        batching=chance.choice(get_args(BatchingName)) if lengths else "packed",
        precision=perhaps(chance, 0.5, get_args(PrecisionName)),
        gradient_dtype=perhaps(chance, 0.2, get_args(GradientDtype)),
        moment_dtype=perhaps(chance, 0.1, get_args(MomentDtype)),
        master_dtype=perhaps(chance, 0.1, get_args(MasterDtype)),
        fp8_weights=chance.random() < 0.1,
        optimizer=perhaps(chance, 0.4, get_args(OptimizerName), "adamw"),
        recompute=perhaps(chance, 0.5, RECOMPUTES, "none"),
        attention=perhaps(chance, 0.4, get_args(AttentionName), "flash"),
        method=perhaps(chance, 0.3, METHODS, "full"),
        stack=stack,
        dropout_fraction=perhaps(chance, 0.1, (0.1,), 0.0),
        ema=chance.random() < 0.1,
        expert_capacity_factor=perhaps(chance, 0.1, (1.0, 1.25)),
        expert_imbalance=perhaps(chance, 0.1, (1.5,), 1.0),
        vocabulary_multiple=perhaps(chance, 0.1, (1, 1024)),
    )


def _software(chance: Random, stack: StackName) -> Software:
    """A stack as usual, or with some of its choices made."""
    plain = Software(name=stack)
    if chance.random() < 0.5:
        return plain
    choices: Mapping[str, tuple[Any, ...]] = {
        "versions": VERSIONS,
        "implementation": tuple(IMPLEMENTATIONS[stack]),
        "cross_entropy": get_args(CrossEntropyName),
        "gradient_fusion": (True, False),
        "decoupled_gradients": (True, False),
        "fused_update": (True, False),
        "deterministic": (True,),
        "grouped_experts": (True, False),
        "dispatcher": get_args(DispatcherName),
        "attention_mask": (True,),
        "fp8_activation_inputs": (True,),
        "fp8_attention": (True,),
        "fused_experts": (True,),
        "grouped_reductions": (True,),
        "expandable_segments": (True, False),
        "logits_until": get_args(HeldUntil),
        "step_in_backward": (True,),
        "cuda_graphs": (True,),
        "partial_graphs": (True,),
        "routed_nodes": (1, 4),
        "tensor_overlap": (True, False),
        "expert_overlap": (True,),
        "overlap_reduce": (True, False),
        "overlap_gather": (True, False),
        "reduce_bucket_numbers": (10**6, 10**9),
        "gather_bucket_numbers": (10**6, 10**9),
    }
    return replace(
        plain, **{name: chance.choice(options) for name, options in choices.items() if chance.random() < 0.25}
    )
