"""Lightning: the YAML of LightningCLI, whose trainer says how a model of the caller's own code is distributed.

Source: Lightning-AI/pytorch-lightning@7f0c343 src/lightning/pytorch/trainer/trainer.py, strategies (fsdp.py: FSDP1,
wrapped by auto_wrap_policy; deepspeed.py: stage 2 and buckets of 2e8 unless given; model_parallel.py: a node's GPUs
split matrices unless their number is given), plugins/precision (-true casts weights).
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from service.estimator.degrees import WEIGHTS
from service.formats import drafts, rules
from service.formats.composed import started
from service.formats.model_names import named_model
from service.formats.text import Entry

FATES = drafts.fates_of({}, rules.framework_table("lightning", *drafts.FATES))

_FIT = "fit."
"""Section of a file that holds what several subcommands read."""
_STRATEGY = "trainer.strategy"
_INIT = "trainer.strategy.init_args."

_KINDS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("auto", "single_device", "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook"), ("transformers", 0)),
    **dict.fromkeys(("ddp_find_unused_parameters_true", "ddp_find_unused_parameters_false"), ("transformers", 0)),
    **dict.fromkeys(("DDPStrategy", "SingleDeviceStrategy"), ("transformers", 0)),
    **dict.fromkeys(("fsdp", "fsdp_cpu_offload", "FSDPStrategy"), ("fsdp1", 3)),
    **dict.fromkeys(
        ("deepspeed", "deepspeed_stage_2", "deepspeed_stage_2_offload", "DeepSpeedStrategy"), ("deepspeed", 2)
    ),
    **dict.fromkeys(("deepspeed_stage_3", "deepspeed_stage_3_offload"), ("deepspeed", 3)),
    **{"deepspeed_stage_1": ("deepspeed", 1), "ModelParallelStrategy": ("transformers", 3)},
}
"""Stack and ZeRO stage by a strategy's name or class."""

_SHARDING = {
    **{"FULL_SHARD": (3, True), "HYBRID_SHARD": (3, True), "SHARD_GRAD_OP": (3, False)},
    **{"_HYBRID_SHARD_ZERO2": (3, False), "NO_SHARD": (0, False)},
}
_PRECISIONS = {
    **dict.fromkeys(("32-true", "32"), "fp32"),
    **dict.fromkeys(("bf16-mixed", "bf16"), "bf16-mixed"),
    **dict.fromkeys(("16-mixed", "16"), "fp16-mixed"),
    **{"bf16-true": "bf16-pure", "16-true": "fp16-pure"},
}
_OPTIMIZERS = {
    **{"AdamW": "adamw", "FusedAdam": "adamw", "DeepSpeedCPUAdam": "adamw", "Adam": "adam", "SGD": "sgd"},
    **{"RMSprop": "rmsprop", "Adafactor": "adafactor", "AdamW8bit": "adamw-8bit", "Lion": "lion", "Muon": "muon"},
}
_LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "block_size")
_BUCKET = 200_000_000
"""Gradients of one call where DeepSpeedStrategy is given nothing else."""


def read_lightning(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a file of LightningCLI."""
    run = started(tuple(replace(entry, name=entry.name.removeprefix(_FIT)) for entry in entries))
    draft = drafts.draft_of(run.entries, FATES)
    accelerator = draft.get("trainer.accelerator", "auto")
    if accelerator not in ("auto", "gpu", "cuda"):
        raise draft.wrong("trainer.accelerator", "not_a_gpu", "trains on no GPU that is known", "use gpu")
    stack = _put_layout(draft)
    _put_model(draft)
    _put_batch(draft)
    _mark_callbacks(draft)
    recipe = draft.recipe
    recipe["optimizer"] = _optimizer(draft)
    recipe["precision"] = _precision(draft, stack)
    policies = ("activation_checkpointing", "activation_checkpointing_policy")
    given = [name for name in draft.fates if name.startswith(tuple(f"{_INIT}{policy}" for policy in policies))]
    recipe["recompute"] = "full" if any(draft.fates[name].entry.value for name in given) else "none"
    recipe["stack"] = {"name": stack}
    if stack == "deepspeed":
        recipe["stack"]["overlap_reduce"] = draft.get(f"{_INIT}overlap_comm", True)
        recipe["stack"]["reduce_bucket_numbers"] = draft.get(f"{_INIT}reduce_bucket_size") or _BUCKET
    return draft


_CHANGING = re.compile(r"(?i)fine_?tun|freez|averag|(?<![a-z])ema(?![a-z])|quanti|prun")
"""Parts of names of callbacks that freeze layers, or keep more than the model or less of it."""


def _mark_callbacks(draft: drafts.Draft) -> None:
    callbacks = draft.fates.get("trainer.callbacks")
    classes = {
        str(dict(one).get("class_path", "")).rpartition(".")[2]
        for one in (callbacks.entry.value or () if callbacks else ())
        if isinstance(one, tuple) and all(isinstance(pair, tuple) for pair in one)
    }
    if any(map(_CHANGING.search, classes)):
        draft.not_understood("trainer.callbacks", "a callback changes what is trained, or what is kept of it")


def _put_layout(draft: drafts.Draft) -> str:
    """The layout of a strategy, with the stack that stands for it."""
    name = f"{_STRATEGY}.class_path" if f"{_STRATEGY}.class_path" in draft.settings else _STRATEGY
    kind = str(draft.get(name, "auto")).rpartition(".")[2]
    if kind not in _KINDS:
        fix = "use one of Lightning's own for GPUs, such as ddp, fsdp or deepspeed_stage_3"
        raise draft.wrong(name, "not_a_choice", "is no strategy that is understood", fix)
    stack, stage = _KINDS[kind]
    layout = draft.layout
    layout["zero_stage"] = draft.get(f"{_INIT}stage", stage) if stack == "deepspeed" else stage
    layout["offload"] = _offload(draft, kind)
    devices, nodes = _devices(draft), draft.get("trainer.num_nodes", 1)
    if devices is not None:
        layout["data"] = devices * nodes
    else:
        draft.assumptions.append(f"trainer.devices is auto: {drafts.FROM_GPUS}")
    if stack == "fsdp1":
        _put_sharding(draft, devices)
    if kind == "ModelParallelStrategy":
        draft.not_understood(name, "the model's own code says how its matrices are split and sharded")
        tensor, data = (draft.get(f"{_INIT}{one}_parallel_size") for one in ("tensor", "data"))
        layout["tensor"] = tensor if isinstance(tensor, int) else devices or 1
        layout["data"] = data if isinstance(data, int) else nodes
    return stack


def _offload(draft: drafts.Draft, kind: str) -> str:
    if kind == "fsdp_cpu_offload" or draft.get(f"{_INIT}cpu_offload"):
        return "model"
    parts = [draft.get(f"{_INIT}offload_{part}", kind.endswith("offload")) for part in ("optimizer", "parameters")]
    for name in ("offload_optimizer_device", "offload_params_device"):
        if draft.get(f"{_INIT}{name}", "cpu") != "cpu":
            draft.not_understood(f"{_INIT}{name}", "states wait on a disk")
    if parts[1] and (kind == "deepspeed_stage_3_offload" or draft.get(f"{_INIT}stage", 2) == WEIGHTS):
        return "model"
    return "optimizer" if parts[0] else "none"


def _put_sharding(draft: drafts.Draft, devices: int | None) -> None:
    layout, name = draft.layout, f"{_INIT}sharding_strategy"
    strategy = draft.get(name, "FULL_SHARD")
    layout["zero_stage"], reshard = draft.chosen(name, _SHARDING, "FULL_SHARD")
    if layout["zero_stage"]:
        layout["reshard_after_forward"] = reshard
    if "HYBRID" in strategy and devices is not None:
        layout["shard_group"] = devices
    elif "HYBRID" in strategy:
        draft.not_understood(name, "shards stay inside a node, whose GPUs the file does not count")
    if not any(one.startswith(f"{_INIT}auto_wrap_policy") for one in draft.fates):
        why = "the model's own code says what is gathered at once; without that it is the whole model"
        draft.not_understood(f"{_INIT}auto_wrap_policy", why)


def _devices(draft: drafts.Draft) -> int | None:
    """GPUs of a node; None for all that are there."""
    given = draft.get("trainer.devices", "auto")
    if given in ("auto", -1, "-1"):
        return None
    if isinstance(given, tuple):
        return len(given)
    try:
        return rules.integer((given,))
    except (rules.WrongType, ValueError):
        fix = "give a number, or a list of GPUs"
        raise draft.wrong(
            "trainer.devices", "not_a_whole_number", "is neither a number, a list nor auto", fix
        ) from None


def _put_model(draft: drafts.Draft) -> None:
    for name in ("model.init_args.model_name_or_path", "model.init_args.pretrained_model_name_or_path"):
        if name in draft.settings:
            named = named_model(draft.settings[name])
            draft.model = named.name if named.model is not None else None
    if draft.model is None:
        draft.assumptions.append("the model is of the caller's own code: give model, and recompute and attention of it")


def _put_batch(draft: drafts.Draft) -> None:
    recipe = draft.recipe
    micro = draft.get("data.init_args.batch_size", draft.get("data.batch_size"))
    draft.accumulation_steps = draft.get("trainer.accumulate_grad_batches", 1)
    if micro is None:
        draft.assumptions.append("the batch is the data module's own: give recipe.micro_batch")
    else:
        recipe["micro_batch"] = micro
        if "data" in draft.layout:
            recipe["global_batch"] = micro * draft.accumulation_steps * draft.layout["data"]
            draft.accumulation_steps = None
    length = next((draft.get(f"data.init_args.{one}") for one in _LENGTHS if draft.get(f"data.init_args.{one}")), None)
    if length is None:
        draft.assumptions.append("the sequence length is the data module's own: give recipe.sequence_length")
    else:
        recipe["sequence_length"] = length
    if draft.get("trainer.max_steps", -1) > 0:
        draft.training_steps = draft.settings["trainer.max_steps"]


def _optimizer(draft: drafts.Draft) -> str:
    if "optimizer.class_path" not in draft.settings:
        draft.assumptions.append("the optimizer is of the model's own code, taken as adamw")
        return "adamw"
    given = draft.settings["optimizer.class_path"].rpartition(".")[2]
    if given not in _OPTIMIZERS:
        fix = f"use {', '.join(_OPTIMIZERS)}"
        raise draft.wrong("optimizer.class_path", "not_a_choice", "is none of the optimizers that are understood", fix)
    if given == "SGD" and "optimizer.init_args.momentum" in draft.fates:
        return "sgd-momentum"
    return _OPTIMIZERS[given]


def _precision(draft: drafts.Draft, stack: str) -> str:
    """The precision; DeepSpeed keeps a copy in fp32 beside weights of any format."""
    given = str(draft.get("trainer.precision", "32-true"))
    if given not in _PRECISIONS:
        draft.not_understood("trainer.precision", "numbers are in formats that are not modelled")
        return "bf16-mixed"
    found = _PRECISIONS[given]
    return found.replace("-pure", "-mixed") if stack == "deepspeed" else found
