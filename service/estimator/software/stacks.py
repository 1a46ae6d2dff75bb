"""Buffers, defaults, kernels and abilities of each training stack. One row a stack."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from service.estimator.complete import CompleteSoftware, completed
from service.estimator.model.build import MIXERS
from service.estimator.question import (
    ContextMethod,
    CrossEntropyName,
    LayerType,
    MasterDtype,
    MomentDtype,
    PrecisionName,
    RankOrder,
    Recipe,
    RecomputeModule,
    ScheduleName,
    Software,
    StackName,
    Versions,
    ZeroStage,
)
from service.estimator.software.implementations import (
    CROSS_ENTROPIES,
    IMPLEMENTATIONS,
    CrossEntropy,
    Implementation,
)
from service.estimator.software.versions import Range, at_least

WeightHome = Literal["compute", "fp32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One training framework."""

    meaning: str
    """What it is, in one line."""
    mixed_weights: WeightHome = "fp32"
    """Mixed precision keeps compute-format weights and a master copy, or fp32 weights cast on the fly."""
    keeps_half_gradients: Literal["never", "backward", "always"] = "never"
    """When compute-format gradients are kept beside fp32 accumulated ones."""
    keeps_gradients: bool = False
    """Gradients have buffers for the whole run; else they appear in the backward pass and go after the step."""
    buckets_gradients: bool = False
    """Replicas that shard nothing add gradients up in buffers beside them."""
    keeps_step_gradients: bool = False
    """fp32 gradients of the optimizer step have buffers for the whole run."""
    keeps_results_ahead: bool = False
    """Results of split matrices are held until the GPU has caught up with the host, which runs far ahead of it."""
    flattens_update: bool = False
    """Updated weights are gathered through a flat copy of them."""
    keeps_gather_buffers: int = 0
    """Buffers of gathered streams that tensor ranks keep."""
    partitions_by_cost: bool = False
    """Layers are partitioned over stages by cost, the head counted as its matrix."""
    keeps_matrices_whole: bool = False
    """Where an optimizer needs whole matrices, each belongs to one rank of the data group."""
    splits_loss: bool = False
    """Tensor ranks share the loss, unless an option says otherwise."""
    grows_segments: bool = False
    """Its launcher lets the allocator grow segments instead of opening new ones."""
    bucket_numbers: int = 0
    """Gradients in the bucket that ZeRO reduces at once, beside the gradients."""
    fuses_update: bool = True
    """The optimizer's arithmetic is one kernel without temporaries."""
    gathers_on_streams: bool = False
    """Sharded weights and gradients have streams of their own, and the allocator keeps their memory apart."""
    ends_apart_since: str | None = None
    """Version from which embedding and head are gathered one by one; always as one group where None."""
    step_gradient_bytes: float = 0.0
    """fp32 gradients that are made of narrower ones inside the optimizer step."""
    shards_half_gradients: bool = False
    """Where ZeRO shards gradients, it accumulates them in the compute format."""
    vocabulary_multiple: int = 1
    """The vocabulary is padded to a multiple of this x tensor."""
    zero_stages: tuple[ZeroStage, ...]
    """What the data group can shard; the first is the default."""
    recurrences: tuple[LayerType, ...] = ()
    """Layers carrying a state along the sequence that it has code for."""
    axes: tuple[str, ...] = ()
    """Axes it can use beside data."""
    schedules: tuple[ScheduleName, ...] = ("1f1b",)
    """Pipeline schedules it can run; the first is the default."""
    forked_schedules: tuple[ScheduleName, ...] = ()
    """Those of them that only forks of it run: plans take them where they are asked for."""
    precisions: tuple[PrecisionName, ...]
    """Precision recipes it can run."""
    context_methods: tuple[ContextMethod, ...] = ("ring",)
    """How its context ranks may exchange keys and values; the first is the default."""
    pipeline_zero_stages: tuple[ZeroStage, ...] = (0,)
    """What the data group can shard beside a pipeline."""
    rank_orders: tuple[RankOrder, ...] = ("tp-cp-ep-dp-pp",)
    """Orders in which it can number ranks; the first is the default."""
    reordered_zero_stages: tuple[ZeroStage, ...] = ()
    """What the data group can shard in another order than the first."""
    splits_norms: bool = False
    """Tensor ranks split norms along the sequence (sequence parallelism)."""
    moment_dtypes: tuple[MomentDtype, ...] = ()
    """Formats of moments that can be asked of it, beside the precision recipe's own."""
    master_dtypes: tuple[MasterDtype, ...] = ()
    """Formats of the master copy that can be asked of it, beside the precision recipe's own."""
    offloads_activations: bool = True
    """It can send activations to host memory until the backward pass."""
    quantizes: bool = False
    """It multiplies by frozen matrices of 4 bits."""
    selects: RecomputeModule = "core_attn"
    """What selective recompute means where no module is named."""
    freezes: bool = True
    """It can freeze parameters and train adapters."""
    source: str
    """Source of these facts."""


_PLAIN: tuple[PrecisionName, ...] = ("fp32", "fp16", "bf16", "int8")
_MIXED: tuple[PrecisionName, ...] = ("fp16-mixed", "bf16-mixed")
_FP8: tuple[PrecisionName, ...] = ("fp8-tensorwise", "fp8-blockwise", "mxfp8", "nvfp4", "fp8-deepseek")
_EVERY_RECURRENCE = tuple(name for name, mixer in MIXERS.items() if mixer.carries_state)
EVERY_AXIS = ("tensor", "context", "pipeline", "virtual_pipeline", "expert", "expert_tensor")

STACKS: dict[StackName, Stack] = {
    "megatron-core": Stack(
        meaning="Megatron-Core with Transformer Engine",
        keeps_matrices_whole=True,
        moment_dtypes=("fp32", "bf16", "fp16", "fp8"),
        master_dtypes=("fp32", "fp16"),
        mixed_weights="compute",
        keeps_gradients=True,
        step_gradient_bytes=4.0,
        vocabulary_multiple=128,
        zero_stages=(1, 0, 2, 3),
        recurrences=("mamba2", "gated_delta_net"),
        axes=EVERY_AXIS,
        schedules=("1f1b", "interleaved-1f1b", "gpipe", "zero-bubble", "dualpipe"),
        forked_schedules=("gpipe", "zero-bubble", "dualpipe"),
        precisions=_PLAIN + _MIXED + _FP8,
        context_methods=("ring", "all-gather", "ulysses"),
        pipeline_zero_stages=(0, 1, 2, 3),
        rank_orders=("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
        reordered_zero_stages=(0, 1),
        splits_norms=True,
        source="NVIDIA/Megatron-LM@d98e8a64 docs dist_optimizer, theoretical_memory_usage.py, core/tensor_parallel/"
        "cross_entropy.py (2-byte logits, 4-byte softmax in place); overlap: hidden share of asynchronous exchange, "
        "0.4-0.5 when fitted on published H100 runs; recurrences: core/ssm, experimental_attention_variant; schedules: "
        "core/pipeline_parallel/schedules.py; "
        "adapters: NVIDIA-NeMo/Megatron-Bridge docs/training/peft.md; formats: exp-avg-dtype, main-params-dtype; "
        "orders: training/initialize.py (use-tp-pp-dp-mapping), without FSDP: Megatron-Bridge training/config.py",
    ),
    "torchtitan": Stack(
        meaning="torchtitan: FSDP2, DTensor tensor parallelism",
        gathers_on_streams=True,
        splits_loss=True,
        grows_segments=True,
        ends_apart_since="2025.8",
        zero_stages=(3, 0),
        axes=EVERY_AXIS,
        schedules=("1f1b", "interleaved-1f1b", "gpipe", "zero-bubble", "dualpipe"),
        precisions=("fp32", "bf16", "bf16-mixed", "fp8-tensorwise", "fp8-blockwise", "mxfp8"),
        context_methods=("ring", "all-gather"),
        pipeline_zero_stages=(0, 3),
        splits_norms=True,
        selects="op",
        source="pytorch/torchtitan@b5bcd76 models/common, distributed; FSDP2 MixedPrecisionPolicy (fp32 shards, bf16 "
        "gathered); loss: float logits, log-softmax and gradient in fp32; adapters: components/lora.py",
    ),
    "fsdp1": Stack(
        meaning="PyTorch FullyShardedDataParallel (llm-foundry)",
        fuses_update=False,
        gathers_on_streams=True,
        zero_stages=(3, 0),
        recurrences=_EVERY_RECURRENCE,
        precisions=("fp32", "fp16", "bf16", *_MIXED, "fp8-tensorwise"),
        quantizes=True,
        source="Zhao et al. 2023, arXiv:2304.11277; mosaicml/llm-foundry@8c8dd48f (adapters: peft_config)",
    ),
    "deepspeed": Stack(
        meaning="DeepSpeed ZeRO",
        moment_dtypes=("bf16",),
        master_dtypes=("bf16", "fp16"),
        mixed_weights="compute",
        keeps_half_gradients="always",
        shards_half_gradients=True,
        keeps_step_gradients=True,
        keeps_gradients=True,
        bucket_numbers=500_000_000,
        step_gradient_bytes=4.0,
        zero_stages=(1, 0, 2, 3),
        recurrences=_EVERY_RECURRENCE,
        axes=("tensor", "pipeline", "context", "expert"),
        precisions=("fp32", "fp16", "bf16", *_MIXED),
        context_methods=("ulysses",),
        pipeline_zero_stages=(0, 1),
        quantizes=True,
        source="Rajbhandari et al. 2020, arXiv:1910.02054; deepspeedai/DeepSpeed@edaa722 "
        "runtime/zero/stage3.py estimators (18 bytes a parameter); adapters: huggingface/peft docs, DeepSpeed; "
        "formats: runtime/precision_config.py",
    ),
    "nanotron": Stack(
        meaning="nanotron",
        mixed_weights="compute",
        keeps_half_gradients="backward",
        buckets_gradients=True,
        keeps_results_ahead=True,
        flattens_update=True,
        keeps_gather_buffers=2,
        offloads_activations=False,
        partitions_by_cost=True,
        keeps_gradients=True,
        zero_stages=(1, 0),
        axes=("tensor", "context", "pipeline", "expert"),
        schedules=("1f1b", "gpipe"),
        precisions=("fp32", "fp16", "bf16", "bf16-mixed"),
        pipeline_zero_stages=(0, 1),
        splits_norms=True,
        freezes=False,
        source="Ultrascale Playbook (fp32 gradients beside the bf16 ones); huggingface/nanotron@2411b02: fp32 "
        "logits and their gradient",
    ),
    "transformers": Stack(
        meaning="Hugging Face Trainer: autocast, data parallelism, FSDP or DeepSpeed by plugin",
        fuses_update=False,
        buckets_gradients=True,
        zero_stages=(0, 3),
        recurrences=_EVERY_RECURRENCE,
        axes=("tensor", "context"),
        precisions=("fp32", "fp16", "bf16", *_MIXED),
        context_methods=("ring", "all-gather"),
        quantizes=True,
        source="huggingface/transformers 5.23.0 Trainer, modeling_llama; float logits, log-softmax and their gradient; "
        "adapters: huggingface/peft",
    ),
}


def default_stack(recurrences: Collection[LayerType], *, quantizes: bool) -> StackName:
    """The software that a model is trained with where the recipe names none.

    >>> default_stack((), quantizes=False), default_stack((), quantizes=True)
    ('megatron-core', 'transformers')

    >>> default_stack(("mamba2",), quantizes=False), default_stack(("rg_lru",), quantizes=False)
    ('megatron-core', 'transformers')
    """
    row = STACKS["megatron-core"]
    is_enough = set(recurrences) <= set(row.recurrences) and (row.quantizes or not quantizes)
    return "megatron-core" if is_enough else "transformers"


ENGINE_LOSS_SINCE: dict[str, Range] = {"transformer_engine": Range("2.2"), "megatron_core": Range("0.12", "0.19")}
"""Versions that have Transformer Engine's cross entropy, by library. Source: NVIDIA/TransformerEngine@v2.2
pytorch/cross_entropy.py; NVIDIA/Megatron-LM@0f60adbd (added in 0.12) and @168cb15d (turned off in 0.19)."""

_IN_PLACE_BEFORE = "2.18"
"""Transformer Engine keeps an fp32 gradient from here on. Source: NVIDIA/TransformerEngine@01bbe3ee."""


def requested_software(recipe: Recipe) -> Software:
    """The training software as a recipe gives it."""
    if recipe.stack is None:
        message = "the recipe names no stack: resolve the question first"
        raise TypeError(message)
    return recipe.stack if isinstance(recipe.stack, Software) else Software(name=recipe.stack)


def software_of(recipe: Recipe) -> CompleteSoftware:
    """The training software of a recipe, every choice filled but the versions."""
    return _complete(requested_software(recipe))


@lru_cache(maxsize=64)
def _complete(request: Software) -> CompleteSoftware:
    stack, rows = STACKS[request.name], IMPLEMENTATIONS[request.name]
    name = request.implementation or next(iter(rows))
    if name not in rows:  # a rule refuses it
        return completed(CompleteSoftware, request, implementation=name)
    row = rows[name]
    usual = {
        "expandable_segments": stack.grows_segments,
        "fused_update": stack.fuses_update,
        "gradient_fusion": row.uses_transformer_engine,
        "grouped_experts": row.uses_transformer_engine,
        "tensor_overlap": row.overlap.overlaps_tensor and not request.deterministic,
    }
    chosen = {field: value for field, value in usual.items() if getattr(request, field) is None}
    loss = request.cross_entropy or default_cross_entropy(row, request)
    return completed(CompleteSoftware, request, implementation=name, cross_entropy=loss, **chosen)


def default_cross_entropy(row: Implementation, software: Software) -> CrossEntropyName:
    """How the loss is computed where the recipe does not name a way.

    It is the implementation's first; Transformer Engine's own where its version is named and it and Megatron-Core
    have it, as Megatron-Bridge turns it on there, unless only deterministic kernels run; an eager one with torchtitan
    of 2024, which compiled no loss.

    Source:
        NVIDIA-NeMo/Megatron-Bridge@067f987 recipes (cross_entropy_fusion_impl te); NVIDIA/TransformerEngine@v2.2;
        pytorch/torchtitan@9dec370 train.py
    """
    versions = software.versions or Versions()
    if versions.torchtitan is not None and not at_least(versions.torchtitan, "2025.1"):
        return "eager"
    engine = versions.transformer_engine
    has_it = engine is not None and Range("2.2", _IN_PLACE_BEFORE).holds(engine)
    has_it = has_it and ENGINE_LOSS_SINCE["megatron_core"].holds(versions.megatron_core)
    is_on = row.uses_transformer_engine and has_it and not software.deterministic
    return "transformer-engine" if is_on else row.cross_entropies[0]


def implementation_of(software: CompleteSoftware) -> Implementation:
    """Operations that a software runs: the stack's first where it has none of that name, which a rule refuses."""
    rows = IMPLEMENTATIONS[software.name]
    return rows.get(software.implementation) or next(iter(rows.values()))


def cross_entropy_of(software: Software) -> CrossEntropy:
    """The row of a software's cross entropy, as its version computes it."""
    name: CrossEntropyName = software.cross_entropy or "eager"
    version = (software.versions or Versions()).transformer_engine
    if name == "transformer-engine" and version is not None and at_least(version, _IN_PLACE_BEFORE):
        return CROSS_ENTROPIES["vocab-parallel"]
    return CROSS_ENTROPIES[name]
