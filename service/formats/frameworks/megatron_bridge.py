"""Megatron-Bridge: a Python function that fills in a recipe's configuration.

The rules are Megatron-LM's: Bridge configures the same Megatron-Core, by attributes instead of options.

Source: NVIDIA-NeMo/Megatron-Bridge@067f987 src/megatron/bridge/training/config.py, training/mixed_precision.py,
models/gpt_provider.py; NVIDIA/Megatron-LM@d98e8a64 for the fields that these inherit.
"""

import json
from collections.abc import Mapping
from typing import Any

from service.formats.frameworks.megatron import RULES as MEGATRON_RULES
from service.formats.frameworks.megatron import environment_notes
from service.formats.rules import (
    ExportedFile,
    ExportRequest,
    Rules,
    Target,
    Version,
    apply_rules,
    chooses,
    only,
    values_of,
    writes,
)
from service.formats.text import Settings

_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16", "fp8": "torch.uint8"}

_PRECISIONS = {
    "bf16-mixed": "bf16_mixed",
    "fp16-mixed": "fp16_mixed",
    "fp8-tensorwise": "bf16_with_fp8_current_scaling_mixed",
    "fp8-blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}

_OWN_NAMES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "group-query-attention": (),
    "max-position-embeddings": (),
    "swiglu": (("model.gated_linear_unit", "True"), ("model.activation_func", "torch.nn.functional.silu")),
    "untie-embeddings-and-output-weights": (("model.share_embeddings_and_output_weights", "False"),),
    "disable-bias-linear": (("model.add_bias_linear", "False"),),
    "grad-reduce-in-bf16": (("ddp.grad_reduce_in_fp32", "False"),),
    "accumulate-allreduce-grads-in-fp32": (("ddp.grad_reduce_in_fp32", "True"),),
    "no-check-for-nan-in-loss-and-grad": (
        ("rerun_state_machine.check_for_nan_in_loss", "False"),
        ("ddp.check_for_nan_in_grad", "False"),
    ),
    "no-gradient-accumulation-fusion": (("model.gradient_accumulation_fusion", "False"),),
    "no-create-attention-mask-in-dataloader": (("dataset.create_attention_mask", "False"),),
    "use-flash-attn": (("model.attention_backend", "AttnBackend.flash"),),
    "use-distributed-optimizer": (
        ("ddp.use_distributed_optimizer", "True"),
        ("optimizer.use_distributed_optimizer", "True"),
    ),
}
"""Options that are several attributes, another's opposite, or none: attributes with their values as Python."""

_RENAMED = {
    "num-experts": "model.num_moe_experts",
    "num-virtual-stages-per-pipeline-rank": "model.virtual_pipeline_model_parallel_size",
    "microbatch-group-size-per-virtual-pipeline-stage": "model.microbatch_group_size_per_vp_stage",
    "optimizer": "optimizer.optimizer",
}
"""Options whose attribute has another name."""

_ROOMS = {
    "dist": ("use_tp_pp_dp_mapping",),
    "train": ("micro_batch_size", "global_batch_size", "train_samples"),
    "ddp": ("use_megatron_fsdp", "data_parallel_sharding_strategy", "num_distributed_optimizer_instances"),
    "optimizer": (
        *("use_precision_aware_optimizer", "exp_avg_dtype", "exp_avg_sq_dtype", "main_params_dtype"),
        "optimizer_cpu_offload",
    ),
    "checkpoint": ("ckpt_format",),
}
"""Attributes outside the model, by the part of the configuration that has them."""

_UNASKED = {
    **dict.fromkeys(
        (
            *("model.sequence_parallel", "model.account_for_embedding_in_pipeline_split"),
            *("model.account_for_loss_in_pipeline_split", "model.cross_entropy_loss_fusion", "model.tp_comm_overlap"),
            *("model.overlap_moe_expert_parallel_comm", "model.deterministic_mode", "ddp.use_megatron_fsdp"),
            *("model.fine_grained_activation_offloading", "optimizer.optimizer_cpu_offload"),
            *("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer"),
            "optimizer.use_precision_aware_optimizer",
        ),
        "False",
    ),
    **dict.fromkeys(
        (
            *("model.virtual_pipeline_model_parallel_size", "model.pipeline_model_parallel_layout"),
            *("model.recompute_granularity", "model.recompute_method", "model.recompute_num_layers"),
        ),
        "None",
    ),
    "ddp.num_distributed_optimizer_instances": "1",
    "model.cuda_graph_impl": '"none"',
}
"""Values of attributes that the question leaves alone but the recipe under it may set."""


def _attribute(option: str) -> str:
    if option in _RENAMED:
        return _RENAMED[option]
    name = option.replace("-", "_")
    room = next((room for room, names in _ROOMS.items() if name in names), "model")
    return f"{room}.{name}"


def _python(option: str, value: Any) -> str:
    if option.endswith("-dtype"):
        return _DTYPES[value]
    if option == "attention-backend":
        return f"AttnBackend.{value}"
    if option in ("window-size", "moe-layer-freq"):
        return f"({value})" if option == "window-size" else str(value)
    if isinstance(value, list | tuple):
        return json.dumps(list(value))
    return repr(value) if isinstance(value, bool) else json.dumps(value)


def attributes_of(settings: Settings) -> dict[str, str]:
    """Megatron-LM's options as attributes of Bridge's configuration.

    >>> attributes_of((("swiglu", True), ("micro-batch-size", 2)))["train.micro_batch_size"]
    '2'
    """
    found: dict[str, str] = {}
    for option, value in settings:
        if option in _OWN_NAMES:
            found |= dict(_OWN_NAMES[option])
        elif option == "seq-length":
            found |= {"model.seq_length": str(value), "dataset.seq_length": str(value)}
        elif option == "mixed_precision":
            found["mixed_precision"] = "None" if value is None else json.dumps(value)
        else:
            found[_attribute(option)] = _python(option, value)
    return found


_IN_SCRIPT = "set it where the script makes the configuration"

RULES: Rules = {
    **MEGATRON_RULES,
    "recipe.precision": chooses(
        {
            "fp32": {"mixed_precision": None},
            **{name: {"mixed_precision": recipe} for name, recipe in _PRECISIONS.items()},
        },
        "Megatron-Bridge has no precision recipe for {value}",
        "choose one that it has",
    ),
    "recipe.fp8_weights": only((False,), "it belongs to the precision recipe, which is only named", _IN_SCRIPT),
    "recipe.vocabulary_multiple": writes("make-vocab-size-divisible-by"),
}
"""Rules of every field, in Megatron-LM's names."""


def _write(request: ExportRequest) -> ExportedFile:
    fragment, gaps = apply_rules(RULES, values_of(request.question), request.question)
    attributes = _UNASKED | attributes_of(fragment.settings)
    imports = ["import torch"] if any("torch." in value for value in attributes.values()) else []
    imports.append("from megatron.bridge.training.config import ConfigContainer")
    if "AttnBackend" in attributes.get("model.attention_backend", ""):
        imports.append("from megatron.core.transformer.enums import AttnBackend")
    lines = [f"    cfg.{name} = {value}" for name, value in attributes.items()]
    head = '"""Settings for Megatron-Bridge: pass a recipe\'s configuration through configure()."""\n'
    body = ["def configure(cfg: ConfigContainer) -> ConfigContainer:", *lines, "    return cfg"]
    content = "\n".join((head, *imports, "", "", *body)) + "\n"
    note = ["the configuration comes from a recipe, or from AutoBridge for a model of Hugging Face"]
    note += environment_notes(request.question)
    return ExportedFile(content=content, not_expressible=gaps, assumptions=(*fragment.assumptions, *note))


MEGATRON_BRIDGE = Target(
    name="megatron-bridge",
    tool="Megatron-Bridge",
    kind="training",
    versions={
        "0.7": Version(
            covers="main at 067f987: a function over a ConfigContainer",
            file_name="configure.py",
            media_type="text/x-python",
            rules=RULES,
        )
    },
    write=_write,
    source="NVIDIA-NeMo/Megatron-Bridge@067f987 src/megatron/bridge/training/config.py",
)
