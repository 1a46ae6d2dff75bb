"""Cases whose traffic torch counts too."""

from dataclasses import dataclass
from typing import Any

from service.estimator.question import StackName

RANKS = 2
TOKENS = 16

CONFIG: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "tie_word_embeddings": False,
}
"""A small LlamaForCausalLM."""


@dataclass(frozen=True)
class Case:
    """One way to run replicas."""

    stack: StackName
    bucket_bytes: int | None = None
    """Size of DDP's buckets; None for FSDP2."""
    reshard: bool = False
    """Whether FSDP2 frees weights after their forward pass."""


CASES = {
    "DDP, a bucket a matrix": Case("transformers", bucket_bytes=256),
    "DDP, buckets of 64 KiB": Case("transformers", bucket_bytes=1 << 16),
    "DDP, one bucket": Case("transformers", bucket_bytes=1 << 30),
    "FSDP2, freed": Case("transformers", reshard=True),
    "FSDP2, kept": Case("transformers", reshard=False),
    "FSDP2 of torchtitan, freed": Case("torchtitan", reshard=True),
    "FSDP2 of torchtitan, kept": Case("torchtitan", reshard=False),
}
