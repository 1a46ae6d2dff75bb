"""The nouns of a question: which model, trained by which recipe, laid out how, on what, at what price.

They are the wire format too: an API validates straight into these classes, so a field is
defined once, with its bounds and its meaning. `None` means "derive it"; `resolve` fills it in.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Interval, Len, Lt

from service.estimator.gpu import Gpu
from service.estimator.names import (
    AttentionName,
    ContextMethod,
    GradientDtype,
    LayerType,
    MethodName,
    MlpType,
    Normalization,
    OffloadName,
    OptimizerName,
    PrecisionName,
    QkNorm,
    RecomputeMethod,
    RecomputeModule,
    RecomputeName,
    ScheduleName,
    StackName,
    ZeroStage,
)
from service.estimator.noun import STRICT, Count, Degree, Heads, Layers, Name, Sequences, Tokens, Width


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only transformer, in the spelling of a Hugging Face Llama config."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    vocab_size: Annotated[int, Interval(ge=1, le=1 << 26)]
    """Rows of the token embedding, V."""
    hidden_size: Width
    """Width of the residual stream, h."""
    num_hidden_layers: Layers
    """Transformer layers, L (multi-token-prediction depths not counted)."""
    num_attention_heads: Heads
    """Query heads, a."""
    intermediate_size: Width | None = None
    """Width of the dense MLP, f; needed unless every layer is sparse."""
    num_key_value_heads: Heads | None = None
    """Key and value heads, g; as many as query heads where absent."""
    head_dim: Annotated[int, Interval(ge=1, le=1 << 16)] | None = None
    """Width of one head, d; hidden_size / num_attention_heads where absent."""
    gated_mlp: bool = True
    """Three MLP matrices (SwiGLU, GeGLU) instead of two."""
    tie_word_embeddings: bool = False
    """The head reuses the token embedding."""
    attention_bias: bool = False
    """Biases on the query, key and value projections."""
    attention_out_bias: bool | None = None
    """Bias on the attention output projection; as attention_bias where absent."""
    mlp_bias: bool = False
    """Biases on the MLP matrices, those of experts included."""
    lm_head_bias: bool = False
    """Bias on the head."""
    normalization: Normalization = "rmsnorm"
    """Norm kind: it decides the parameters of each norm (h, 2h, h or 0)."""
    norms_per_layer: Literal[1, 2, 4] = 2
    """Norms in one layer: 1 shared by parallel branches, 2 usual, 4 before and after both branches."""
    final_norm: bool = True
    """A norm before the head."""
    embedding_norm: bool = False
    """A norm right after the token embedding (BLOOM)."""
    position_embedding_rows: Annotated[int, Interval(ge=0, le=1 << 26)] = 0
    """Rows of a learned absolute position table; 0 where positions are rotary, ALiBi or absent."""
    max_position_embeddings: Tokens | None = None
    """Longest sequence the model was built for; descriptive: a longer sequence_length is warned about."""
    qk_norm: QkNorm = "none"
    """Norm on queries and keys: one weight a head dimension, one a whole projection, or without weights."""
    attention_sinks: bool = False
    """One learned sink logit a head (gpt-oss)."""
    parallel_attention: bool = False
    """Attention and MLP read the same input and run side by side (GPT-J, NeoX, Falcon)."""
    layer_types: Annotated[tuple[LayerType, ...], Len(0, 2048)] = ()
    """Attention of each layer; a shorter list repeats. Empty: windowed if sliding_window is set, else full."""
    sliding_window: Tokens | None = None
    """Keys that a sliding_attention layer sees, w."""
    attention_chunk_size: Tokens | None = None
    """Length of the blocks within which a chunked_attention layer attends."""
    word_embed_proj_dim: Width | None = None
    """Width of the token embedding where it is projected to hidden_size (OPT-350m)."""
    kv_lora_rank: Width | None = None
    """Latent width of keys and values; its presence makes the attention latent (MLA)."""
    q_lora_rank: Width | None = None
    """Latent width of queries in MLA; queries are projected directly where absent."""
    qk_nope_head_dim: Width | None = None
    """Width of a query/key head without rotary positions in MLA."""
    qk_rope_head_dim: Width | None = None
    """Width of a query/key head with rotary positions in MLA."""
    v_head_dim: Width | None = None
    """Width of a value head in MLA."""
    num_experts: Count = 0
    """Routed experts of a sparse layer, E; 0 for a dense model."""
    num_experts_per_tok: Count = 0
    """Routed experts that one token visits, k."""
    moe_intermediate_size: Width | None = None
    """Width of one routed expert; intermediate_size where absent."""
    shared_expert_intermediate_size: Annotated[int, Interval(ge=0, le=1 << 24)] = 0
    """Width of all shared experts of a sparse layer together; 0 for none."""
    shared_expert_gate: bool = False
    """A learned gate (h numbers) on the shared expert (Qwen2-MoE)."""
    router_bias: bool = False
    """A trained bias on the router (gpt-oss); correction biases kept as buffers do not count."""
    first_k_dense_replace: Count = 0
    """Leading layers that are dense although the model is sparse."""
    mlp_layer_types: Annotated[tuple[MlpType, ...], Len(0, 2048)] = ()
    """MLP of each layer; a list shorter than the model repeats. Empty: sparse wherever there are experts."""
    num_nextn_predict_layers: Annotated[int, Interval(ge=0, le=16)] = 0
    """Multi-token-prediction depths trained beside the main model."""

    @property
    def key_value_heads(self) -> int:
        """Key and value heads, g [1]."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        """Width of one query head, d [1]."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def query_width(self) -> int:
        """Width of one query and key head in attention, d_qk [1]."""
        if self.kv_lora_rank is None:
            return self.head_width
        return (self.qk_nope_head_dim or 0) + (self.qk_rope_head_dim or 0)

    @property
    def value_width(self) -> int:
        """Width of one value head in attention, d_v [1]."""
        return self.head_width if self.kv_lora_rank is None else self.v_head_dim or 0

    @property
    def embedding_width(self) -> int:
        """Width of one row of the token embedding [1]."""
        return self.word_embed_proj_dim or self.hidden_size

    @property
    def expert_width(self) -> int:
        """Width of one routed expert, f_e [1]; 0 for a dense model."""
        return (self.moe_intermediate_size or self.intermediate_size or 0) if self.num_experts else 0

    @property
    def out_bias(self) -> bool:
        """Whether the attention output projection has a bias."""
        return self.attention_bias if self.attention_out_bias is None else self.attention_out_bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Which activations are dropped in the forward pass and computed again in the backward pass."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    granularity: RecomputeName
    """none, selective (named modules), or full (whole layers)."""
    modules: Annotated[tuple[RecomputeModule, ...], Len(0, 7)] = ()
    """What selective recompute drops; core_attn where empty."""
    method: RecomputeMethod = "uniform"
    """How full recompute covers a stage: uniform groups of `layers`, or a block of its first `layers`."""
    layers: Layers | None = None
    """Layers a group (uniform, 1 where absent) or layers that recompute (block, all where absent)."""


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
    """Tokens in one optimizer step; may stand instead of global_batch."""
    training_tokens: Annotated[float, Ge(1), Lt(1e18)] | None = None
    """Tokens of the whole run, D; without it there are no totals."""
    precision: PrecisionName | None = None
    """Number formats of weights, compute and master copy; bf16-mixed where absent, fp16-mixed on a GPU without bf16."""
    gradient_dtype: GradientDtype | None = None
    """Format in which gradients are accumulated; the stack's own where absent."""
    optimizer: OptimizerName = "adamw"
    """Optimizer: it decides the states kept for each parameter."""
    recompute: RecomputeName | Recompute = "none"
    """Activations computed again in the backward pass."""
    attention: AttentionName = "flash"
    """Attention kernel: eager keeps the scores, flash does not."""
    method: MethodName = "full"
    """What is trained; descriptive: only full training is estimated."""
    stack: StackName = "megatron-core"
    """Training software: it decides buffers, defaults and what can be expressed."""
    dropout_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Dropout probability of attention and residuals; masks are kept above 0, whatever the probability."""
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
    schedule: ScheduleName | None = None
    """Pipeline schedule; 1f1b, or interleaved-1f1b with virtual stages, where absent."""
    stage_layers: Annotated[tuple[Annotated[int, Interval(ge=0, le=2048)], ...], Len(1, 2048)] | None = None
    """Layers of each stage, first to last; even where absent."""
    offload: OffloadName = "none"
    """What lives in host memory instead of on the GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What it runs on: how many of which GPU, and how they are wired."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    gpu: Name
    """Catalogue name of the GPU."""
    gpus: Degree
    """GPUs in all."""
    gpus_per_node: Annotated[int, Interval(ge=1, le=1024)] = 8
    """GPUs in one node."""
    scale_up_gpus: Annotated[int, Interval(ge=1, le=1 << 16)] | None = None
    """GPUs that share the fast link (NVLink domain); the GPU's own where absent."""
    inter_node_bytes_per_s: Annotated[float, Ge(1e3), Lt(1e15)] | None = None
    """Network rate of one GPU, one direction; the GPU's usual adapter where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one GPU costs for one hour."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    usd_per_gpu_hour: Annotated[float, Ge(1e-4), Lt(1e6)]
    """US dollars for one GPU for one hour."""


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
    price: Price | None = None
    """What an hour costs; without it there is no cost."""
