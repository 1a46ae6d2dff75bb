"""verl: its fine-tuning with FSDP, by Hydra's changes or a file; training by rewards is refused by name.

Source: volcengine/verl@v0.6.1 verl/trainer/fsdp_sft_trainer.py, verl/trainer/config/sft_trainer.yaml (defaults);
verl-project/verl@1dda039b verl/trainer/config/sft_trainer_engine.yaml (the trainer after it).
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from service.formats import drafts, rules
from service.formats.composed import started
from service.formats.frameworks import trainer
from service.formats.text import Entry
from service.text_bounds import refusal

_TABLE = rules.framework_table("verl", *drafts.FATES, "trainings")

FATES = drafts.fates_of({}, _TABLE, trainer.refused_trainings(_TABLE["trainings"]))

_DTYPES = {
    "fp32": "fp32",
    "float32": "fp32",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
}
"""Formats of the weights by their names."""

_FULLY_SHARDED = {
    "fsdp2": {"version": 2, "reshard_after_forward": True},
    "fsdp": {"version": 1, "sharding_strategy": "FULL_SHARD"},
}


def read_verl(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a fine-tuning's settings."""
    begun = started(entries)
    if begun.program.startswith("verl.") and "sft" not in begun.program:
        place = next(entry.place for entry in entries if entry.name == "program")
        what, fix = (
            next(iter(_TABLE["trainings"])),
            "state the question itself: the model that is trained, as pretraining",
        )
        raise refusal(place, "not_estimated", f"the program is about {what}, which is not estimated", fix)
    draft = drafts.draft_of(begun.entries, FATES)
    trainer.refuse_trainings(draft, _TABLE["trainings"])
    if "data.micro_batch_size" in draft.fates and "data.micro_batch_size_per_gpu" not in draft.settings:
        draft.assumptions.append(
            "micro_batch_size_per_gpu is 4, as verl has it: releases of today read no micro_batch_size, and earlier "
            "ones share it out over all ranks"
        )
    training = trainer.Training(
        model=draft.get("model.partial_pretrain", draft.get("model.path")),
        model_setting="model.partial_pretrain",
        sequence_length=draft.get("data.max_length", 1024),
        micro_batch=draft.get("data.micro_batch_size_per_gpu", 4),
        steps=draft.get("trainer.total_training_steps"),
        autocast="bf16",
        weights=draft.chosen("model.fsdp_config.model_dtype", _DTYPES, "fp32"),
        is_fused=False,
        recomputes=draft.get("model.enable_gradient_checkpointing", True),
        method=_method(draft),
        liger=draft.get("model.use_liger", False),
        liger_setting="model.use_liger",
        liger_loss=False,
        fsdp=_fsdp(draft),
    )
    trainer.put_training(draft, training, (), ())
    _put_batch(draft, begun.processes)
    if begun.program.endswith(".sft_trainer"):
        draft.not_understood("data.use_dynamic_bsz", "each GPU takes as many tokens as fit a bound, not sequences")
    return draft


def _fsdp(draft: drafts.Draft) -> dict[str, Any]:
    shards = draft.chosen("model.strategy", _FULLY_SHARDED, "fsdp2")
    offloads = draft.get("model.fsdp_config.cpu_offload") and draft.get("model.fsdp_config.offload_params")
    policy = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    return {**shards, **policy, **({"offload_params": True} if offloads else {})}


def _method(draft: drafts.Draft) -> dict[str, Any]:
    rank = draft.get("model.lora_rank", 0)
    if rank <= 0:
        for name in ("model.lora_alpha", "model.target_modules"):
            draft.without_effect(name, "there are no adapters")
        return {"name": "full"}
    targets = [word.strip("[]'\"") for word in draft.get("model.target_modules", ("all-linear",))]
    adapters = trainer.Adapters(rank=rank, targets=targets, targets_setting="model.target_modules")
    return trainer.method_of(draft, adapters)


def _put_batch(draft: drafts.Draft, processes: int | None) -> None:
    """The batch of all replicas, and ranks that share a sequence."""
    recipe, layout = draft.recipe, draft.layout
    together = draft.get("ulysses_sequence_parallel_size", draft.get("engine.ulysses_sequence_parallel_size", 1))
    if together > 1:
        layout |= {"context": together, "context_method": "ulysses"}
    nodes, each = draft.get("trainer.nnodes"), draft.get("trainer.n_gpus_per_node")
    gpus = processes or (prod((nodes or 1, each)) if each else None)
    if gpus and gpus % together == 0:
        layout["data"] = gpus // together
        draft.assumptions = [note for note in draft.assumptions if "number of processes" not in note]
    recipe["global_batch"] = draft.get("data.train_batch_size", 256)
    draft.accumulation_steps = None
    if draft.training_steps:
        recipe["training_tokens"] = float(draft.training_steps * recipe["global_batch"] * recipe["sequence_length"])
        draft.training_steps = None
