"""The nouns of a question: which model, trained by which recipe, laid out how, on what, at what price.

They are the wire format too: an API validates straight into these classes, so a field is
defined once, with its bounds and its meaning. `None` means "derive it"; `resolve` fills it in.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Interval, Len, Lt

from service.estimator.checkpointing import Checkpointing
from service.estimator.cluster import Cluster
from service.estimator.gpu import Gpu
from service.estimator.model import Model
from service.estimator.names import (
    AttentionName,
    BatchingName,
    ContextMethod,
    CrossEntropyName,
    DispatcherName,
    GradientDtype,
    ImplementationName,
    MasterDtype,
    MatrixName,
    MethodName,
    MomentDtype,
    OffloadName,
    OptimizerName,
    PartName,
    PrecisionName,
    QuantizationName,
    RankOrder,
    RecomputeMethod,
    RecomputeModule,
    RecomputeName,
    ScheduleName,
    StackName,
    ZeroStage,
)
from service.estimator.noun import STRICT, Degree, Layers, Sequences, Tokens
from service.estimator.price import OwnedPrice, Price
from service.estimator.run_stage import RunStage

__all__ = [
    "Checkpointing", "Cluster", "DocumentLength", "Layout", "Method", "OwnedPrice", "Price", "Question", "Recipe",
    "Recompute", "Software", "Versions",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Which activations are dropped in the forward pass and computed again in the backward pass."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    granularity: RecomputeName
    """none, selective (named modules), or full (whole layers)."""
    modules: Annotated[tuple[RecomputeModule, ...], Len(0, 8)] = ()
    """What selective recompute drops; core_attn, or op with torchtitan, where empty."""
    method: RecomputeMethod = "uniform"
    """How full recompute covers a stage: uniform groups of `layers`, or a block of its first `layers`."""
    layers: Layers | None = None
    """Layers a group (uniform, 1 where absent) or layers that recompute (block, all where absent)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLength:
    """So many documents of so many tokens: one bar of a histogram."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    tokens: Tokens
    """Tokens of each of these documents, l."""
    count: Annotated[int, Interval(ge=1, le=1 << 40)]
    """Documents of this length; only the proportions between lengths matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Which parameters are trained: the model's own, some parts of it frozen, or adapters beside frozen matrices."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: MethodName
    """full (the model's own parameters), lora (adapters beside its frozen matrices, nothing else) or qlora (the same
    beside matrices of 4 bits)."""
    rank: Annotated[int, Interval(ge=1, le=1 << 16)] | None = None
    """Rank of each adapter, r; 8 where absent (lora)."""
    targets: Annotated[tuple[MatrixName, ...], Len(0, 12)] = ()
    """Matrices that have an adapter; q_proj and v_proj where empty (lora)."""
    quantization: QuantizationName | None = None
    """Format of the frozen matrices; nf4-double where absent (qlora)."""
    whole: Annotated[tuple[PartName, ...], Len(0, 7)] = ()
    """Parts of the model that are trained whole beside the adapters (lora, qlora)."""
    frozen: Annotated[tuple[PartName, ...], Len(0, 7)] = ()
    """Parts of the model that are not trained (full)."""
    frozen_layers: Annotated[int, Interval(ge=0, le=2048)] = 0
    """First layers of the model that are not trained (full)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Versions of the libraries under the training software, where they change what it keeps in memory."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    transformer_engine: Annotated[str, Len(1, 32)] | None = None
    """Transformer Engine, e.g. 2.11; the newest that is known where absent."""
    megatron_core: Annotated[str, Len(1, 32)] | None = None
    """Megatron-Core, e.g. 0.14; the newest that is known where absent."""
    torch: Annotated[str, Len(1, 32)] | None = None
    """PyTorch, e.g. 2.9; the newest that is known where absent."""
    torchtitan: Annotated[str, Len(1, 32)] | None = None
    """torchtitan, by year and month of its commit, from 2023 on, e.g. 2025.8; the newest that is known where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Training software, with those of its choices that change what it keeps in memory."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: StackName
    """The framework."""
    versions: Versions | None = None
    """Versions of the libraries under it; the newest that are known where absent."""
    implementation: ImplementationName | None = None
    """Whose operations it runs: Transformer Engine's, its own, eager or compiled ones; its usual where absent."""
    cross_entropy: CrossEntropyName | None = None
    """How the loss is computed from the logits; its usual way where absent."""
    gradient_fusion: bool | None = None
    """Products of weight gradients add to the accumulated gradients themselves; as usual for the stack where absent."""
    fused_update: bool | None = None
    """The optimizer's arithmetic is one kernel without temporaries; as usual for the stack where absent."""
    deterministic: bool = False
    """Only deterministic kernels, with the workspaces that they need."""
    grouped_experts: bool | None = None
    """All experts of a rank run in one grouped product; as usual for the stack where absent."""
    tensor_overlap: bool | None = None
    """Tensor ranks exchange in pieces beside their products (async tensor parallelism, user buffers); as usual for the
    stack where absent."""
    cuda_graphs: bool = False
    """Kernels of a whole step are launched as one graph, so the device never waits for the host."""
    expert_overlap: bool = False
    """The exchange of experts' tokens runs beside the compute of another micro-batch."""
    dispatcher: DispatcherName | None = None
    """How tokens reach their experts; all-to-all where absent."""
    attention_mask: bool = False
    """The data loader makes a mask of all pairs of tokens, as Megatron-LM's scripts do unless they are told not to."""
    expandable_segments: bool | None = None
    """The allocator grows its segments instead of opening new ones, and so holds fewer fragments; as the stack's
    launcher sets it where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the model is trained: batch, tokens, numbers, optimizer, software."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    sequence_length: Tokens
    """Tokens in one sequence, s."""
    micro_batch: Sequences = 1
    """Sequences that one replica runs through the model at once, b."""
    global_batch: Sequences | None = None
    """Sequences in one optimizer step, B; micro_batch x data where absent."""
    global_batch_tokens: Annotated[int, Interval(ge=1, le=1 << 53)] | None = None
    """Tokens in one optimizer step, padding counted; may stand instead of global_batch."""
    document_lengths: Annotated[tuple[DocumentLength, ...], Len(0, 1024)] = ()
    """Histogram of the documents' lengths; longer ones are split. Empty: every sequence is one document."""
    batching: BatchingName = "packed"
    """How documents fill sequences: back to back, each attending to itself alone, or each padded to a sequence."""
    training_tokens: Annotated[float, Ge(1), Lt(1e18)] | None = None
    """Tokens of the whole run, D; without it there are no totals."""
    stages: Annotated[tuple[RunStage, ...], Len(0, 64)] = ()
    """First parts of the run with another batch or length; after the last one the recipe's own values hold."""
    precision: PrecisionName | None = None
    """Number formats of weights, compute and master copy; bf16-mixed where absent, fp16-mixed on a GPU without bf16."""
    gradient_dtype: GradientDtype | None = None
    """Format in which gradients are accumulated; the stack's own where absent."""
    optimizer: OptimizerName = "adamw"
    """Optimizer: it decides the states kept for each parameter."""
    recompute: RecomputeName | Recompute = "none"
    """Activations computed again in the backward pass."""
    attention: AttentionName = "flash"
    """Attention kernel: eager keeps the scores, flash does not, and is the stack's own choice unless it is named."""
    method: MethodName | Method = "full"
    """What is trained: every parameter, some parts of the model, or adapters."""
    stack: StackName | Software | None = None
    """Training software: buffers, defaults, what can be expressed; megatron-core, or transformers, where absent."""
    dropout_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Dropout probability of attention and residuals; masks are kept above 0, whatever the probability."""
    moment_dtype: MomentDtype | None = None
    """Format of the optimizer's moments (precision-aware optimizers); the precision recipe's own where absent."""
    master_dtype: MasterDtype | None = None
    """Format of the master copy; the precision recipe's own where absent."""
    fp8_weights: bool = False
    """fp8 recipes keep the weights themselves in fp8, without a 16-bit copy (fp8-param-gather, fp8_model_init)."""
    ema: bool = False
    """An fp32 moving average of the weights is kept, sharded as the master copy is."""
    expert_capacity_factor: Annotated[float, Ge(0.1), Lt(1024)] | None = None
    """An expert works on at most so many times its even share of the tokens, others dropped; no limit where absent."""
    expert_imbalance: Annotated[float, Ge(1), Lt(1024)] = 1.0
    """Tokens that reach the fullest rank's experts, over the mean of all ranks; at most layout.expert."""
    checkpoint: Checkpointing | None = None
    """How checkpoints are taken; asynchronously, as often as wastes least, where absent."""
    vocabulary_multiple: Annotated[int, Interval(ge=1, le=1 << 16)] | None = None
    """The vocabulary is padded to a multiple of this x tensor; the stack's own where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the work is divided over the GPUs: one degree an axis."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    data: Degree | None = None
    """Data-parallel replicas; gpus / (tensor x context x pipeline) where absent."""
    tensor: Degree = 1
    """GPUs that split each matrix, t."""
    context: Degree = 1
    """GPUs that split each sequence, c."""
    pipeline: Degree = 1
    """Stages that split the layers, p."""
    virtual_pipeline: Degree = 1
    """Model chunks on each stage, v (interleaved schedule)."""
    expert: Degree = 1
    """GPUs that split the experts, e."""
    expert_tensor: Degree | None = None
    """GPUs that split each expert's matrices; 1 where experts are split, else tensor."""
    zero_stage: ZeroStage | None = None
    """ZeRO: 0 shards nothing, 1 the optimizer, 2 gradients too, 3 weights too; the stack's own where absent."""
    shard_group: Degree | None = None
    """Ranks over which sharded tensors are spread (HSDP); data x context where absent."""
    reshard_after_forward: bool | None = None
    """ZeRO-3 frees gathered weights after the forward pass; true where absent, false with a pipeline."""
    sequence_parallel: bool | None = None
    """Split the norms' activations along the sequence inside the tensor group; on where tensor > 1 and absent."""
    context_method: ContextMethod | None = None
    """How context ranks exchange keys and values; the stack's own where absent."""
    virtual_group: Degree | None = None
    """Micro-batches that a stage runs through one chunk before the next (interleaved); pipeline where absent."""
    schedule: ScheduleName | None = None
    """Pipeline schedule; 1f1b, or interleaved-1f1b with virtual stages, where absent."""
    stage_layers: Annotated[tuple[Annotated[int, Interval(ge=0, le=2048)], ...], Len(1, 2048)] | None = None
    """Layers of each stage, first to last; with virtual stages of each chunk in the order of the model, pipeline x
    virtual_pipeline numbers; even where absent."""
    embedding_in_split: bool = False
    """The embedding counts as a layer when layers are dealt out evenly over the stages."""
    loss_in_split: bool = False
    """The head and the loss count as a layer when layers are dealt out evenly over the stages."""
    rank_order: RankOrder | None = None
    """Axes in the order in which ranks are numbered, neighbours first: it decides whether replicas of a stage or stages
    of a replica share a node; the stack's own where absent."""
    offload: OffloadName = "none"
    """What lives in host memory instead of on the GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything an estimate depends on, with the catalogue's names already turned into facts."""

    model: Model
    """What is trained."""
    recipe: Recipe
    """How it is trained."""
    layout: Layout
    """How it is divided."""
    cluster: Cluster
    """What it runs on."""
    gpu: Gpu
    """The facts of cluster.gpu."""
    price: Price | OwnedPrice | None = None
    """What it costs, rented or owned; without it there is no cost."""
