"""Which columns may a table of measurements have, and which of them does scoring read? One form for each kind."""

from dataclasses import dataclass
from typing import Literal

FormName = Literal["memory", "throughput"]
"""What a table measured: bytes on a GPU, or the time of a step."""


@dataclass(frozen=True, slots=True)
class Form:
    """The columns of one kind of table."""

    name: FormName
    """What it measured."""
    required: tuple[str, ...]
    """Without these nothing can be asked, or compared with the answer."""
    figures: tuple[str, ...]
    """Columns of which at least one must be there: any can give the figure that is compared."""
    used: tuple[str, ...]
    """What a row is read by, and what is said of it; the shipped rows have these and no others."""
    unused: tuple[str, ...]
    """Further columns of the full form, which change no figure."""

    @property
    def known(self) -> frozenset[str]:
        """Every column that the form may have."""
        return frozenset({*self.used, *self.unused})


_ASKED = ("id", "source_key", "framework", "gpu", "n_gpus", "seq_len", "precision")
_SOURCE = ("id", "source_key", "source", "model")
_SHAPE = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "gated_mlp", "vocab", "tied_embeddings",
    "moe_experts", "moe_top_k", "moe_ffn_hidden", "moe_shared_ffn_hidden", "moe_dense_ffn_layers", "attention_kind",
    "seq_len", "training_kind", "framework", "framework_version", "date", "gpu", "gpu_mem_gb", "n_gpus",
    "gpus_per_node",
)  # fmt: skip
_SPLIT = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "sequence_parallel", "zero_stage", "sharding")
_BATCH = ("mbs", "gbs", "grad_accum", "precision")
_KERNELS = ("recompute", "recompute_detail", "flash_attention", "compile")
_TOLD = ("config_missing", "quality", "notes")
_NEVER_READ = ("n_params_reported_b", "moe_layers", "arch_source", "value_kind", "verified", "verified_how")

MEMORY = Form(
    "memory",
    required=(*_ASKED, "peak_mem_reported", "peak_mem_unit", "mem_class", "outcome"),
    figures=("peak_mem_reported",),
    used=(
        *_SOURCE, *_SHAPE, *_SPLIT, "offload", *_BATCH, "grad_dtype", "optimizer", *_KERNELS,
        "lora_rank", "quantization", "trainable_params",
        "peak_mem_reported", "peak_mem_unit", "mem_class", "mem_rank", "static_mem_gib", "outcome",
        *_TOLD, "extra_config_json",
    ),
    unused=(*_NEVER_READ, "param_dtype", "optimizer_dtype", "peak_mem_gib", "mem_kind", "step_time_s"),
)  # fmt: skip

FIGURES_OF_A_STEP = ("derived_step_time_s", "step_time_s", "implied_step_time_s")
"""Seconds of a step: as all printed figures together give them, as printed, and as FLOP/s of a known convention give
them; the first that a row has is compared."""

THROUGHPUT = Form(
    "throughput",
    required=_ASKED,
    figures=(*FIGURES_OF_A_STEP, "mfu_pct"),
    used=(
        *_SOURCE, *_SHAPE, "interconnect", *_SPLIT, *_BATCH, *_KERNELS, "optimizer", "other_features",
        *FIGURES_OF_A_STEP, "mfu_pct", "peak_tflops_denominator", "score_class", "superseded",
        *_TOLD,
    ),
    unused=(
        *_NEVER_READ,
        "tokens_per_s_per_gpu", "tokens_per_s_total", "samples_per_s", "tflops_per_gpu", "flop_convention", "hfu_pct",
        "peak_mem_gib", "mem_kind", "derived_tokens_per_s_per_gpu", "calc_params_total_b",
        "calc_params_matmul_active_b", "flops_per_token_reported_g", "flops_check_best", "flops_check_ratio",
        "implied_tokens_per_s_per_gpu", "implied_from",
    ),
)  # fmt: skip

FORMS = (MEMORY, THROUGHPUT)
"""Every kind of table."""

LARGEST = {
    "layers": 1 << 11,
    **dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "n_gpus", "gpus_per_node"), 1 << 20),
    **dict.fromkeys(("mbs", "gbs", "grad_accum", "hidden", "heads", "vocab", "seq_len"), 1 << 30),
}
"""Columns that count at least one thing, and the most that any may count."""
