"""Small models of every family, a few layers in real proportions, and the ledger of a model under a plain setting."""

from service.estimator import Model
from service.estimator.model.build import build_ledger
from service.estimator.model.ledger import Ledger, SequenceSettings

DENSE = Model(
    vocab_size=32000,
    hidden_size=1024,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=4,
    intermediate_size=4096,
)
TIED = Model(
    vocab_size=50257,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=16,
    head_dim=64,
    intermediate_size=3072,
    gated_mlp=False,
    tie_word_embeddings=True,
    attention_bias=True,
    mlp_bias=True,
    normalization="layernorm",
    position_embedding_rows=8192,
)
SPARSE = Model(
    vocab_size=32000,
    hidden_size=1024,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=4,
    intermediate_size=4096,
    num_experts=16,
    num_experts_per_tok=4,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=1024,
    first_k_dense_replace=1,
)
LATENT = Model(
    vocab_size=32000,
    hidden_size=1024,
    num_hidden_layers=8,
    num_attention_heads=16,
    intermediate_size=4096,
    kv_lora_rank=256,
    q_lora_rank=512,
    qk_nope_head_dim=64,
    qk_rope_head_dim=32,
    v_head_dim=64,
    num_experts=16,
    num_experts_per_tok=4,
    moe_intermediate_size=512,
    num_nextn_predict_layers=1,
)
WINDOWED = Model(
    vocab_size=64000,
    hidden_size=1024,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=4096,
    qk_norm="per_head_dim",
    norms_per_layer=4,
    layer_types=("sliding_attention", "sliding_attention", "sliding_attention", "full_attention"),
    sliding_window=512,
)
HYBRID = Model(
    vocab_size=32000,
    hidden_size=1024,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=4,
    intermediate_size=4096,
    layer_types=("mamba2", "gated_delta_net", "full_attention", "none"),
    mlp_layer_types=("none", "dense", "dense", "sparse"),
    num_experts=16,
    num_experts_per_tok=4,
    moe_intermediate_size=512,
    conv_kernel=4,
    conv_bias=True,
    mixer_norm=True,
    mamba_d_ssm=2048,
    mamba_d_state=128,
    mamba_n_heads=32,
    mamba_n_groups=4,
    linear_num_key_heads=8,
    linear_num_value_heads=16,
    linear_key_head_dim=64,
    linear_value_head_dim=64,
)

FAMILIES = {"dense": DENSE, "tied": TIED, "sparse": SPARSE, "latent": LATENT, "windowed": WINDOWED, "hybrid": HYBRID}


def ledger_of(model: Model, tokens: int) -> Ledger:
    """The ledger of a model in 16 bits, fused, without dropout."""
    return build_ledger(model, SequenceSettings(tokens=tokens, element_bytes=2))
