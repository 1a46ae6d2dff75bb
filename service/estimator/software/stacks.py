"""Training stacks, operations of each implementation and ways to compute the loss, one row of stacks.json each."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from service.estimator.complete import CompleteSoftware, completed
from service.estimator.question import (
    AttentionName,
    ContextMethod,
    CrossEntropyName,
    Gpu,
    HeldUntil,
    ImplementationName,
    LayerType,
    MasterDtype,
    Model,
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
from service.estimator.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Transfers that run beside compute."""

    hides_gradients: bool = True
    """The gradients' exchange begins while the last micro-batch runs backward; else after it."""
    hides_from_stage: ZeroStage = 0
    """ZeRO stage from which it does so."""
    gathers_from_stage: ZeroStage = 1
    """ZeRO stage from which weights are gathered beside compute, where gradients are exchanged so."""
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
    copies_pieces: bool = False
    """Where ZeRO-1 has gathered weights, the host copies each rank's piece of each tensor by a call of its own."""
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
    fused_norm_since: str | None = None
    """Library and version, as "torch 2.9", since which the norm is fused all the same."""
    fused_activation: bool = False
    """The activation keeps only its inputs and output."""
    repeats_key_values: bool = False
    """Keys and values are copied to every query head before eager attention."""
    rotary_bytes: float = 0.0
    """Traffic of rotating one number of a query or key, forward, where no kernel fuses it with anything else [byte]."""
    fused_repeats_before: tuple[str, ...] = ()
    """Libraries and versions, as "torch 2.5", before any of which fused attention has them copied too."""
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
    weighs_wide: bool = False
    """Experts' results, or inputs, are weighted in fp32, and kept so."""
    weighs_results: bool = True
    """Experts' results are weighted after their last product, and so kept."""
    fuses_mixer_output: bool = True
    """The kernel of a state space computes its norm and output again from what the scan kept."""
    stops_early: bool = False
    """Full recompute of a layer stops once all that it had saved is there."""
    runs_transformers: bool = False
    """Layers are those of transformers: eager attention adds a mask to its scores and keeps its softmax in fp32, and
    GPT-2 has one projection for queries, keys and values and a GELU written out."""
    keeps_fp8_inputs: bool = False
    """fp8 matrix products keep their inputs in fp8; else in the activations' format."""
    keeps_embedding: bool = False
    """The embedding's result is kept beside the first layer's input, which is a copy of it in another order."""
    drops_last_product: bool = False
    """Recompute by operation does not keep the product of the last matrix, which no gradient needs."""
    joins_projections: bool = False
    """One projection makes queries, keys and values. Values are a view of its result, and their adapters share an
    input."""
    always_repeats: bool = False
    """Keys and values are copied to every query head before any attention."""
    caps_scores: bool = False
    """Eager attention runs only where scores are capped by a tanh, which it keeps."""
    copies_heads: bool = False
    """The heads' result is copied before the output projection, which keeps the copy where it keeps its input."""
    quantizes_head: bool = False
    """Frozen matrices of 4 bits include the head, which is dequantised for its products."""
    accumulates_whole: bool = False
    """ZeRO-3's gradients stay whole until the last micro-batch of a step, and a layer has those of its frozen weights
    too where any of it is trained (flat parameters)."""
    logits_until: HeldUntil = "loss"
    """How long its loop holds the logits of a micro-batch, unless an option says otherwise."""
    cross_entropies: tuple[CrossEntropyName, ...]
    """Ways to compute the loss; the first is the default."""
    overlap: Overlap
    """What runs beside its compute."""
    source: str
    """Source of these facts."""


IMPLEMENTATIONS = Table(
    __package__, "stacks.json", "implementations", dict[StackName, dict[ImplementationName, Implementation]]
)
"""The implementations of each stack; the first is its default."""


BEFORE_AMPERE = ("Pascal", "Volta", "Turing")
"""Generations without FlashAttention-2 and cuDNN's fused attention.
Source: Dao-AILab/flash-attention README, CUDA support; NVIDIA cuDNN support matrix; NVIDIA/TransformerEngine@v2.11
pytorch/attention/dot_product_attention/utils.py get_attention_backend (sm80); torch scaled_dot_product_attention
(memory-efficient from sm50)."""


def kernel_of(
    attention: AttentionName, implementation: Implementation, gpu: Gpu, *, deterministic: bool
) -> AttentionName:
    """The attention kernel of a recipe: for flash, the fused one that the implementation prefers, or eager."""
    # On Blackwell, determinism rules cuDNN's out. Source: NVIDIA/TransformerEngine@v2.11
    # pytorch/attention/dot_product_attention/utils.py get_attention_backend; pytorch/torchtitan@6fc499f
    # models/attention.py (cuDNN first on Blackwell). Before Ampere, only torch's memory-efficient kernel runs, which is
    # among those of transformers; it keeps what flash-2 does.
    if attention != "flash":
        return attention
    family = generation(gpu)
    if family in BEFORE_AMPERE and not implementation.runs_transformers:
        return "eager"
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
    chunks_by_width: bool = False
    """As many parts as the vocabulary is wider than the stream, down to a power of two."""
    piece_tokens: int = 0
    """Tokens of each sequence that are differentiated at once."""
    piece_copies: int = 0
    """Further fp32 copies of the logits of such a piece."""
    hole_bytes: float = 0.0
    """Bytes for each logit that the allocator cannot reuse at the peak."""
    source: str
    """Source of these facts."""

    def parts(self, model: Model) -> int:
        """Parts of the sequence of a model that are done one after another [1]."""
        if not self.chunks_by_width:
            return self.chunks
        return 1 << (-(-model.vocab_size // model.hidden_size)).bit_length() - 1

    def logit_bytes(self, element_bytes: int, model: Model) -> float:
        """Live bytes for each logit at the peak [byte]."""
        return self.whole_logit_bytes(element_bytes) / self.parts(model)

    def whole_logit_bytes(self, element_bytes: int) -> float:
        """Bytes for each logit over all parts of the sequence [byte]."""
        return self.half_copies * element_bytes + 4 * self.full_copies


CROSS_ENTROPIES = Table(__package__, "stacks.json", "cross_entropies", dict[CrossEntropyName, CrossEntropy])


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
    communicators: int = 1
    """Groups of ranks whose collectives have buffers on the device; only the world, unless it is known better."""
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
    bucket_stage: ZeroStage | None = None
    """Highest ZeRO stage in which buckets of gradients are reduced, and not one unit of layers after another."""
    reduce_bucket_numbers: int = 0
    """Gradients that fill a bucket."""
    replica_bucket_numbers: int = 0
    """Those for each replica, if that is more."""
    reduce_bucket_bytes: int = 0
    """Bytes that fill a bucket instead, of gradients as wide as their weights."""
    copies_buckets: bool = False
    """ZeRO reduces a copy of each bucket, beside the gradients."""
    buckets_serve_overlap: bool = False
    """Later stages and chunks, and a stack that does not overlap, reduce all gradients in one call."""
    gathers_buckets: bool = False
    """Updated weights are gathered bucket by bucket; else in one call."""
    gather_bucket_numbers: int = 0
    """Weights that ZeRO-3 gathers in one call; 0 where a call gathers a layer."""
    keeps_root: bool = False
    """The head's unit, and the embedding's where they are one, stays gathered from the forward to the backward pass."""
    chooses_overlap: tuple[Literal["reduce", "gather"], ...] = ()
    """Transfers of the data group whose overlap can be turned on and off."""
    fuses_update: bool = True
    """The optimizer's arithmetic is one kernel without temporaries."""
    gathers_on_streams: bool = False
    """Sharded weights and gradients have streams of their own, and the allocator keeps their memory apart."""
    delays_reductions: bool = False
    """With a pipeline, ZeRO-3 reduces gradients and frees their weights once, after the last backward pass."""
    ends_apart_since: str | None = None
    """Version from which embedding and head are gathered one by one; always as one group where None."""
    step_gradient_bytes: float = 0.0
    """fp32 gradients that are made of narrower ones inside the optimizer step."""
    decouples_gradients: bool = False
    """Its optimizer's kernel can read gradients as they are accumulated, and hold the master copy itself."""
    shards_half_gradients: bool = False
    """Where ZeRO shards gradients, it accumulates them in the compute format."""
    vocabulary_multiple: int = 1
    """The vocabulary is padded to a multiple of this x tensor."""
    zero_stages: tuple[ZeroStage, ...]
    """What the data group can shard; the first is the default."""
    routes_by_transformer_engine: bool = False
    """Routers of experts run products of Transformer Engine, whatever the other operations are.
    Source: NVIDIA/Megatron-LM@d98e8a64 core/transformer/moe/moe_utils.py, te_general_gemm."""
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
    trains_depths: bool = False
    """It has code for multi-token-prediction depths; else it drops their weights when it loads a model."""
    freezes: bool = True
    """It can freeze parameters and train adapters."""
    source: str
    """Source of these facts."""


EVERY_AXIS = ("tensor", "context", "pipeline", "virtual_pipeline", "expert", "expert_tensor")

STACKS = Table(__package__, "stacks.json", "stacks", dict[StackName, Stack])


DEFAULT_STACKS: tuple[StackName, ...] = (
    "megatron-core", "transformers", "deepspeed", "torchtitan", "fsdp1", "nanotron"
)  # fmt: skip
"""Stacks that stand for a recipe that names none: the first that runs it in its layout. Source: a choice."""


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
        "logits_until": row.logits_until,
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
