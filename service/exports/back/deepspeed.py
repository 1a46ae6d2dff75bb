"""What does a JSON file of DeepSpeed say? Batches, formats and how states are sharded; the rest is the script's.

Source: DeepSpeed 0.19.8 runtime/config.py, runtime/zero/config.py, runtime/precision_config.py, defaults included.
"""

from collections.abc import Sequence

from service.exports.back.draft import Draft, Form, drafted, text, truth, whole
from service.exports.back.entries import Entry

FORMS: dict[str, Form] = {
    **dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), whole),
    **dict.fromkeys(("zero_optimization.stage", "sequence_parallel_size"), whole),
    **dict.fromkeys(("tensor_parallel.autotp_size", "pipeline.stages"), whole),
    **dict.fromkeys(("zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"), text),
    **dict.fromkeys(("bf16.enabled", "fp16.enabled", "bf16.bf16_master_weights_and_grads"), truth),
    **dict.fromkeys(("bf16.bf16_optimizer_states", "fp16.fp16_master_weights_and_grads"), truth),
    "data_types.grad_accum_dtype": text,
    "optimizer.type": text,
    "activation_checkpointing.number_checkpoints": whole,
    "activation_checkpointing.cpu_checkpointing": truth,
}
"""Settings that are read."""

UNREAD = (
    "activation_checkpointing.contiguous", "activation_checkpointing.partition", "activation_checkpointing.profile",
    "activation_checkpointing.synchronize", "bf16.", "checkpoint", "comms_logger", "csv_monitor", "flops_profiler",
    "fp16.", "gradient_clipping", "optimizer.", "prescale_gradients", "scheduler", "steps_per_print", "tensorboard",
    "wall_clock_breakdown", "wandb", "zero_allow_untested_optimizer", "zero_optimization.allgather",
    "zero_optimization.contiguous", "zero_optimization.offload", "zero_optimization.overlap",
    "zero_optimization.reduce", "zero_optimization.round_robin", "zero_optimization.stage3_",
    "zero_optimization.sub_group_size",
)  # fmt: skip
"""How settings begin that say nothing of a recipe or a layout."""


def read_deepspeed(entries: Sequence[Entry]) -> Draft:
    """What a file of DeepSpeed says.

    Args:
        entries: its settings

    Returns:
        recipe and layout

    Raises:
        Refused: a value is none that is understood
    """
    draft = drafted(entries, FORMS, UNREAD)
    layout, recipe = draft.layout, draft.recipe
    layout["zero_stage"] = draft.chosen("zero_optimization.stage", {stage: stage for stage in range(4)}, 0)
    layout["tensor"] = max(1, draft.get("tensor_parallel.autotp_size", 1))
    layout["pipeline"] = max(1, draft.get("pipeline.stages", 1))
    layout["context"] = max(1, draft.get("sequence_parallel_size", 1))
    if layout["context"] > 1:
        layout["context_method"] = "ulysses"
    _put_batch(draft)
    _put_numbers(draft)
    recomputes = "activation_checkpointing.number_checkpoints" in draft.settings
    recipe["recompute"] = "full" if recomputes else "none"
    devices = {"none": False, "cpu": True, "nvme": True}
    weights = draft.chosen("zero_optimization.offload_param.device", devices, "none")
    states = draft.chosen("zero_optimization.offload_optimizer.device", devices, "none")
    kept = draft.get("activation_checkpointing.cpu_checkpointing", False)
    both = "optimizer-and-activations" if states else "activations"
    layout["offload"] = "model" if weights else both if kept else "optimizer" if states else "none"
    recipe["stack"] = {"name": "deepspeed"}
    draft.assumptions.append("model, sequence length and tokens are the script's: give model and sequence_length")
    return draft


def _put_batch(draft: Draft) -> None:
    recipe = draft.recipe
    micro = draft.get("train_micro_batch_size_per_gpu")
    whole_batch, steps = draft.get("train_batch_size"), draft.get("gradient_accumulation_steps")
    if micro:
        recipe["micro_batch"] = micro
    if whole_batch:
        recipe["global_batch"] = whole_batch
    if whole_batch and micro and steps:
        data, left = divmod(whole_batch, micro * steps)
        if left or not data:
            message = "is no multiple of micro batch and accumulation, so no number of replicas goes with it"
            fix = f"make it a multiple of {micro * steps}"
            raise draft.wrong("train_batch_size", "batch_divides", message, fix)
        draft.layout["data"] = data
    else:
        draft.assumptions.append("the file leaves one of its batches open: data follows from the cluster's gpus")


def _put_numbers(draft: Draft) -> None:
    recipe = draft.recipe
    half = "fp16" if draft.get("fp16.enabled") else "bf16" if draft.get("bf16.enabled") else None
    master = half and draft.get(f"{half}.{half}_master_weights_and_grads")
    states = draft.get("bf16.bf16_optimizer_states")
    recipe["precision"] = "fp32" if half is None else half if master and states else f"{half}-mixed"
    if master and not states:
        recipe["master_dtype"] = half
    names = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    if "data_types.grad_accum_dtype" in draft.settings:
        recipe["gradient_dtype"] = draft.chosen("data_types.grad_accum_dtype", names, "fp32")
    kinds = {"AdamW": "adamw", "Adam": "adamw", "Lion": "lion", "Muon": "muon"}
    if "optimizer.type" in draft.settings:
        recipe["optimizer"] = draft.chosen("optimizer.type", kinds, "AdamW")
