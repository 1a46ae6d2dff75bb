"""The noun of what is trained: a decoder-only model, field by field, in the spelling of Hugging Face configs.

A layer mixes tokens (attention, a recurrence, a convolution: `layer_types`), then channels (`mlp_layer_types`).
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval, Len

from service.estimator.names import AttentionGate, LayerType, MlpType, Normalization, QkNorm
from service.estimator.noun import STRICT, Count, Heads, Layers, Tokens, Width


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only language model, in the spelling of Hugging Face configs (Llama's where a type has its own)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

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
