"""What does a YAML file of accelerate say? How a script's model is spread over processes.

Source: accelerate 1.15.0 commands/config/config_args.py, commands/launch.py, utils/dataclasses.py, defaults included.
"""

from collections.abc import Sequence

from service.exports.back.draft import Draft, Form, drafted, text, truth, whole
from service.exports.back.entries import Entry

_FSDP = "fsdp_config.fsdp_"
_AT = "parallelism_config.parallelism_config_"

FORMS: dict[str, Form] = {
    "distributed_type": text,
    "mixed_precision": text,
    "num_processes": whole,
    f"{_FSDP}version": whole,
    **dict.fromkeys((f"{_FSDP}activation_checkpointing", f"{_FSDP}offload_params"), truth),
    f"{_FSDP}sharding_strategy": text,
    f"{_FSDP}reshard_after_forward": truth,
    **dict.fromkeys((f"{_AT}{name}_size" for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")), whole),
    **dict.fromkeys((f"{_AT}cp_comm_strategy", f"{_AT}sp_backend", "dynamo_config.dynamo_backend"), text),
}
"""Settings that are read."""

UNREAD = (
    "commands", "compute_environment", "debug", "downcast_bf16", "dynamo_config.", "enable_cpu_affinity", "gpu_ids",
    "machine_rank", "main_", "num_machines", "rdzv_backend", "same_network", "tpu_", "use_cpu",
    *(f"{_FSDP}{name}" for name in (
        "auto_wrap_policy", "backward_prefetch", "cpu_ram", "forward_prefetch", "min_num_params", "state_dict",
        "sync_module_states", "transformer_layer", "use_orig_params",
    )),
)  # fmt: skip
"""How settings begin that say nothing of a recipe or a layout."""


def read_accelerate(entries: Sequence[Entry]) -> Draft:
    """What a file of accelerate says.

    Args:
        entries: its settings

    Returns:
        recipe and layout

    Raises:
        Refused: a value is none that is understood
    """
    draft = drafted(entries, FORMS, UNREAD)
    layout, recipe = draft.layout, draft.recipe
    kinds = {"FSDP": True, "MULTI_GPU": False, "NO": False}
    sharded = draft.chosen("distributed_type", kinds, "NO")
    layout["tensor"] = draft.get(f"{_AT}tp_size", 1)
    whole_context, heads = draft.get(f"{_AT}cp_size", 1), draft.get(f"{_AT}sp_size", 1)
    layout["context"] = max(whole_context, heads, 1)
    if heads > 1:
        layout["context_method"] = "ulysses"
    elif whole_context > 1:
        methods = {"allgather": "all-gather", "alltoall": "ring"}
        layout["context_method"] = draft.chosen(f"{_AT}cp_comm_strategy", methods, "allgather")
    _put_replicas(draft, sharded=sharded)
    layout["offload"] = "model" if draft.get(f"{_FSDP}offload_params") else "none"
    formats = {"no": "fp32", "bf16": "bf16-mixed", "fp16": "fp16-mixed"}
    if "mixed_precision" in draft.settings:
        recipe["precision"] = draft.chosen("mixed_precision", formats, "no")
    recipe["recompute"] = "full" if draft.get(f"{_FSDP}activation_checkpointing") else "none"
    old = sharded and draft.get(f"{_FSDP}version", 1) == 1
    compiled = draft.get("dynamo_config.dynamo_backend", "NO").upper() == "INDUCTOR"
    own = {"implementation": "compiled"} if compiled and not old else {}
    recipe["stack"] = {"name": "fsdp1" if old else "transformers", **own}
    if compiled and not own:
        draft.assumptions.append("operations are compiled, which the estimate of this stack does not know")
    told = "model, sequence length, batches and optimizer are the script's: give model, sequence_length and the batches"
    draft.assumptions.append(told)
    return draft


def _put_replicas(draft: Draft, *, sharded: bool) -> None:
    layout = draft.layout
    replicas, shards = draft.get(f"{_AT}dp_replicate_size", 1), draft.get(f"{_AT}dp_shard_size")
    processes = draft.get("num_processes", -1)
    model_ranks = layout["tensor"] * layout["context"]
    if shards:
        layout["data"] = replicas * shards
    elif processes > 0 and processes % model_ranks == 0:
        layout["data"] = processes // model_ranks
    else:
        draft.assumptions.append("the number of processes is not in the file: data follows from the cluster's gpus")
    layout["zero_stage"] = 3 if sharded and (shards is None or shards > 1 or layout["context"] > 1) else 0
    if layout["zero_stage"] == 3 and shards and replicas > 1:
        layout["shard_group"] = shards * layout["context"]
    if layout["zero_stage"] == 3:
        keeps = draft.get(f"{_FSDP}sharding_strategy", "FULL_SHARD") in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
        layout["reshard_after_forward"] = draft.get(f"{_FSDP}reshard_after_forward", not keeps)
    if "HYBRID" in draft.get(f"{_FSDP}sharding_strategy", ""):
        draft.assumptions.append("groups are the nodes: set shard_group to the GPUs of a node")
