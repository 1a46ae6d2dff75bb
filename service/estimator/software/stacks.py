"""Training stacks, the operations that each implementation runs, and ways to compute the loss. One row each."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from service.estimator.complete import CompleteSoftware, completed
from service.estimator.model.build import MIXERS
from service.estimator.question import (
    AttentionName,
    ContextMethod,
    CrossEntropyName,
    Gpu,
    ImplementationName,
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
from service.estimator.software.versions import Range, at_least, generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Transfers that run beside compute."""

    hides_gradients: bool = True
    """The gradients' exchange begins while the last micro-batch runs backward; else after it."""
    hides_sends: bool = True
    """Interleaved stages send while they compute the next chunk; stages without chunks always wait."""
    splits_sends: bool = False
    """Tensor ranks each send their share of the stream to the next stage, even where each holds all of it."""
    overlaps_tensor: bool = False
    """Tensor ranks exchange in pieces beside their products, unless the recipe says otherwise."""
    sharded_copy_bytes: float = 0.0
    """Traffic of each gathered parameter for one micro-batch: copies from and to the buffers of collectives."""
    reduces_half: bool = False
    """Gradients travel in the compute format, whatever they accumulate in."""
    gathers_narrow: bool = False
    """Tensor ranks gather activations in the format of the products, where that is fp8."""
    source: str
    """Source of these facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """Operations of a layer in one stack, as far as they change memory and overlap."""

    meaning: str
    fused_norm: bool = True
    """Norms keep only input and output."""
    fused_activation: bool = False
    """The activation keeps only its inputs and output."""
    repeats_key_values: bool = False
    """Keys and values are copied to every query head before attention."""
    sequence_first: bool = False
    """Activations lie sequence first, so kernels that want the batch first keep a copy of their result."""
    uses_transformer_engine: bool = False
    """Matrix products and norms are Transformer Engine's, with its workspace and its placeholders of gradients."""
    prefers_cudnn: tuple[str, ...] = ()
    """Generations of GPUs on which attention runs in cuDNN's kernel where none is named."""
    keeps_score_buffer: bool = False
    """Eager attention keeps a buffer of one layer's scores for the whole run."""
    casts_each_input: bool = False
    """Mixed precision is autocast over fp32 weights: each matrix product keeps its own cast of its input."""
    weighs_results: bool = True
    """Experts' results are weighted after their last product, and so kept."""
    fuses_mixer_output: bool = True
    """The kernel of a state space computes its norm and output again from what the scan kept."""
    runs_transformers: bool = False
    """Layers are those of transformers: eager attention adds a mask to its scores and keeps its softmax in fp32, and
    GPT-2 has one projection for queries, keys and values and a GELU written out."""
    keeps_fp8_inputs: bool = False
    """fp8 matrix products keep their inputs in fp8; else in the activations' format."""
    keeps_embedding: bool = False
    """The embedding's result is kept beside the first layer's input, which is a copy of it in another order."""
    drops_last_product: bool = False
    """Recompute by operation does not keep the product of the last matrix, which no gradient needs."""
    cross_entropies: tuple[CrossEntropyName, ...]
    """Ways to compute the loss; the first is the default."""
    overlap: Overlap
    """What runs beside its compute."""
    source: str
    """Source of these facts."""


_TITAN_OVERLAP = Overlap(
    gathers_narrow=True,
    sharded_copy_bytes=14.0,
    source="pytorch/torchtitan@b5bcd76 (FSDP2 prefetch; float8 tensor parallelism); "
    "torch fsdp/_fully_shard/_fsdp_collectives.py: two copies out of gathers (4 each), one into fp32 (6)",
)

IMPLEMENTATIONS: dict[StackName, dict[ImplementationName, Implementation]] = {
    "megatron-core": {
        "transformer-engine": Implementation(
            meaning="Transformer Engine's fused layers",
            fused_activation=True,
            sequence_first=True,
            uses_transformer_engine=True,
            prefers_cudnn=("Hopper", "Blackwell"),
            weighs_results=False,
            fuses_mixer_output=False,
            keeps_fp8_inputs=True,
            cross_entropies=("vocab-parallel", "fused", "transformer-engine"),
            overlap=Overlap(
                overlaps_tensor=True,
                source="NVIDIA/Megatron-LM@d98e8a64 overlap-grad-reduce, overlap-p2p-communication, tp-comm-overlap",
            ),
            source="NVIDIA/TransformerEngine@v2.11 pytorch/module; NVIDIA/Megatron-LM@d98e8a64 "
            "core/extensions/transformer_engine.py",
        ),
        "local": Implementation(
            meaning="Megatron-Core's own layers",
            fused_activation=True,
            sequence_first=True,
            keeps_score_buffer=True,
            weighs_results=False,
            fuses_mixer_output=False,
            cross_entropies=("vocab-parallel", "fused"),
            overlap=Overlap(
                hides_gradients=False,
                hides_sends=False,
                splits_sends=True,
                source="Narayanan et al. 2021, arXiv:2104.04473, section 4.1 (scatter and gather between stages)",
            ),
            source="NVIDIA/Megatron-LM@d98e8a64 core/transformer/dot_product_attention.py (global memory buffer), "
            "core/tensor_parallel/layers.py",
        ),
    },
    "torchtitan": {
        "eager": Implementation(
            meaning="torch operations one by one",
            prefers_cudnn=("Blackwell",),
            repeats_key_values=True,
            cross_entropies=("eager", "compiled", "loss-parallel", "chunked"),
            overlap=_TITAN_OVERLAP,
            source="pytorch/torchtitan@b5bcd76 models/common",
        ),
        "compiled": Implementation(
            meaning="each block compiled",
            prefers_cudnn=("Blackwell",),
            fused_activation=True,
            repeats_key_values=True,
            drops_last_product=True,
            cross_entropies=("compiled", "eager", "loss-parallel", "chunked"),
            overlap=_TITAN_OVERLAP,
            source="pytorch/torchtitan@b5bcd76 models/common; torch.compile",
        ),
    },
    "fsdp1": {
        "eager": Implementation(
            meaning="torch operations one by one",
            cross_entropies=("eager", "fused", "flash-attention"),
            overlap=Overlap(
                sharded_copy_bytes=4.0,
                source="Zhao et al. 2023, arXiv:2304.11277, section 3.3; torch FlatParameter: weights are views of "
                "what is gathered, gradients are copied into one flat tensor (read and written in two bytes)",
            ),
            source="mosaicml/llm-foundry@8c8dd48f models/mpt, models/layers/norm.py (LPLayerNorm: one kernel)",
        ),
    },
    "deepspeed": {
        "eager": Implementation(
            meaning="torch operations one by one",
            fused_norm=False,
            repeats_key_values=True,
            runs_transformers=True,
            cross_entropies=("eager", "eager-half", "vocab-parallel", "chunked"),
            overlap=Overlap(
                reduces_half=True,
                hides_sends=False,
                splits_sends=True,
                source="deepspeedai/DeepSpeed@edaa722 overlap_comm, reduce dtype; runtime/config.py pipe_partitioned",
            ),
            source="deepspeedai/DeepSpeed@edaa722; huggingface/transformers 5.23.0 modeling_llama",
        ),
        "local": Implementation(
            meaning="Megatron-DeepSpeed's own layers, Megatron-LM's of 2022",
            fused_activation=True,
            sequence_first=True,
            keeps_embedding=True,
            cross_entropies=("vocab-parallel",),
            overlap=Overlap(
                hides_gradients=False,
                hides_sends=False,
                splits_sends=True,
                source="bigscience-workshop/Megatron-DeepSpeed@58d92042; deepspeedai/DeepSpeed@v0.5.10 "
                "runtime/pipe/engine.py (gradients are reduced after the last backward pass; "
                "is_pipe_partitioned, is_grad_partitioned)",
            ),
            source="bigscience-workshop/Megatron-DeepSpeed@58d92042 megatron/model",
        ),
    },
    "nanotron": {
        "eager": Implementation(
            meaning="torch operations with fused norms and flash attention",
            cross_entropies=("vocab-parallel-fp32",),
            overlap=Overlap(
                hides_gradients=False,
                hides_sends=False,
                source="huggingface/nanotron@2411b02 parallel/pipeline_parallel/engine.py, optim/zero.py",
            ),
            source="huggingface/nanotron@2411b02 models/llama.py",
        ),
    },
    "transformers": {
        "eager": Implementation(
            meaning="torch operations one by one",
            fused_norm=False,
            repeats_key_values=True,
            casts_each_input=True,
            runs_transformers=True,
            cross_entropies=("eager", "eager-half", "chunked"),
            overlap=Overlap(source="torch.nn.parallel.DistributedDataParallel; Zhao et al. 2023"),
            source="huggingface/transformers 5.23.0 modeling_llama, modeling_gpt2, activations.NewGELUActivation, "
            "masking_utils.eager_mask; live bytes counted by torch 2.13's profiler",
        ),
    },
}


def kernel_of(
    attention: AttentionName, implementation: Implementation, gpu: Gpu, *, deterministic: bool
) -> AttentionName:
    """The attention kernel of a recipe: for flash, cuDNN's where the implementation prefers it, else flash-2."""
    # On Blackwell, determinism rules cuDNN's out. Source: NVIDIA/TransformerEngine@v2.11
    # pytorch/attention/dot_product_attention/utils.py get_attention_backend; pytorch/torchtitan@6fc499f
    # models/attention.py (cuDNN first on Blackwell)
    if attention != "flash":
        return attention
    family = generation(gpu)
    is_ruled_out = deterministic and family == "Blackwell"
    return "cudnn" if family in implementation.prefers_cudnn and not is_ruled_out else "flash-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy:
    """Live copies of the logits at the peak of one way to compute the loss."""

    meaning: str
    """What it does, in one line."""
    half_copies: float = 0
    """Copies in the activations' format."""
    full_copies: float = 0
    """Copies in fp32."""
    kept_bytes: float
    """Bytes for each logit that stay until the backward pass."""
    chunks: int = 1
    """Parts of the sequence that are done one after another."""
    hole_bytes: float = 0.0
    """Bytes for each logit that the allocator cannot reuse at the peak."""
    source: str
    """Source of these facts."""

    def logit_bytes(self, element_bytes: int) -> float:
        """Live bytes for each logit at the peak [byte]."""
        return (self.half_copies * element_bytes + 4 * self.full_copies) / self.chunks


_MEGATRON = "NVIDIA/Megatron-LM@d98e8a64 core/tensor_parallel/cross_entropy.py"

CROSS_ENTROPIES: dict[CrossEntropyName, CrossEntropy] = {
    "eager": CrossEntropy(
        meaning="logits in fp32, their log-softmax and its gradient",
        full_copies=3,
        kept_bytes=4,
        hole_bytes=2.0,
        source="torch.nn.functional.cross_entropy: log-softmax, its gradient and that of the loss; the freed logits, "
        "half and float, leave a hole in which one of those fits",
    ),
    "eager-half": CrossEntropy(
        meaning="logits, their shifted copy, log-softmax and gradient, all in the compute format",
        half_copies=4,
        kept_bytes=2,
        source="torch.nn.functional.cross_entropy of half-precision logits without autocast (DeepSpeed fp16)",
    ),
    "compiled": CrossEntropy(
        meaning="the same in one compiled graph, which keeps the logits and writes their gradient",
        half_copies=2,
        kept_bytes=2,
        source="torch.compile of torch.nn.functional.cross_entropy",
    ),
    "flash-attention": CrossEntropy(
        meaning="FlashAttention's kernel, which reads the logits as they are and writes their gradient beside them",
        half_copies=2,
        kept_bytes=2,
        source="Dao-AILab/flash-attention@v2.5.0 flash_attn/ops/triton/cross_entropy.py (inplace_backward off)",
    ),
    "vocab-parallel": CrossEntropy(
        meaning="each tensor rank its part of the vocabulary; softmax and gradient in place in one fp32 copy",
        half_copies=1,
        full_copies=1,
        kept_bytes=4,
        source=_MEGATRON + " (2-byte logits, 4-byte softmax in place)",
    ),
    "vocab-parallel-fp32": CrossEntropy(
        meaning="the same from logits that are fp32 already, out of place",
        full_copies=2,
        kept_bytes=4,
        source="huggingface/nanotron@67c5ebb6 parallel/tensor_parallel/functional.py sharded_cross_entropy",
    ),
    "fused": CrossEntropy(
        meaning="vocab-parallel in compiled kernels, which hold a second fp32 copy (cross-entropy-loss-fusion native)",
        half_copies=1,
        full_copies=2,
        kept_bytes=4,
        source="NVIDIA/Megatron-LM@d98e8a64 core/fusions/fused_cross_entropy.py; peak read off its functional test",
    ),
    "transformer-engine": CrossEntropy(
        meaning="Transformer Engine's kernel, which writes the gradient over the logits",
        half_copies=1,
        kept_bytes=2,
        source="NVIDIA/TransformerEngine@v2.11 pytorch/triton/cross_entropy.py",
    ),
    "loss-parallel": CrossEntropy(
        meaning="DTensor: each tensor rank its part of the vocabulary, in fp32 and out of place",
        full_copies=4,
        kept_bytes=4,
        source="torch.distributed.tensor.parallel.loss_parallel",
    ),
    "chunked": CrossEntropy(
        meaning="a part of the tokens at a time, logits and loss together",
        half_copies=1,
        full_copies=2,
        kept_bytes=0,
        chunks=8,
        source="pytorch/torchtitan components/loss.py; Liger-Kernel fused_linear_cross_entropy",
    ),
}


WeightHome = Literal["compute", "fp32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One training framework."""

    meaning: str
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
    """Computation of the loss where the recipe names none: as the implementation prefers, but for some versions."""
    # Transformer Engine's own where its version is named and it and Megatron-Core have it, as Megatron-Bridge turns it
    # on there, unless only deterministic kernels run; an eager one with torchtitan of 2024, which compiled no loss.
    # Source: NVIDIA-NeMo/Megatron-Bridge@067f987 recipes (cross_entropy_fusion_impl te); NVIDIA/TransformerEngine@v2.2;
    # pytorch/torchtitan@9dec370 train.py
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
