"""What does a TOML file of torchtitan say? A recipe, a layout, and the model where its registry's name is known.

Source: torchtitan 0.2.2 config/job_config.py, its defaults included.
"""

from collections.abc import Sequence
from typing import Any

from service.exports.back.draft import Draft, Form, drafted, text, truth, whole, words
from service.exports.back.entries import Entry
from service.exports.training.torchtitan_models import Registered, registered_as
from service.exports.training.torchtitan_stages import SCHEDULES

_AT = "parallelism."
_DEGREES = {
    "tensor": "tensor_parallel_degree",
    "context": "context_parallel_degree",
    "pipeline": "pipeline_parallel_degree",
    "expert": "expert_parallel_degree",
}

FORMS: dict[str, Form] = {
    **dict.fromkeys((f"{_AT}{name}" for name in _DEGREES.values()), whole),
    **dict.fromkeys((f"{_AT}data_parallel_replicate_degree", f"{_AT}data_parallel_shard_degree"), whole),
    f"{_AT}expert_tensor_parallel_degree": whole,
    f"{_AT}pipeline_parallel_microbatch_size": whole,
    f"{_AT}pipeline_parallel_layers_per_stage": whole,
    f"{_AT}pipeline_parallel_first_stage_less_layers": whole,
    f"{_AT}pipeline_parallel_last_stage_less_layers": whole,
    f"{_AT}module_fqns_per_model_part": words,
    **dict.fromkeys((f"{_AT}pipeline_parallel_schedule", f"{_AT}fsdp_reshard_after_forward"), text),
    f"{_AT}context_parallel_rotate_method": text,
    f"{_AT}enable_async_tensor_parallel": truth,
    **dict.fromkeys(("training.local_batch_size", "training.global_batch_size"), whole),
    **dict.fromkeys(("training.seq_len", "training.steps"), whole),
    **dict.fromkeys(("training.dtype", "training.mixed_precision_param"), text),
    "training.enable_cpu_offload": truth,
    **dict.fromkeys(("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"), text),
    "compile.enable": truth,
    "compile.components": words,
    "debug.deterministic": truth,
    **dict.fromkeys(("optimizer.name", "optimizer.implementation"), text),
    **dict.fromkeys(("model.name", "model.flavor"), text),
}
"""Settings that are read."""

UNREAD = (
    "checkpoint.", "comm.", "debug.", "fault_tolerance.", "job.", "lr_scheduler.", "memory_estimation.", "metrics.",
    "model.hf_assets_path", "model.tokenizer_path", "optimizer.", "profiling.", "training.dataset", "training.gc",
    "training.max_norm", "training.mixed_precision_reduce", "training.dataloader", "validation.",
)  # fmt: skip
"""How settings begin that say nothing of a recipe or a layout."""


def read_torchtitan(entries: Sequence[Entry]) -> Draft:
    """What a file of torchtitan says.

    Args:
        entries: its settings

    Returns:
        recipe, layout and model

    Raises:
        Refused: a value is none that is understood
    """
    draft = drafted(entries, FORMS, UNREAD)
    draft.layout.update({field: draft.get(f"{_AT}{name}", 1) for field, name in _DEGREES.items()})
    _put_replicas(draft)
    known = registered_as(draft.get("model.name", "llama3"), draft.get("model.flavor", "debugmodel"))
    _put_stages(draft, known)
    _put_batch(draft)
    _put_numbers(draft)
    draft.model = None if known is None else known.slug
    if known is None:
        draft.assumptions.append("no model: its sizes are in torchtitan's registry, under a name not known here")
    return draft


def _put_replicas(draft: Draft) -> None:
    layout = draft.layout
    replicas = draft.get(f"{_AT}data_parallel_replicate_degree", 1)
    shards = draft.get(f"{_AT}data_parallel_shard_degree", -1)
    layout["zero_stage"] = 0 if shards == 1 and layout["context"] == 1 else 3
    if shards > 0:
        layout["data"] = replicas * shards
        if layout["zero_stage"] == 3:
            layout["shard_group"] = shards * layout["context"]
    else:
        draft.assumptions.append("data_parallel_shard_degree is what is left: data follows from the cluster's gpus")
        if replicas > 1:
            draft.assumptions.append("weights are held by several groups of replicas: set shard_group")
    kinds = {"always": True, "never": False, "default": layout["pipeline"] == 1}
    reshard = draft.chosen(f"{_AT}fsdp_reshard_after_forward", kinds, "default")
    layout["reshard_after_forward"] = reshard and layout["zero_stage"] == 3
    if layout["context"] > 1:
        methods = {"allgather": "all-gather", "alltoall": "ring"}
        layout["context_method"] = draft.chosen(f"{_AT}context_parallel_rotate_method", methods, "allgather")
    if layout["expert"] > 1:
        layout["expert_tensor"] = draft.get(f"{_AT}expert_tensor_parallel_degree", 1)
    layout["offload"] = "model" if draft.get("training.enable_cpu_offload") else "none"


def _put_stages(draft: Draft, known: Registered | None) -> None:
    layout = draft.layout
    if layout["pipeline"] == 1:
        return
    names = {name: field for field, name in SCHEDULES.items()}
    layout["schedule"] = draft.chosen(f"{_AT}pipeline_parallel_schedule", names, "1F1B")
    layout["embedding_in_split"] = draft.get(f"{_AT}pipeline_parallel_first_stage_less_layers", 1) > 0
    layout["loss_in_split"] = draft.get(f"{_AT}pipeline_parallel_last_stage_less_layers", 1) > 0
    chunks = draft.get(f"{_AT}module_fqns_per_model_part")
    if chunks:
        layout["stage_layers"] = [_layers(chunk) for chunk in chunks]
        layout["embedding_in_split"] = layout["loss_in_split"] = False
        layout["virtual_pipeline"] = max(1, len(chunks) // layout["pipeline"])
    elif layout["schedule"] == "interleaved-1f1b":
        layout["virtual_pipeline"] = 2
        each = draft.get(f"{_AT}pipeline_parallel_layers_per_stage")
        if each and known:
            ends = layout["embedding_in_split"] + layout["loss_in_split"]
            layout["virtual_pipeline"] = max(1, (known.sizes[0] + ends) // (each * layout["pipeline"]))
        elif each:
            draft.assumptions.append("2 chunks a stage: more follow from the model's layers, which are not known here")


def _layers(chunk: Any) -> int:
    return sum(str(name).startswith("layers.") for name in chunk) if isinstance(chunk, list | tuple) else 0


def _put_batch(draft: Draft) -> None:
    recipe, layout = draft.recipe, draft.layout
    local = draft.get("training.local_batch_size", 8)
    cut = draft.get(f"{_AT}pipeline_parallel_microbatch_size", 1)
    recipe["micro_batch"] = cut if layout["pipeline"] > 1 else local
    whole_batch = draft.get("training.global_batch_size", -1)
    if whole_batch > 0:
        recipe["global_batch"] = whole_batch
    elif "data" in layout:
        recipe["global_batch"] = local * layout["data"]
    recipe["sequence_length"] = draft.get("training.seq_len", 2048)
    if "global_batch" in recipe and "training.steps" in draft.settings:
        tokens = draft.get("training.steps") * recipe["global_batch"] * recipe["sequence_length"]
        recipe["training_tokens"] = float(tokens)
    mode = draft.get("activation_checkpoint.mode", "selective")
    if mode == "selective":
        option = draft.get("activation_checkpoint.selective_ac_option", "2")
        if option != "op":
            draft.assumptions.append("selective_ac_option counts layers; recompute by operation is assumed")
        recipe["recompute"] = {"granularity": "selective", "modules": ["op"]}
    else:
        recipe["recompute"] = draft.chosen("activation_checkpoint.mode", {"full": "full", "none": "none"}, "none")


def _put_numbers(draft: Draft) -> None:
    recipe = draft.recipe
    dtypes = {"bfloat16": "bf16", "float32": "fp32"}
    mixed = "bf16-mixed" if draft.chosen("training.mixed_precision_param", dtypes, "bfloat16") == "bf16" else "fp32"
    recipe["precision"] = "bf16" if draft.chosen("training.dtype", dtypes, "float32") == "bf16" else mixed
    recipe["optimizer"] = draft.chosen("optimizer.name", {"AdamW": "adamw"}, "AdamW")
    parts = draft.get("compile.components", ("model", "loss")) if draft.get("compile.enable") else ()
    kernels = {"fused": True, "foreach": False, "for-loop": False}
    recipe["stack"] = {
        "name": "torchtitan",
        "implementation": "compiled" if "model" in parts else "eager",
        "cross_entropy": "compiled" if "loss" in parts else "eager",
        "fused_update": draft.chosen("optimizer.implementation", kernels, "fused"),
        "deterministic": draft.get("debug.deterministic", False),
        "tensor_overlap": draft.get(f"{_AT}enable_async_tensor_parallel", False),
    }
