"""Closed lists of names that a question may use, and the bounds of its counts."""

from typing import Annotated, Any, Literal

from annotated_types import Interval, Len

LayerType = Literal[
    "full_attention", "sliding_attention", "chunked_attention", "lightning_attention", "gated_delta_net",
    "mamba", "mamba2", "attention_and_mamba2", "shared_attention_and_mamba2", "rg_lru", "short_convolution", "none",
]  # fmt: skip
MlpType = Literal["dense", "sparse", "dense_and_sparse", "none"]
Normalization = Literal["rmsnorm", "layernorm", "layernorm_no_bias", "nonparametric"]
QkNorm = Literal["none", "per_head_dim", "per_head_dim_biased", "full", "l2"]
AttentionGate = Literal["none", "per_head", "elementwise"]
PrecisionName = Literal[
    "fp32", "fp16", "bf16", "int8", "fp16-mixed", "bf16-mixed",
    "fp8-tensorwise", "fp8-blockwise", "mxfp8", "nvfp4", "fp8-deepseek",
]  # fmt: skip
GradientDtype = Literal["fp32", "bf16", "fp16"]
OptimizerName = Literal["adamw", "adamw-8bit", "sgd-momentum", "adafactor", "lion", "muon", "adam-mini"]
RecomputeName = Literal["none", "selective", "full"]
RecomputeModule = Literal[
    "core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj", "op",
]  # fmt: skip
RecomputeMethod = Literal["uniform", "block"]
AttentionName = Literal["eager", "flash", "flash-1", "flash-2", "flash-3", "flash-4", "cudnn"]
StackName = Literal["megatron-core", "torchtitan", "fsdp1", "deepspeed", "nanotron", "transformers"]
ImplementationName = Literal["transformer-engine", "local", "eager", "compiled"]
CrossEntropyName = Literal[
    "eager", "compiled", "chunked", "loss-parallel", "vocab-parallel", "vocab-parallel-fp32", "fused",
    "transformer-engine", "eager-half", "flash-attention",
]  # fmt: skip
DispatcherName = Literal["alltoall", "allgather", "flex"]
ScheduleName = Literal["gpipe", "1f1b", "interleaved-1f1b", "zero-bubble", "dualpipe"]
ContextMethod = Literal["ring", "all-gather", "ulysses"]
RankOrder = Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]
OffloadName = Literal["none", "optimizer", "activations", "optimizer-and-activations", "model"]
BatchingName = Literal["packed", "padded"]
MethodName = Literal["full", "lora", "qlora"]
QuantizationName = Literal["nf4", "nf4-double", "gptq"]
MomentDtype = Literal["fp32", "bf16", "fp16", "fp8"]
MasterDtype = Literal["fp32", "bf16", "fp16"]
PartName = Literal["embedding", "norms", "attention", "mlp", "experts", "router", "head"]
MatrixName = Literal[
    "q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
    "gate_proj", "up_proj", "down_proj", "in_proj", "x_proj", "dt_proj", "out_proj", "lm_head",
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
