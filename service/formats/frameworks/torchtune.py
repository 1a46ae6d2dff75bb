"""torchtune: the YAML of its recipes, and `tune run`, which changes settings of one.

Source: pytorch/torchtune@bd2a0fc recipes (what each reads, and its defaults), training/_distributed.py (FSDP2: layers
one by one, all else in the root unless custom_sharded_layers names it), training/activations.py (one layer in n),
modules/attention.py (keys and values for each query head), __init__.py (segments that grow), models (builders).
"""

import re
from collections.abc import Sequence
from typing import Any

from service.estimator.degrees import WEIGHTS
from service.formats import drafts, rules
from service.formats.composed import PROGRAM, Started, started
from service.formats.frameworks import trainer
from service.formats.model_names import named_model
from service.formats.text import Entry

_TABLE = rules.framework_table("torchtune", *drafts.FATES, "earlier", "trainings", "models")
FATES = drafts.fates_of({}, _TABLE, trainer.refused_trainings(_TABLE["trainings"]))

MODELS: dict[str, str] = _TABLE["models"]
"""Rows of the catalogue by builder."""

_COMPONENT = "model._component_"
_BUILDER = re.compile(r"torchtune\.models\.\w+\.((?:q?lora_)?)(\w+?)(?:_base|_instruct)?\Z")
_SIZED = ("llama2", "llama3", "llama3_1", "llama3_2", "mistral")
"""Builders whose sizes the file gives."""

_SIZES = {
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "embed_dim": "hidden_size",
}
_OTHERS = {
    "vision": "a model of images beside the language model",
    "llama4": "a model of images beside the language model",
    "clip": "a model that is no language model",
    "flux": "a model that is no language model",
    "t5": "a model that is no language model",
    "reward": "reward modelling, which reads a chosen and a rejected answer at once",
    "classifier": "reward modelling or classification",
}
"""What a part of a builder's name tells of."""

_RECIPES = {
    "dpo": "training by preference (DPO), with two answers at once and often a second, frozen model",
    "ppo": "training by rewards (PPO), with answers that the model generates while it trains",
    "grpo": "training by rewards (GRPO), with answers that the model generates while it trains",
    "knowledge_distillation": "distillation from a second model",
    "qat": "training with weights that are rounded",
}
"""What a part of a recipe's name tells of."""

_TRAINS_NOTHING = ("generate", "eval", "quantize")

_OPTIMIZERS = {
    **dict.fromkeys(("AdamW", "PagedAdamW", "PagedAdamW32bit", "AdamW32bit"), "adamw"),
    **dict.fromkeys(("AdamW8bit", "PagedAdamW8bit"), "adamw-8bit"),
    **dict.fromkeys(("Lion", "PagedLion"), "lion"),
    **{"Adam": "adam", "SGD": "sgd", "RMSprop": "rmsprop", "Adafactor": "adafactor"},
}
"""Optimizers by their classes in torch.optim, bitsandbytes.optim and torchao."""

_LOSSES = {
    "torchtune.modules.loss.LinearCrossEntropyLoss": "chunked",
    "torchtune.modules.loss.CEWithChunkedOutputLoss": "chunked-outputs",
    "torch.nn.CrossEntropyLoss": "eager",
}

_MATRICES = {"output_proj": "o_proj"}
_MLP = ("gate_proj", "up_proj", "down_proj")

_JOINED_ENDS, _ENDS_APART = "2025.7", "2025.8"
"""Months in which torchtitan gathered embedding and head as torchtune does without and with custom_sharded_layers."""


def read_torchtune(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a recipe's file."""
    run = started(entries)
    draft = drafts.draft_of(run.entries, FATES)
    _refuse_others(draft, run)
    _put_layout(draft, run)
    _put_model(draft)
    _put_batch(draft)
    recipe = draft.recipe
    recipe["optimizer"] = _optimizer(draft)
    recipe["precision"] = draft.chosen("dtype", {"bf16": "bf16-pure", "fp32": "fp32"}, "bf16")
    recipe["method"] = method = _method(draft)
    recipe["recompute"] = _recompute(draft)
    recipe["stack"] = _software(draft, is_quantized=isinstance(method, dict) and method["name"] == "qlora")
    return draft


def _refuse_others(draft: drafts.Draft, run: Started) -> None:
    """Refuse recipes that are not estimated, or that train nothing."""
    is_training = any(name.endswith("optimizer._component_") for name in draft.fates)
    if not is_training or any(part in run.program for part in _TRAINS_NOTHING):
        message = "stands in a file without an optimizer, or beside a recipe that trains nothing"
        raise draft.wrong(_COMPONENT, "no_training", message, "send the file of a recipe that trains")
    trainer.refuse_trainings(draft, _TABLE["trainings"])
    for part, what in _RECIPES.items():
        if part in run.program:
            raise trainer.not_estimated(draft, PROGRAM, what)
    loss = draft.get("loss._component_", "")
    if loss.startswith("torchtune.rlhf"):
        kind = "training by rewards" if re.search("PPO|GRPO", loss) else "training by preference (DPO and its kin)"
        raise trainer.not_estimated(draft, "loss._component_", kind)
    builder = draft.get(_COMPONENT, "")
    for part, what in _OTHERS.items():
        if builder.startswith("torchtune.models.") and part in builder:
            raise trainer.not_estimated(draft, _COMPONENT, what)


def _put_layout(draft: drafts.Draft, run: Started) -> None:
    layout = draft.layout
    layout["tensor"] = tensor = draft.get("tensor_parallel_dim", 1)
    layout["context"] = context = draft.get("context_parallel_dim", 1)
    replicas, shards = draft.get("data_parallel_replicate_dim", 1), draft.get("data_parallel_shard_dim", -1)
    processes = 1 if "single_device" in run.program else run.processes
    if shards < 0 and processes is not None:
        shards = max(1, processes // max(1, tensor * context * replicas))
    layout["zero_stage"] = 0 if shards == 1 and context == 1 else 3
    if shards > 0:
        layout["data"] = replicas * shards
        if layout["zero_stage"] == WEIGHTS and replicas > 1:
            layout["shard_group"] = shards * context
    else:
        draft.shard_groups = replicas if replicas > 1 else None
        draft.assumptions.append(
            "all GPUs shard the model, as torchtune's distributed recipes have it; its others run on one GPU"
        )
    layout["reshard_after_forward"] = layout["zero_stage"] == WEIGHTS and draft.get("fsdp_reshard_after_forward", True)
    if context > 1:
        methods = {"allgather": "all-gather", "alltoall": "ring"}
        layout["context_method"] = draft.chosen("context_parallel_rotate_method", methods, "allgather")
    activations = draft.get("enable_activation_offloading", False)
    layout["offload"] = "activations" if activations else "none"
    if draft.get("fsdp_cpu_offload"):
        layout["offload"] = "model"
        if activations:
            draft.not_understood("enable_activation_offloading", "activations wait in host memory beside the weights")


def _put_model(draft: drafts.Draft) -> None:
    match = _BUILDER.match(draft.get(_COMPONENT, ""))
    builder = match[2] if match else ""
    draft.model = MODELS.get(builder)
    sized = {field: draft.get(f"model.{name}") for name, field in _SIZES.items()}
    if builder in _SIZED and None not in sized.values():
        width = sized["hidden_size"]
        tied = draft.get("model.tie_word_embeddings", builder == "llama3_2")
        draft.model = {
            **sized,
            "intermediate_size": draft.get("model.intermediate_dim", _mlp_width(width)),
            "tie_word_embeddings": tied,
        }
    elif draft.model is None:
        draft.assumptions.append("no model: its builder is none whose sizes are known here: give model")
    else:
        for name in _SIZES:
            if f"model.{name}" in draft.settings:
                draft.not_understood(f"model.{name}", "it changes the sizes that the builder names")


def _mlp_width(width: int) -> int:
    """The MLP's width where the file has none: two thirds of four times the model's, in steps of 256.

    >>> _mlp_width(4096)
    11008
    """
    return 256 * -(-int(8 * width / 3) // 256)


def _put_batch(draft: drafts.Draft) -> None:
    recipe = draft.recipe
    if "tokenizer.max_seq_len" in draft.settings:
        recipe["sequence_length"] = draft.settings["tokenizer.max_seq_len"]
    else:
        draft.assumptions.append("sequences have no longest length: give recipe.sequence_length")
    recipe["micro_batch"] = micro = draft.get("batch_size", 1)
    draft.accumulation_steps = accumulation = draft.get("gradient_accumulation_steps", 1)
    if "data" in draft.layout:
        recipe["global_batch"] = micro * accumulation * draft.layout["data"]
        draft.accumulation_steps = None
    if "max_steps_per_epoch" in draft.settings:
        draft.training_steps = draft.settings["max_steps_per_epoch"] * draft.get("epochs", 1)
        draft.assumptions.append("each epoch has max_steps_per_epoch steps, if the data last so long")


def _optimizer(draft: drafts.Draft) -> Any:
    name = "optimizer._component_"
    kinds = {draft.settings[name]: _OPTIMIZERS.get(draft.settings[name].rpartition(".")[2])}
    if None in kinds.values():
        named = ", ".join(_OPTIMIZERS)
        raise draft.wrong(name, "not_a_choice", "is none of the optimizers that are understood", f"use {named}")
    if kinds[draft.settings[name]] == "sgd" and "optimizer.momentum" in draft.fates:
        return "sgd-momentum"
    return kinds[draft.settings[name]]


def _method(draft: drafts.Draft) -> Any:
    match = _BUILDER.match(draft.get(_COMPONENT, ""))
    kind = match[1] if match else ""
    names = ("model.lora_attn_modules", "model.lora_rank", "model.apply_lora_to_mlp", "model.apply_lora_to_output")
    if not kind and not any(name in draft.settings for name in names):
        return "full"
    targets = [_MATRICES.get(name, name) for name in draft.get("model.lora_attn_modules", ())]
    targets += _MLP if draft.get("model.apply_lora_to_mlp") else ()
    targets += ("lm_head",) if draft.get("model.apply_lora_to_output") else ()
    is_quantized = draft.get("model.quantize_base", kind == "qlora_")
    return trainer.method_of(
        draft,
        trainer.Adapters(
            rank=draft.get("model.lora_rank", 8),
            targets=targets,
            dropout_fraction=draft.get("model.lora_dropout", 0.0),
            quantization="nf4-double" if is_quantized else None,
            targets_setting="model.lora_attn_modules",
        ),
    )


def _recompute(draft: drafts.Draft) -> Any:
    """Recompute of every layer, of one in n, or by operation; a mode beside the switch turns both off."""
    mode = draft.get("ac_mode", "none")
    if draft.get("enable_activation_checkpointing", False):
        if "ac_mode" in draft.settings:
            draft.not_understood("ac_mode", "beside enable_activation_checkpointing it turns recompute off")
        return "full"
    kind = draft.chosen("ac_mode", {name: name for name in ("none", "full", "selective")}, "none")
    option = str(draft.get("ac_option", 1))
    if kind != "selective" or option == "1":
        return "none" if mode == "none" else "full"
    if option == "op":
        return {"granularity": "selective", "modules": ["op"]}
    layers = _layers(draft)
    if not option.isdecimal() or option.startswith("0") or len(option) > len("1000") or layers is None:
        draft.not_understood("ac_option", "one layer in so many is computed again, of a number not known here")
        return "full"
    return {"granularity": "full", "method": "block", "layers": max(1, layers // int(option))}


def _layers(draft: drafts.Draft) -> int | None:
    if isinstance(draft.model, str):
        named = named_model(draft.model).model
        return named.num_hidden_layers if named else None
    return draft.model["num_hidden_layers"] if draft.model else None


def _software(draft: drafts.Draft, *, is_quantized: bool) -> dict[str, Any]:
    """torchtitan's kind of layers and sharding; Trainer's beside matrices of 4 bits, which torchtitan lacks."""
    compiled = draft.get("compile.model", draft.get("compile") in (True, ("True",), "True", "true"))
    loss = draft.chosen("loss._component_", _LOSSES, "torchtune.modules.loss.LinearCrossEntropyLoss")
    fused = draft.get("optimizer.fused", False)
    if is_quantized:
        name = "compile.model" if "compile.model" in draft.settings else "compile"
        if compiled:
            draft.not_understood(
                name, "operations are compiled, and beside matrices of 4 bits the estimate runs them singly"
            )
        if loss == "chunked-outputs":
            draft.not_understood("loss._component_", "beside matrices of 4 bits the loss of eighths is not modelled")
            loss = "eager"
        return {"name": "transformers", "cross_entropy": loss, "fused_update": fused}
    ends = {"tok_embeddings", "output"} & {*draft.get("custom_sharded_layers", ())}
    return {
        "name": "torchtitan",
        "versions": {"torchtitan": _ENDS_APART if ends else _JOINED_ENDS},
        "implementation": "compiled" if compiled else "eager",
        "cross_entropy": loss,
        "fused_update": fused,
        **({"step_in_backward": True} if draft.get("optimizer_in_bwd") else {}),
    }
