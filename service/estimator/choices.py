"""Names that each field takes, with their meanings and sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from service.estimator.other_tools.comparison import TOOLS
from service.estimator.question import ImplementationName, PartName
from service.estimator.software.precision import OPTIMIZERS, PRECISIONS, QUANTIZATIONS
from service.estimator.software.stacks import CROSS_ENTROPIES, IMPLEMENTATIONS, STACKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One name that a field may take."""

    name: str
    """The name, as written in a question."""
    meaning: str
    """What it stands for."""
    source: str
    """Who says so."""


_KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198"
_MEGATRON = "NVIDIA/Megatron-LM@d98e8a64 arguments"

_ORDER = "NVIDIA/Megatron-LM@d98e8a64 core/parallel_state.py, training/initialize.py (use-tp-pp-dp-mapping)"

_LORA = "Hu et al. 2021, arXiv:2106.09685"
_PACKED = "Megatron-LM seqlen_squared_sum_in_batch; torchtitan document masks; Krell et al. 2021, arXiv:2107.02027"
_CONFIG = "transformers 5.23.0, modeling files of the types that have it"

_KERNELS = "NVIDIA/TransformerEngine@v2.11 get_attention_backend; pytorch/torchtitan@6fc499f models/attention.py"
_PRECISION_AWARE = _MEGATRON + " use-precision-aware-optimizer, exp-avg-dtype"
_OFFLOAD = "Ren et al. 2021, arXiv:2101.06840"

_PARTS: dict[PartName, str] = {
    "embedding": "tables of tokens and positions, and the projection after them",
    "norms": "every norm",
    "attention": "all that mixes tokens: projections, biases, sinks, recurrences",
    "mlp": "dense MLPs",
    "experts": "routed and shared experts",
    "router": "routers",
    "head": "head and the projection before it",
}

_FIXED: dict[str, tuple[tuple[str, str, str], ...]] = {
    "model.normalization": (
        ("rmsnorm", "a scale", "Zhang and Sennrich 2019, arXiv:1910.07467"),
        ("layernorm", "a scale and a shift", "Ba et al. 2016, arXiv:1607.06450"),
        ("layernorm_no_bias", "a scale, the mean subtracted", _CONFIG),
        ("nonparametric", "no trained numbers", "OLMo, arXiv:2402.00838"),
    ),
    "model.qk_norm": (
        ("none", "queries and keys are not normalised", "definition"),
        ("per_head_dim", "one scale for each number of a head, shared by all heads", _CONFIG),
        ("per_head_dim_biased", "a scale and a shift for each number of a head, shared by all heads", _CONFIG),
        ("full", "one scale for each number of all heads", _CONFIG),
        ("l2", "normalised without trained numbers", _CONFIG),
    ),
    "model.attention_gate": (
        ("none", "what attention finds goes on as it is", "definition"),
        ("per_head", "a learned gate for each head", "Qiu et al. 2025, arXiv:2505.06708"),
        ("elementwise", "a learned gate for each number of a head", "Qiu et al. 2025, arXiv:2505.06708"),
    ),
    "model.layer_types": (
        ("full_attention", "every earlier key is seen", "definition"),
        ("sliding_attention", "the last sliding_window keys are seen", "Beltagy et al. 2020, arXiv:2004.05150"),
        ("chunked_attention", "the earlier keys of the own chunk are seen", _CONFIG),
        ("lightning_attention", "linear attention with a fixed decay", "MiniMax-01, arXiv:2501.08313"),
        ("gated_delta_net", "linear attention with a delta rule", "Yang et al. 2024, arXiv:2412.06464"),
        ("mamba", "selective state space", "Gu and Dao 2023, arXiv:2312.00752"),
        ("mamba2", "state space with one decay a head", "Dao and Gu 2024, arXiv:2405.21060"),
        ("attention_and_mamba2", "full attention and mamba2 side by side", "Falcon-H1, arXiv:2507.22448"),
        ("shared_attention_and_mamba2", "a block that layers share, then mamba2", "Zamba2, arXiv:2411.15242"),
        ("rg_lru", "gated linear recurrence", "De et al. 2024, arXiv:2402.19427"),
        ("short_convolution", "gated convolution over a few tokens", _CONFIG),
        ("none", "tokens are not mixed", "definition"),
    ),
    "model.mlp_layer_types": (
        ("dense", "one MLP for every token", "definition"),
        ("sparse", "routed experts", "Shazeer et al. 2017, arXiv:1701.06538"),
        ("dense_and_sparse", "an MLP and routed experts side by side", "LongCat-Flash, arXiv:2509.01322"),
        ("none", "channels are not mixed", "definition"),
    ),
    "price.price_model": (
        ("on-demand", "by the hour, at will", "providers' price lists"),
        ("spot", "spare capacity that may be taken back", "providers' price lists"),
        ("reserved-1y", "committed for one year", "providers' price lists"),
        ("reserved-3y", "committed for three years", "providers' price lists"),
        ("capacity-block", "a fixed time bought ahead", "AWS EC2 Capacity Blocks for ML"),
    ),
    "recipe.gradient_dtype": (
        ("fp32", "gradients accumulate in single precision", "Ultrascale Playbook, mixed precision"),
        ("bf16", "gradients accumulate in bfloat16", "Ultrascale Playbook, mixed precision"),
        ("fp16", "gradients accumulate in half precision", "Micikevicius et al. 2018, arXiv:1710.03740"),
    ),
    "recipe.recompute": (
        ("none", "every activation is kept", _KORTHIKANTI),
        ("selective", "named modules are computed again, core attention unless told otherwise", _KORTHIKANTI),
        ("full", "whole layers are computed again", "Chen et al. 2016, arXiv:1604.06174"),
    ),
    "recipe.recompute.modules": (
        *(
            (name, meaning, _MEGATRON + " recompute-modules")
            for name, meaning in (
                ("core_attn", "scores, softmax and weighted values"),
                ("layernorm", "outputs of norms"),
                ("mlp", "dense MLP"),
                ("moe", "router, experts and shared experts"),
                ("moe_act", "activation of routed experts"),
                ("shared_experts", "shared experts"),
                ("mla_up_proj", "up-projections of latent attention"),
            )
        ),
        (
            "op",
            "every operation but attention and every second matrix product",
            "pytorch/torchtitan@b5bcd76 distributed/activation_checkpoint.py (selective op)",
        ),
    ),
    "recipe.recompute.method": (
        ("uniform", "groups of `layers` layers, one residual stream kept for each", _MEGATRON + " recompute-method"),
        (
            "block",
            "the first `layers` layers of a stage recompute",
            _MEGATRON + " recompute-method",
        ),
    ),
    "recipe.attention": (
        ("eager", "scores are written to memory and kept", _KORTHIKANTI),
        ("flash", "fused kernel that keeps no scores: the stack's own choice on the GPU", _KERNELS),
        ("flash-1", "FlashAttention of 2022, in CUDA or Triton", "Dao et al. 2022, arXiv:2205.14135"),
        ("flash-2", "FlashAttention-2", "Dao 2023, arXiv:2307.08691"),
        ("flash-3", "FlashAttention-3, for Hopper", "Shah et al. 2024, arXiv:2407.08608"),
        ("flash-4", "FlashAttention-4, for Blackwell", "Dao-AILab/flash-attention flash_attn/cute"),
        ("cudnn", "the fused attention of cuDNN", "NVIDIA cuDNN frontend documentation, SDPA"),
    ),
    "recipe.moment_dtype": (
        ("fp32", "moments in single precision", _PRECISION_AWARE),
        ("bf16", "moments in bfloat16", "DeepSeek-V3, arXiv:2412.19437, section 3.3.3"),
        ("fp16", "moments in half precision", _PRECISION_AWARE),
        ("fp8", "moments of one byte", "FP8-LM, arXiv:2310.18313, section 2.2"),
    ),
    "recipe.master_dtype": (
        ("fp32", "a master copy in single precision", "Micikevicius et al. 2018, arXiv:1710.03740"),
        ("bf16", "a master copy in bfloat16", "DeepSpeed configuration, bf16_master_weights_and_grads"),
        ("fp16", "a master copy in half precision", _MEGATRON + " main-params-dtype"),
    ),
    "recipe.stack.dispatcher": (
        ("alltoall", "each rank sends its tokens to those that have their experts", "Megatron-Core moe README"),
        (
            "flex",
            "a token goes once to each domain of the fast link, and on to its experts there (DeepEP, HybridEP)",
            "Megatron-Core moe README, moe-flex-dispatcher-backend",
        ),
        ("allgather", "ranks that share experts gather all their tokens", "Megatron-Core moe README"),
    ),
    "recipe.batching": (
        ("packed", "documents stand back to back in full sequences, and attention stays inside each", _PACKED),
        ("padded", "each document is padded to a sequence of its own", "transformers 5.23.0 DataCollatorWithPadding"),
    ),
    "recipe.checkpoint.rule": (
        ("young", "sqrt(2 x stall x time between interruptions)", "Young 1974, doi:10.1145/361147.361115"),
        ("daly", "the same to higher order, less the stall", "Daly 2006, doi:10.1016/j.future.2004.11.016"),
    ),
    "recipe.method": (
        ("full", "the model's own parameters are trained, but for frozen parts", "definition"),
        ("lora", "adapters of a low rank are trained beside frozen matrices", _LORA),
        ("qlora", "the same beside matrices of 4 bits", "Dettmers et al. 2023, arXiv:2305.14314"),
    ),
    "recipe.method.targets": tuple(
        (name, meaning, _LORA + "; names of transformers 5.23.0 modeling_llama and modeling_deepseek_v3")
        for name, meaning in (
            ("q_proj", "queries"),
            ("k_proj", "keys"),
            ("v_proj", "values"),
            ("o_proj", "attention output"),
            ("q_a_proj", "queries to their latent (MLA)"),
            ("q_b_proj", "queries from their latent (MLA)"),
            ("kv_a_proj_with_mqa", "keys and values to their latent (MLA)"),
            ("kv_b_proj", "keys and values from their latent (MLA)"),
            ("gate_proj", "gate of the MLP and of each expert"),
            ("up_proj", "first matrix of the MLP and of each expert"),
            ("down_proj", "last matrix of the MLP and of each expert"),
            ("in_proj", "all that a recurrence or convolution reads"),
            ("x_proj", "step, B and C of a selective state space"),
            ("dt_proj", "steps of a selective state space"),
            ("out_proj", "output of a recurrence or convolution"),
            ("lm_head", "head"),
        )
    ),
    "recipe.method.whole": tuple(
        (name, meaning, "huggingface/peft modules_to_save") for name, meaning in _PARTS.items()
    ),
    "recipe.method.frozen": tuple((name, meaning, "definition") for name, meaning in _PARTS.items()),
    "layout.zero_stage": tuple(
        (name, meaning, "Rajbhandari et al. 2020, arXiv:1910.02054")
        for name, meaning in (
            ("0", "nothing is sharded over the replicas"),
            ("1", "optimizer states and master weights are sharded"),
            ("2", "gradients too"),
            ("3", "weights too (FSDP)"),
        )
    ),
    "layout.schedule": (
        ("gpipe", "all forward passes, then all backward passes", "Huang et al. 2019, arXiv:1811.06965"),
        ("1f1b", "one forward, one backward pass in turn", "Narayanan et al. 2021, arXiv:2104.04473"),
        ("interleaved-1f1b", "several model chunks on each stage", "Narayanan et al. 2021, arXiv:2104.04473"),
        ("zero-bubble", "weight gradients fill the bubble (ZB-H1)", "Qi et al. 2024, arXiv:2401.10241"),
        ("dualpipe", "micro-batches from both ends", "DeepSeek-V3, arXiv:2412.19437"),
    ),
    "layout.context_method": (
        ("ring", "keys and values travel around the ring", "Liu et al. 2023, arXiv:2310.01889"),
        ("all-gather", "keys and values are gathered first", "Llama 3, arXiv:2407.21783"),
        ("ulysses", "heads are exchanged for tokens", "Jacobs et al. 2023, arXiv:2309.14509"),
    ),
    "layout.rank_order": (
        ("tp-cp-ep-dp-pp", "replicas of a stage are numbered before the next stage", _ORDER),
        ("tp-cp-ep-pp-dp", "stages of a replica are numbered before the next replica", _ORDER),
    ),
    "layout.offload": (
        ("none", "everything lives on the GPU", "definition"),
        ("optimizer", "optimizer states and master weights live in host memory", _OFFLOAD),
        (
            "activations",
            "activations wait in host memory for the backward pass, but those of a few layers",
            "NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/fine_grained_activation_offload.py",
        ),
        ("optimizer-and-activations", "both of them", "definition"),
        ("model", "weights, gradients and optimizer, gathered layer by layer", "Ren et al. 2021, arXiv:2104.07857"),
    ),
}


class _Described(Protocol):
    @property
    def meaning(self) -> str: ...
    @property
    def source(self) -> str: ...


def _rows(table: Mapping[Any, _Described]) -> list[tuple[str, str, str]]:
    return [(name, row.meaning, row.source) for name, row in table.items()]


def choices() -> dict[str, tuple[Choice, ...]]:
    """Every enumeration of a question, by field; under `method` the other tools that may answer POST /v1/memory."""
    tables = {
        "recipe.precision": _rows(PRECISIONS),
        "recipe.optimizer": _rows(OPTIMIZERS),
        "recipe.stack": _rows(STACKS),
        "recipe.stack.implementation": [_implementation(name) for name in get_args(ImplementationName)],
        "recipe.stack.cross_entropy": _rows(CROSS_ENTROPIES),
        "recipe.method.quantization": _rows(QUANTIZATIONS),
        **_FIXED,
        "method": [(name, f"{row.tool}: {row.meaning}", row.source) for name, row in TOOLS.items()],
    }
    return {
        field: tuple(Choice(name=name, meaning=meaning, source=source) for name, meaning, source in rows)
        for field, rows in tables.items()
    }


def _implementation(name: ImplementationName) -> tuple[str, str, str]:
    """Name, meanings and sources of an implementation, over the stacks that have it."""
    rows = {stack: table[name] for stack, table in IMPLEMENTATIONS.items() if name in table}
    meaning = "; ".join(f"{stack}: {row.meaning}" for stack, row in rows.items())
    return name, meaning, "; ".join(row.source for row in rows.values())
