"""Which columns may a table of memory measurements have, and which of them does scoring read?"""

REQUIRED = (
    "id", "source_key", "framework", "gpu", "n_gpus", "seq_len", "precision", "peak_mem_reported", "peak_mem_unit",
    "mem_class", "outcome",
)  # fmt: skip
"""Without these nothing can be asked, or compared with the answer."""

USED = (
    "id", "source_key", "source", "model",
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "gated_mlp", "vocab", "tied_embeddings",
    "moe_experts", "moe_top_k", "moe_ffn_hidden", "moe_shared_ffn_hidden", "moe_dense_ffn_layers", "attention_kind",
    "seq_len", "training_kind", "framework", "framework_version", "date", "gpu", "gpu_mem_gb", "n_gpus",
    "gpus_per_node",
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "sequence_parallel", "zero_stage", "sharding", "offload",
    "mbs", "gbs", "grad_accum", "precision", "grad_dtype", "optimizer", "recompute", "recompute_detail",
    "flash_attention", "compile", "lora_rank", "quantization", "trainable_params",
    "peak_mem_reported", "peak_mem_unit", "mem_class", "mem_rank", "static_mem_gib", "outcome",
    "config_missing", "quality", "notes", "extra_config_json",
)  # fmt: skip
"""What a row is read by, and what is said of it; the shipped rows have these and no others."""

KNOWN = frozenset({
    *USED,
    "n_params_reported_b", "moe_layers", "arch_source", "param_dtype", "optimizer_dtype", "peak_mem_gib",
    "mem_kind", "step_time_s", "value_kind", "verified", "verified_how",
})  # fmt: skip
"""Every column of the full form; those that are not used change no figure."""

LARGEST = {
    "layers": 1 << 11,
    **dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "n_gpus", "gpus_per_node"), 1 << 20),
    **dict.fromkeys(("mbs", "gbs", "grad_accum", "hidden", "heads", "vocab", "seq_len"), 1 << 30),
}
"""Columns that count at least one thing, and the most that any may count."""
