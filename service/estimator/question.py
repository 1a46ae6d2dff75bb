"""The parts of a question, which are its wire format too: names, bounds and meanings of every field, each once.

`None` means "derive it"; `resolve` fills it in.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Interval, Le, Len, Lt

LayerType = Literal[
    "full_attention", "sliding_attention", "chunked_attention", "lightning_attention", "gated_delta_net",
    "mamba", "mamba2", "attention_and_mamba2", "shared_attention_and_mamba2", "rg_lru", "short_convolution", "none",
]  # fmt: skip
MlpType = Literal["dense", "sparse", "dense_and_sparse", "none"]
Normalization = Literal["rmsnorm", "rmsnorm_1p", "layernorm", "layernorm_no_bias", "nonparametric"]
QkNorm = Literal["none", "per_head_dim", "per_head_dim_biased", "full", "l2"]
AttentionGate = Literal["none", "per_head", "elementwise"]
PrecisionName = Literal[
    "fp32", "fp16", "bf16", "fp16-mixed", "bf16-mixed", "fp16-pure", "bf16-pure", "int8",
    "fp8-tensorwise", "fp8-blockwise", "mxfp8", "nvfp4", "fp8-deepseek",
]  # fmt: skip
GradientDtype = Literal["fp32", "bf16", "fp16"]
OptimizerName = Literal[
    "adamw", "adam", "adamw-8bit", "sgd", "sgd-momentum", "rmsprop", "adafactor", "lion", "muon", "adam-mini",
]  # fmt: skip
RecomputeName = Literal["none", "selective", "full"]
RecomputeModule = Literal[
    "core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj", "op",
]  # fmt: skip
RecomputeMethod = Literal["uniform", "block"]
AttentionName = Literal["eager", "flash", "flash-1", "flash-2", "flash-3", "flash-4", "cudnn"]
StackName = Literal["megatron-core", "torchtitan", "fsdp1", "deepspeed", "nanotron", "transformers"]
ImplementationName = Literal["transformer-engine", "local", "eager", "compiled", "liger", "litgpt"]
CrossEntropyName = Literal[
    "eager", "compiled", "chunked", "loss-parallel", "vocab-parallel", "vocab-parallel-fp32", "fused",
    "transformer-engine", "eager-half", "flash-attention", "chunked-fp32", "chunked-outputs", "liger",
]  # fmt: skip
DispatcherName = Literal["alltoall", "allgather", "flex"]
ScheduleName = Literal["gpipe", "1f1b", "interleaved-1f1b", "zero-bubble", "dualpipe"]
ContextMethod = Literal["ring", "all-gather", "ulysses"]
HeldUntil = Literal["loss", "backward", "next"]
RankOrder = Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]
OffloadName = Literal["none", "moments", "optimizer", "activations", "optimizer-and-activations", "model"]
BatchingName = Literal["packed", "padded"]
MethodName = Literal["full", "lora", "qlora"]
QuantizationName = Literal["nf4", "nf4-double", "gptq"]
MomentDtype = Literal["fp32", "bf16", "fp16", "fp8"]
MasterDtype = Literal["fp32", "bf16", "fp16"]
PartName = Literal["embedding", "norms", "attention", "mlp", "experts", "router", "head"]
MatrixName = Literal[
    "q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
    "gate_proj", "up_proj", "down_proj", "in_proj", "x_proj", "dt_proj", "out_proj", "lm_head", "gate", "all-linear",
]  # fmt: skip
ZeroStage = Literal[0, 1, 2, 3]
PriceModel = Literal["on-demand", "spot", "reserved-1y", "reserved-3y", "capacity-block"]
IntervalRule = Literal["young", "daly"]
ToolName = Literal[
    "nanotron-predict-memory", "megatron-theoretical", "accelerate", "zero3-estimator", "eleutherai-cookbook",
]  # fmt: skip


DESCRIBED: dict[str, Any] = {"use_attribute_docstrings": True, "json_schema_serialization_defaults_required": True}
"""pydantic's configuration of answers: attribute docstrings become descriptions, and every field is there."""

STRICT: dict[str, Any] = {**DESCRIBED, "extra": "forbid"}
"""The same of requests, whose unknown fields are refused."""


class Documented:
    """Base of dataclasses whose fields are described by the docstrings below them, and filled in answers."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED


class Strict:
    """Base of dataclasses of requests: the same, and no other field is accepted."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT


Name = Annotated[str, Len(1, 200)]
"""A name that the catalogue may hold."""

Width = Annotated[int, Interval(ge=1, le=1 << 24)]
Layers = Annotated[int, Interval(ge=1, le=2048)]
Heads = Annotated[int, Interval(ge=1, le=1 << 16)]
Count = Annotated[int, Interval(ge=0, le=1 << 20)]
Degree = Annotated[int, Interval(ge=1, le=1 << 20)]
Tokens = Annotated[int, Interval(ge=1, le=1 << 26)]
Sequences = Annotated[int, Interval(ge=1, le=1 << 30)]
"""Counts and their bounds: generous, so that a mistake of a digit or two is refused and nothing real is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Strict):
    """A decoder-only language model, in the spelling of Hugging Face configs (Llama's where a type has its own)."""

    vocab_size: Annotated[int, Interval(ge=1, le=1 << 26)]
    """Rows of the token embedding, V."""
    hidden_size: Width
    """Width of the residual stream, h."""
    num_hidden_layers: Layers
    """Layers, L (multi-token-prediction depths not counted)."""
    num_attention_heads: Annotated[int, Interval(ge=0, le=1 << 16)]
    """Query heads, a; 0 for a model without attention."""
    intermediate_size: Width | None = None
    """Width of the dense MLP, f; needed unless every layer is sparse."""
    num_key_value_heads: Heads | None = None
    """Key and value heads, g; as many as query heads where absent."""
    head_dim: Annotated[int, Interval(ge=1, le=1 << 16)] | None = None
    """Width of one head, d; hidden_size / num_attention_heads where absent."""
    gated_mlp: bool = True
    """Three MLP matrices (SwiGLU, GeGLU) instead of two."""
    activation_parameters: Annotated[int, Interval(ge=0, le=64)] = 0
    """Trained numbers of the activation function of one MLP (xIELU: 2); each routed expert has its own."""
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
    scalar_head: bool = False
    """One number a token in place of logits (reward models, critics), from a head of its own."""
    normalization: Normalization = "rmsnorm"
    """Norm kind: it decides the parameters of each norm (0, h or 2h); rmsnorm_1p weighs by 1 + w."""
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
    """Norm on queries and keys: one weight (or two) a head dimension, one a whole projection, or without weights."""
    attention_gate: AttentionGate = "none"
    """Learned gate on the attention's output: one number a head, or one a value (Qwen3-Next)."""
    attention_sinks: bool = False
    """One learned sink logit a head (gpt-oss)."""
    parallel_attention: bool = False
    """Attention and MLP read the same input and run side by side (GPT-J, NeoX, Falcon)."""
    layer_types: Annotated[tuple[LayerType, ...], Len(0, 2048)] = ()
    """How each layer mixes tokens; a shorter list repeats. Empty: windowed if sliding_window is set, else full."""
    sliding_window: Tokens | None = None
    """Keys that a sliding_attention layer sees, w."""
    attention_chunk_size: Tokens | None = None
    """Length of the blocks within which a chunked_attention layer attends."""
    conv_kernel: Annotated[int, Interval(ge=1, le=1 << 10)] | None = None
    """Taps of the short causal convolution in front of a recurrence, or in its place."""
    conv_bias: bool = False
    """Bias on that convolution."""
    mixer_bias: bool = False
    """Biases on the projections into and out of a recurrence or convolution."""
    mixer_norm: bool = False
    """A trained norm inside the mixer: on the step, B and C (mamba), on the gated output (mamba2)."""
    mamba_d_ssm: Width | None = None
    """Inner width of a state-space mixer, d_in."""
    mamba_d_state: Width | None = None
    """Numbers of state for each inner channel, N."""
    mamba_dt_rank: Width | None = None
    """Rank of the step's projection (mamba)."""
    mamba_n_heads: Heads | None = None
    """Heads that share one decay (mamba2)."""
    mamba_n_groups: Heads | None = None
    """Groups of heads that share B and C (mamba2), G."""
    linear_num_key_heads: Heads | None = None
    """Query and key heads of a gated delta net."""
    linear_num_value_heads: Heads | None = None
    """Value heads of a gated delta net."""
    linear_key_head_dim: Width | None = None
    """Width of its query and key heads."""
    linear_value_head_dim: Width | None = None
    """Width of its value heads."""
    lru_width: Width | None = None
    """Width of a gated linear recurrence (RecurrentGemma)."""
    num_mem_blocks: Count = 0
    """Transformer blocks that layers of shared_attention_and_mamba2 take in turn (Zamba2)."""
    adapter_rank: Count = 0
    """Rank of each such layer's own adapters on the shared block's MLP; 0 for none."""
    shared_attention_adapter: bool = False
    """Adapters of the same rank on the shared block's queries, keys and values too."""
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
    moe_latent_size: Width | None = None
    """Width on which routed experts act, between two projections of their own; hidden_size where absent."""
    zero_expert_num: Count = 0
    """Experts that hand their token on unchanged (LongCat); the router chooses among them too."""
    num_nextn_predict_layers: Annotated[int, Interval(ge=0, le=16)] = 0
    """Multi-token-prediction depths trained beside the main model."""

    @property
    def key_value_heads(self) -> int:
        """Key and value heads, g [1]; 1 for a model without attention, which nothing then reads."""
        return self.num_key_value_heads or self.num_attention_heads or 1

    @property
    def head_width(self) -> int:
        """Width of one query head, d [1]."""
        return self.head_dim or self.hidden_size // max(1, self.num_attention_heads)

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
    def head_outputs(self) -> int:
        """Numbers that the head gives for each token [1]."""
        return 1 if self.scalar_head else self.vocab_size

    @property
    def embedding_width(self) -> int:
        """Width of one row of the token embedding [1]."""
        return self.word_embed_proj_dim or self.hidden_size

    @property
    def expert_width(self) -> int:
        """Width of one routed expert, f_e [1]; 0 for a dense model."""
        return (self.moe_intermediate_size or self.intermediate_size or 0) if self.num_experts else 0

    @property
    def expert_input_width(self) -> int:
        """Width of what a routed expert reads and writes [1]."""
        return self.moe_latent_size or self.hidden_size

    @property
    def visits(self) -> tuple[int, int]:
        """Routed experts that a token visits on average, as a fraction: k E of E + Z, zero experts chosen as often."""
        return self.num_experts_per_tok * self.num_experts, self.num_experts + self.zero_expert_num

    @property
    def is_gpt2(self) -> bool:
        """Whether transformers runs it by modeling_gpt2: biased layer norms and projections, learned positions."""
        return (
            self.normalization == "layernorm"
            and self.position_embedding_rows > 0
            and self.attention_bias
            and not self.gated_mlp
            and self.key_value_heads == self.num_attention_heads
        )

    @property
    def out_bias(self) -> bool:
        """Whether the attention output projection has a bias."""
        return self.attention_bias if self.attention_out_bias is None else self.attention_out_bias


Memory = Annotated[float, Ge(1e6), Lt(1e16)]
MemoryRate = Annotated[float, Ge(1e3), Lt(1e18)]
ComputeRate = Annotated[float, Ge(1e6), Lt(1e21)]
LinkRate = Annotated[float, Ge(1e3), Lt(1e15)]
"""What a device may have, with a thousandfold margin: a number in the wrong unit is refused, nothing real is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Strict):
    """One accelerator, from its data sheet and measurements; every rate is dense."""

    slug: Name
    """Catalogue name."""
    architecture: Name
    """Vendor's generation name; it selects measured efficiencies."""
    memory_bytes: Memory
    """Memory that one device exposes."""
    usable_bytes: Memory
    """Memory that a job can use."""
    memory_bytes_per_s: MemoryRate
    """Memory bandwidth."""
    fp32_flop_per_s: ComputeRate | None = None
    """Dense peak in fp32 (TF32 where the tensor cores have it)."""
    bf16_flop_per_s: ComputeRate | None = None
    """Dense peak in bf16."""
    fp16_flop_per_s: ComputeRate | None = None
    """Dense peak in fp16."""
    fp8_flop_per_s: ComputeRate | None = None
    """Dense peak in fp8."""
    fp4_flop_per_s: ComputeRate | None = None
    """Dense peak in fp4."""
    int8_flop_per_s: ComputeRate | None = None
    """Dense peak in int8."""
    link_bytes_per_s: LinkRate
    """Fast link of one GPU, one direction."""
    scale_up_gpus: Annotated[int, Interval(ge=1, le=1 << 16)]
    """GPUs that share the fast link."""
    inter_node_bytes_per_s: LinkRate
    """Usual network adapter of one GPU, one direction."""
    host_bytes_per_s: LinkRate
    """Link to the host, one direction."""
    board_watts: Annotated[float, Ge(1), Lt(1e6)]
    """Rated power of the board."""


Bytes = Annotated[float, Ge(0), Lt(1e18)]
Share = Annotated[float, Ge(0), Lt(1)]
SmallUsd = Annotated[float, Ge(0), Lt(1e6)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage(Strict):
    """Bytes that are kept for as long as the run takes."""

    usd_per_gb_month: SmallUsd
    """US dollars for one GB (1e9 bytes) kept for one month (730 hours)."""
    checkpoints: Annotated[int, Interval(ge=0, le=1 << 20)] = 1
    """Checkpoints that are kept at a time."""
    data_bytes: Bytes = 0.0
    """Other bytes that are kept: training data, logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress(Strict):
    """Bytes that leave the provider's network once."""

    bytes: Bytes
    """Bytes sent out."""
    usd_per_gb: SmallUsd
    """US dollars for one GB (1e9 bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(Strict):
    """What one rented GPU costs for one hour, and what is paid beside it."""

    usd_per_gpu_hour: Annotated[float, Ge(1e-4), Lt(1e6)]
    """US dollars for one GPU for one hour, before any discount."""
    price_model: PriceModel | None = None
    """On what terms; spot capacity is taken back now and then."""
    discount_fraction: Share = 0.0
    """Own discount on that price."""
    preemptions_per_instance_hour: Annotated[float, Ge(0), Lt(100)] | None = None
    """How often the provider takes one machine (a node) back; 2.2e-4, some 15 % of machines in a month, for spot where
    absent, else 0."""
    as_of: Annotated[str, Len(4, 10)] | None = None
    """Date at which the price held, e.g. 2025, 2025-03 or 2025-03-17; descriptive, but an old price is warned of."""
    storage: Storage | None = None
    """Bytes that are kept; no such cost where absent."""
    egress: Egress | None = None
    """Bytes that are sent out; no such cost where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPrice(Strict):
    """What owned hardware costs: its purchase written off over the hours that it works, and its upkeep."""

    amortisation_years: Annotated[float, Ge(0.01), Le(50)]
    """Years over which the purchase is written off."""
    purchase_usd: Annotated[float, Ge(1), Lt(1e9)] | None = None
    """Purchase price of one GPU with its share of server and network; the catalogue's where absent."""
    residual_fraction: Share = 0.0
    """Share of the purchase price that it still brings after those years."""
    utilisation_fraction: Annotated[float, Ge(0.01), Le(1)] = 0.8
    """Share of those years in which it works: busy hours pay for idle ones."""
    maintenance_fraction: Share = 0.0
    """Maintenance and support of one year over the purchase price."""
    usd_per_kwh: SmallUsd | None = None
    """US dollars for one kWh; the cost holds no electricity where absent."""
    usd_per_kw_month: SmallUsd | None = None
    """US dollars for hosting one kW of rated power for one month (730 hours); no such cost where absent."""
    as_of: Annotated[str, Len(4, 10)] | None = None
    """Date at which the purchase price held, e.g. 2025-03; descriptive, but an old price is warned of."""
    storage: Storage | None = None
    """Bytes that are kept; no such cost where absent."""
    egress: Egress | None = None
    """Bytes that are sent out; no such cost where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing(Strict):
    """How checkpoints are taken, so that an interruption loses little."""

    rule: IntervalRule | None = None
    """Which formula gives the time between checkpoints that wastes least; young where absent."""
    interval_seconds: Annotated[float, Ge(1), Lt(1e9)] | None = None
    """Time between checkpoints; what the rule gives where absent. Never below one step, nor below the time that an
    asynchronous file takes to write."""
    stall_seconds: Annotated[float, Ge(1e-3), Lt(1e6)] | None = None
    """Time that training stands still for one checkpoint; derived from write_bytes_per_s, else 30, where absent."""
    asynchronous: bool = True
    """Training goes on once the state is copied to host memory, and the file is written behind it."""
    write_bytes_per_s: Annotated[float, Ge(1e3), Lt(1e18)] | None = None
    """Rate at which the whole job writes to storage: it decides the stall of a checkpoint that is not asynchronous, and
    how often an asynchronous one can be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStage(Strict):
    """A part of a run, before the recipe's own values hold, with a batch or a length of its own."""

    until_tokens: Annotated[float, Ge(1), Lt(1e18)]
    """Tokens of the run, from its beginning, after which the stage ends; ascending, and below training_tokens."""
    global_batch: Sequences | None = None
    """Sequences in one step, in the first one where the batch rises; the recipe's own where absent."""
    sequence_length: Tokens | None = None
    """Tokens in one sequence; the recipe's own where absent."""
    final_global_batch: Sequences | None = None
    """Sequences in one step to which the batch rises, reached as the stage ends; it does not rise where absent."""
    batch_increment: Sequences | None = None
    """Sequences by which a rising batch grows at a time; the fewest that the layout can share, where absent."""


StepSeconds = Annotated[float, Ge(1e-6), Lt(1e9)]
"""Seconds of one optimizer step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep(Strict):
    """One configuration of the caller's own, as it was predicted and as it ran."""

    predicted_seconds: StepSeconds
    """Seconds of its step by an estimate without measured_steps."""
    measured_seconds: StepSeconds
    """Seconds that its step took, median of many."""

    def __str__(self) -> str:
        """One cell of a table: `predicted:measured`, as the flat form takes it."""
        return f"{self.predicted_seconds}:{self.measured_seconds}"


Ratio = Annotated[float, Ge(0), Lt(10)]
"""A share of something, or a small multiple of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Strict):
    """What it runs on: how many of which GPU, how they are wired, how often they fail and what they draw."""

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
    network_oversubscription: Annotated[float, Interval(ge=1, le=1024)] = 1.0
    """What all adapters can send, over what the network carries between domains at once; 1 for a full fat tree."""
    network_reduction: bool = False
    """The switches between domains add (SHARP), so an all-reduce sends each byte out once, not twice."""
    measured_steps: Annotated[tuple[MeasuredStep, ...], Len(0, 1024)] = ()
    """Own steps on such a cluster with the same software: what was predicted of each, and what it took. They move later
    predictions and narrow their intervals as far as they warrant."""
    power_limit_watts: Annotated[float, Ge(1), Lt(1e6)] | None = None
    """Power that one GPU is limited to, below which it lowers its clock; its rated power where absent."""
    failures_per_gpu_hour: Annotated[float, Ge(1e-12), Lt(1)] | None = None
    """Interruptions of a job for each GPU-hour, 1 / MTBF; 1.97e-5, as Llama 3 405B had them, where absent."""
    restart_seconds: Annotated[float, Ge(0), Lt(1e7)] | None = None
    """Time from an interruption to the first new step; 600 where absent."""
    spare_fraction: Annotated[float, Ge(0), Lt(1)] | None = None
    """Spare GPUs over GPUs of the job, rounded up to whole nodes: idle, and paid for; none where absent."""
    grid_region: Name | None = None
    """Where it stands, as GET /v1/regions lists it: a cloud's region, e.g. gcp:us-central1, or a country, e.g. USA; its
    electricity decides the carbon, and its operator the pue where that is known."""
    grid_kg_co2e_per_kwh: Annotated[float, Ge(0), Lt(10)] | None = None
    """Carbon intensity of its electricity; that of grid_region where absent, and no carbon without either."""
    pue: Annotated[float, Ge(1), Lt(10)] | None = None
    """Power usage effectiveness: energy of the building over that of its machines; that of grid_region, else 1.1, where
    absent."""
    busy_power_fraction: Ratio | None = None
    """Power of a node at work over its rated power; 0.76 where absent."""
    idle_power_fraction: Ratio | None = None
    """Power of a node that waits (spares, restarts) over its rated power; 0.2 where absent."""
    host_power_fraction: Ratio | None = None
    """Rated power of hosts, network and fans over that of the GPU boards; 0.82, as in a DGX H100, where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute(Strict):
    """Which activations are dropped in the forward pass and computed again in the backward pass."""

    granularity: RecomputeName
    """none, selective (named modules), or full (whole layers)."""
    modules: Annotated[tuple[RecomputeModule, ...], Len(0, 8)] = ()
    """What selective recompute drops; core_attn, or op with torchtitan, where empty."""
    method: RecomputeMethod = "uniform"
    """How full recompute covers a stage: uniform groups of `layers`, or a block of its first `layers`."""
    layers: Layers | None = None
    """Layers a group (uniform, 1 where absent) or layers that recompute (block, all where absent)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLength(Strict):
    """So many documents of so many tokens: one bar of a histogram."""

    tokens: Tokens
    """Tokens of each of these documents, l."""
    count: Annotated[int, Interval(ge=1, le=1 << 40)]
    """Documents of this length; only the proportions between lengths matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Strict):
    """Which parameters are trained: the model's own, some parts of it frozen, or adapters beside frozen matrices."""

    name: MethodName
    """full (the model's own parameters), lora (adapters beside its frozen matrices, nothing else) or qlora (the same
    beside matrices of 4 bits)."""
    rank: Annotated[int, Interval(ge=1, le=1 << 16)] | None = None
    """Rank of each adapter, r; 8 where absent (lora)."""
    targets: Annotated[tuple[MatrixName, ...], Len(0, 14)] = ()
    """Matrices that have an adapter; q_proj and v_proj where empty. all-linear is every matrix but the head (lora)."""
    dropout_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Dropout probability of the adapters' inputs; above 0 an adapter keeps a copy of its input, and a mask (lora,
    qlora)."""
    joint: Annotated[tuple[MatrixName, ...], Len(0, 12)] = ()
    """Targets that are one matrix of the software and so share the half of their adapters that reads the input, such as
    q_proj, k_proj and v_proj in c_attn or linear_qkv (lora)."""
    quantization: QuantizationName | None = None
    """Format of the frozen matrices; nf4-double where absent (qlora)."""
    whole: Annotated[tuple[PartName, ...], Len(0, 7)] = ()
    """Parts of the model that are trained whole beside the adapters (lora, qlora)."""
    frozen: Annotated[tuple[PartName, ...], Len(0, 7)] = ()
    """Parts of the model that are not trained (full)."""
    frozen_layers: Annotated[int, Interval(ge=0, le=2048)] = 0
    """First layers of the model that are not trained (full)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions(Strict):
    """Versions of the libraries under the training software, where they change what it keeps in memory."""

    transformer_engine: Annotated[str, Len(1, 32)] | None = None
    """Transformer Engine, e.g. 2.11; the newest that is known where absent."""
    megatron_core: Annotated[str, Len(1, 32)] | None = None
    """Megatron-Core, e.g. 0.14; the newest that is known where absent."""
    torch: Annotated[str, Len(1, 32)] | None = None
    """PyTorch, e.g. 2.9; the newest that is known where absent."""
    torchtitan: Annotated[str, Len(1, 32)] | None = None
    """torchtitan, by year and month of its commit, from 2023 on, e.g. 2025.8; the newest that is known where absent."""
    transformers: Annotated[str, Len(1, 32)] | None = None
    """transformers, e.g. 4.57; the newest that is known where absent."""
    bitsandbytes: Annotated[str, Len(1, 32)] | None = None
    """bitsandbytes, e.g. 0.42; the newest that is known where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software(Strict):
    """Training software, with those of its choices that change what it keeps in memory."""

    name: StackName
    """The framework."""
    versions: Versions | None = None
    """Versions of the libraries under it; the newest that are known where absent."""
    implementation: ImplementationName | None = None
    """Whose operations it runs: Transformer Engine's, its own, eager or compiled ones, or another library's; its usual
    where absent."""
    cross_entropy: CrossEntropyName | None = None
    """How the loss is computed from the logits; its usual way where absent."""
    gradient_fusion: bool | None = None
    """Products of weight gradients add to the accumulated gradients themselves; as usual for the stack where absent."""
    fused_update: bool | None = None
    """The optimizer's arithmetic is one kernel without temporaries; as usual for the stack where absent."""
    decoupled_gradients: bool | None = None
    """The optimizer's kernel holds the master copy and reads gradients as they are accumulated (use_decoupled_grad of
    Transformer Engine's FusedAdam, a precision-aware optimizer); else fp32 copies of them are made for its step. True
    where absent and moments or master copy have a named format, but for fp8, whose fp32 masters Megatron-Core holds."""
    deterministic: bool = False
    """Only deterministic kernels, with the workspaces that they need."""
    grouped_experts: bool | None = None
    """All experts of a rank run in one grouped product; as usual for the stack where absent."""
    tensor_overlap: bool | None = None
    """Tensor ranks exchange in pieces beside their products (async tensor parallelism, user buffers); as usual for the
    stack where absent."""
    cuda_graphs: bool = False
    """Kernels of a whole step are launched as one graph, so the device never waits for the host."""
    partial_graphs: bool = False
    """Graphs hold attention and router of each layer of experts, up to the dispatch; dispatch and routed experts are
    launched one by one (cuda_graph_scope attn, moe_router, moe_preprocess)."""
    routed_nodes: Annotated[int, Interval(ge=1, le=1 << 16)] | None = None
    """Most nodes on which the experts of one token lie (group-limited routing, DeepSeek-V3: 4); as many as there are
    where absent."""
    expert_overlap: bool = False
    """The exchange of experts' tokens runs beside the compute of another micro-batch."""
    dispatcher: DispatcherName | None = None
    """How tokens reach their experts; all-to-all where absent."""
    fp8_attention: bool = False
    """Attention reads and writes fp8, scaled as the products are (fp8_dot_product_attention); cuDNN's kernel alone
    does."""
    fused_experts: bool = False
    """The products of experts and the activation between them are one kernel in each pass, which also converts its
    results to MXFP8 (use_transformer_engine_op_fuser)."""
    fp8_activation_inputs: bool = False
    """What the activation of a gated MLP reads is kept in fp8 until its backward pass
    (activation_func_fp8_input_store)."""
    grouped_reductions: bool = False
    """ZeRO-2 reduces gradients of each chunk once for all micro-batches that it runs one after another, and keeps them
    whole until then, as for Llama 3 405B, whose software is not published; else after each micro-batch."""
    attention_mask: bool = False
    """The data loader makes a mask of all pairs of tokens, as Megatron-LM's scripts do by default."""
    step_in_backward: bool = False
    """Each parameter is updated as soon as its gradient is there, so that gradients of all are never there at once."""
    logits_until: HeldUntil | None = None
    """How long the training loop holds the logits of a micro-batch, and all that hangs on them: through its loss, its
    backward pass, or until the next one has its own; as usual for the implementation where absent."""
    overlap_reduce: bool | None = None
    """Replicas add gradients up beside the backward pass (DeepSpeed's overlap_comm, Megatron's overlap-grad-reduce); as
    usual for the stack where absent."""
    overlap_gather: bool | None = None
    """Sharded or updated weights are gathered beside compute (Megatron's overlap-param-gather, FSDP's
    backward_prefetch); as usual for the stack where absent."""
    reduce_bucket_numbers: Annotated[int, Interval(ge=1, le=1 << 40)] | None = None
    """Gradients that one call reduces, more where one matrix has more (DeepSpeed's reduce_bucket_size, Megatron's
    ddp-bucket-size, DDP's bucket_cap_mb over the bytes of a weight); the stack's own where absent."""
    gather_bucket_numbers: Annotated[int, Interval(ge=1, le=1 << 40)] | None = None
    """Weights that one call of ZeRO-3 gathers, more where one matrix has more (DeepSpeed's
    stage3_prefetch_bucket_size); the stack's own where absent."""
    expandable_segments: bool | None = None
    """The allocator grows its segments instead of opening new ones, and so holds fewer fragments; as the stack's
    launcher sets it where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Strict):
    """How the model is trained: batch, tokens, numbers, optimizer, software."""

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
    """Number formats of weights, compute and master copy; bf16-mixed where absent, fp16-mixed on a GPU without bf16.
    bf16 and fp16 are short for bf16-mixed and fp16-mixed; bf16-pure and fp16-pure keep no fp32 copy of the weights."""
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
    """Training software: buffers, defaults, what can be expressed. Where absent, the first of megatron-core,
    transformers, deepspeed, torchtitan, fsdp1 and nanotron that runs the model, recipe and layout."""
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
class Layout(Strict):
    """How the work is divided over the GPUs: one degree an axis."""

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
    """ZeRO-3 frees gathered weights after the forward pass; true where absent, false with a pipeline of torchtitan."""
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
