"""Small models in training whose saved tensors torch counts: what each is, read with and without torch."""

from dataclasses import dataclass, field
from typing import Any

TOKENS, BATCH, VOCABULARY = 128, 2, 512

PURE = "bf16-pure"
"""Precision of weights, activations and states in bf16 alone."""

DENSE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 8, "head_dim": 32, "intermediate_size": 704, "tie_word_embeddings": False,
    "max_position_embeddings": 512,
}  # fmt: skip
GROUPED = DENSE | {"num_key_value_heads": 2}
SPARSE = GROUPED | {
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
OFFSET = GROUPED | {
    "sliding_window": 64, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "query_pre_attn_scalar": 32,
}  # fmt: skip
"""A model whose norms weigh by 1 + w."""
LATENT = DENSE | {
    "head_dim": 16, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 48,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 128,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "num_nextn_predict_layers": 0,
}  # fmt: skip
LATENT_SPARSE = LATENT | {"first_k_dense_replace": 1}
GPT2 = {
    "vocab_size": VOCABULARY, "n_embd": 256, "n_layer": 3, "n_head": 8, "n_inner": 1024, "n_positions": TOKENS,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip

EVERY_MATRIX = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TWO = {"name": "lora", "rank": 8, "targets": ("q_proj", "v_proj")}
ALL = {"name": "lora", "rank": 8, "targets": EVERY_MATRIX}
DROPPED = ALL | {"dropout_fraction": 0.05}
TWO_DROPPED = TWO | {"dropout_fraction": 0.05}
QUANTIZED = {"name": "qlora", "rank": 8, "targets": EVERY_MATRIX}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model in training."""

    type: str
    """Name of the architecture in transformers."""
    config: dict[str, Any]
    library: str = "transformers"
    attention: str = "flash"
    precision: str = PURE
    recompute: str = "none"
    method: dict[str, Any] = field(default_factory=lambda: {"name": "full"})
    """What is trained, as a question spells it."""


CASES: dict[str, Case] = {
    "dense, eager, fp32": Case(type="llama", config=DENSE, attention="eager", precision="fp32"),
    "dense, fused, bf16": Case(type="llama", config=DENSE),
    "GPT-2, eager, autocast": Case(type="gpt2", config=GPT2, attention="eager", precision="bf16-mixed"),
    "GPT-2, fused, fp32": Case(type="gpt2", config=GPT2, precision="fp32"),
    "GQA, fused, bf16": Case(type="llama", config=GROUPED),
    "GQA, eager, autocast": Case(type="llama", config=GROUPED, attention="eager", precision="bf16-mixed"),
    "GQA, fused, autocast, checkpointed": Case(
        type="llama", config=GROUPED, precision="bf16-mixed", recompute="full"
    ),
    "GQA with biases, fused, fp32": Case(type="qwen2", config=GROUPED, precision="fp32"),
    "GQA with norms on heads, fused, autocast": Case(type="qwen3", config=GROUPED, precision="bf16-mixed"),
    "norms of 1 + w, fused, bf16": Case(type="gemma3_text", config=OFFSET),
    "norms of 1 + w, fused, autocast": Case(type="gemma3_text", config=OFFSET, precision="bf16-mixed"),
    "norms of 1 + w, fused, fp32, checkpointed": Case(
        type="gemma3_text", config=OFFSET, precision="fp32", recompute="full"
    ),
    "hybrid of windows, fused, bf16": Case(
        type="qwen3",
        config=GROUPED
        | {
            "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
    ),
    "hybrid of convolutions, fused, bf16": Case(
        type="lfm2",
        config=GROUPED | {"layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
    ),
    "MoE, fused, fp32": Case(
        type="mixtral",
        config=GROUPED | {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 128},
        precision="fp32",
    ),
    "MoE, fused, bf16": Case(type="qwen3_moe", config=SPARSE),
    "MoE, eager, autocast": Case(type="qwen3_moe", config=SPARSE, attention="eager", precision="bf16-mixed"),
    "MoE, fused, autocast, checkpointed": Case(
        type="qwen3_moe", config=SPARSE, precision="bf16-mixed", recompute="full"
    ),
    "MoE with a shared expert, fused, autocast": Case(
        type="qwen2_moe", config=SPARSE | {"shared_expert_intermediate_size": 256}, precision="bf16-mixed"
    ),
    "MLA, fused, bf16": Case(type="deepseek_v3", config=LATENT),
    "MLA and MoE, fused, autocast": Case(type="deepseek_v3", config=LATENT_SPARSE, precision="bf16-mixed"),
    "MLA and MoE, eager, fp32": Case(
        type="deepseek_v3", config=LATENT_SPARSE, attention="eager", precision="fp32"
    ),
    "LoRA on two matrices, fused, fp32": Case(type="llama", config=GROUPED, precision="fp32", method=TWO),
    "LoRA on all matrices, fused, autocast": Case(
        type="llama", config=GROUPED, precision="bf16-mixed", method=ALL
    ),
    "LoRA on all matrices, fused, autocast, checkpointed": Case(
        type="llama", config=GROUPED, precision="bf16-mixed", recompute="full", method=ALL
    ),
    "LoRA with dropout on all matrices, fused, bf16": Case(type="llama", config=GROUPED, method=DROPPED),
    "LoRA with dropout on all matrices, fused, autocast": Case(
        type="llama", config=GROUPED, precision="bf16-mixed", method=DROPPED
    ),
    "LoRA on a MoE, fused, bf16": Case(type="qwen3_moe", config=SPARSE, method=TWO),
    "QLoRA, fused, autocast": Case(type="llama", config=GROUPED, precision="bf16-mixed", method=QUANTIZED),
    "embedding and two layers frozen, fused, autocast": Case(
        type="llama",
        config=GROUPED,
        precision="bf16-mixed",
        method={"name": "full", "frozen": ("embedding",), "frozen_layers": 2},
    ),
    "MLPs frozen, fused, fp32": Case(
        type="llama", config=GROUPED, precision="fp32", method={"name": "full", "frozen": ("mlp",)}
    ),
    "torchtitan: GQA, fused, bf16": Case(type="llama", library="torchtitan", config=GROUPED),
    "torchtitan: MoE, fused, bf16": Case(type="qwen3_moe", library="torchtitan", config=SPARSE),
    "Liger: GQA, fused, bf16": Case(type="llama", library="liger", config=GROUPED),
    "Liger: GQA, fused, autocast": Case(type="llama", library="liger", config=GROUPED, precision="bf16-mixed"),
    "Liger: LoRA on all matrices, fused, bf16": Case(type="llama", library="liger", config=GROUPED, method=ALL),
    "joint projections, fused, bf16": Case(type="llama", library="litgpt", config=DENSE),
    "joint projections, GQA, LoRA on two matrices, fused, bf16": Case(
        type="llama", library="litgpt", config=GROUPED, method=TWO_DROPPED
    ),
    "joint projections, LoRA on two matrices, fused, bf16": Case(
        type="llama", library="litgpt", config=DENSE, method=TWO_DROPPED
    ),
    "joint projections, LoRA on all matrices, fused, bf16": Case(
        type="llama", library="litgpt", config=DENSE, method=DROPPED | {"targets": (*EVERY_MATRIX, "lm_head")}
    ),
}  # fmt: skip
