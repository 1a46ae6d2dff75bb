"""Questions that the contract and the guides show; tests send each."""

from typing import Any

EXAMPLES: dict[str, Any] = {
    "one-node": {
        "summary": "Llama 3.1 8B on one DGX H100, the whole run with its cost",
        "value": {
            "model": "llama-3.1-8b",
            "recipe": {"sequence_length": 8192, "micro_batch": 1, "global_batch": 128, "training_tokens": 15e12},
            "layout": {"tensor": 2, "zero_stage": 1},
            "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
            "price": {"usd_per_gpu_hour": 2.5},
        },
    },
    "many-nodes": {
        "summary": "Llama 3.1 70B with fewer layers on sixteen nodes of a cluster preset",
        "value": {
            "model": {"preset": "llama-3.1-70b", "num_hidden_layers": 64},
            "recipe": {"sequence_length": 8192, "global_batch": 512, "recompute": "selective"},
            "layout": {"tensor": 8, "pipeline": 4},
            "cluster": {"preset": "dgx-h100", "nodes": 16},
        },
    },
    "own-config": {
        "summary": "A Hugging Face config.json as it is",
        "value": {
            "model": {"hf_config": {
                "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            }},
            "recipe": {"sequence_length": 4096, "recompute": "full"},
            "cluster": "dgx-h100",
        },
    },
}  # fmt: skip
"""Request bodies that every estimating route answers."""

QUESTION: dict[str, Any] = EXAMPLES["one-node"]["value"]
JOB = {name: QUESTION[name] for name in ("model", "recipe", "layout")}
"""The first of them, and what it trains."""
