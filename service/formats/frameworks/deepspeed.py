"""DeepSpeed: the JSON of deepspeed.initialize (batches, number formats, sharding; the rest is the script's).

Source: DeepSpeed 0.19.8 runtime/config.py, runtime/zero/config.py, runtime/precision_config.py,
runtime/tensor_parallel/config.py, runtime/activation_checkpointing/config.py, defaults included.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.estimator.degrees import WEIGHTS
from service.formats import drafts, rules
from service.formats.text import Entry, json_text, nested

_ZERO = "zero_optimization."
_WEIGHTS_DEVICE, _STATES_DEVICE = f"{_ZERO}offload_param.device", f"{_ZERO}offload_optimizer.device"

_MOST_PERSISTENT = 1_000_000
"""Largest parameter that ZeRO-3 may keep gathered without effect: above norms and biases, below matrices."""

_CHANGE_VALUE = "choose a value that DeepSpeed has"


def _recompute(value: Any, question: CompleteQuestion) -> rules.Written:
    if value.granularity == "none":
        return None
    if value.granularity == "selective" or value.method == "block" or (value.layers or 1) > 1:
        return rules.not_expressible(
            "the file counts checkpoints of whole layers, and the script makes them",
            rules.IN_SCRIPT,
            instead=rules.LEFT_OPEN,
        )
    count = ("activation_checkpointing.number_checkpoints", question.model.num_hidden_layers)
    note = "the script has to call deepspeed.checkpointing, or enable gradient checkpointing, itself"
    return rules.Fragment((("activation_checkpointing.partition_activations", False), count), assumptions=(note,))


def _precision(value: Any, question: CompleteQuestion) -> rules.Written:
    plain = {"bf16.enabled": True}
    if value == "bf16-pure" and question.layout.zero_stage == 0:
        why = "without ZeRO the master copy is in fp32"
        return rules.combined(plain, rules.not_expressible(why, "use zero_stage 1, or bf16-mixed"))
    if value == "bf16-mixed" and question.recipe.master_dtype == question.recipe.moment_dtype == "bf16":
        why = "with moments and master copy in bf16 the file is that of bf16-pure"
        return rules.combined(plain, rules.not_expressible(why, "set precision to bf16-pure"))
    pure = {**plain, "bf16.bf16_master_weights_and_grads": True, "bf16.bf16_optimizer_states": True}
    known = {"fp32": {}, "bf16-mixed": plain, "fp16-mixed": {"fp16.enabled": True}, "bf16-pure": pure}
    return rules.chooses(known, "DeepSpeed does not train in {value}", _CHANGE_VALUE)(value, question)


def _moments(value: Any, question: CompleteQuestion) -> rules.Written:
    if value is None or (value == "fp32" and question.recipe.precision != "bf16-pure"):
        return None
    has_master = question.recipe.master_dtype == "bf16" and question.layout.zero_stage != 0
    if value == "bf16" and has_master and question.recipe.precision.startswith("bf16"):
        return {"bf16.bf16_optimizer_states": True}
    return rules.not_expressible(
        f"moments in {value} come with a master copy in bf16 alone", "set master_dtype to bf16 too"
    )


def _master(value: Any, question: CompleteQuestion) -> rules.Written:
    if value is None or value == "fp32":
        return None
    if not question.recipe.precision.startswith(value):
        return rules.not_expressible(
            f"a master copy in {value} comes with weights in {value}", "leave master_dtype out"
        )
    if question.layout.zero_stage == 0:
        return rules.not_expressible(f"without ZeRO the master copy is in fp32, not in {value}", "use zero_stage 1")
    return {f"{value}.{value}_master_weights_and_grads": True}


def _offload(value: Any, question: CompleteQuestion) -> rules.Written:
    states = {"zero_optimization.offload_optimizer.device": "cpu"}
    kept: rules.Written = {"activation_checkpointing.cpu_checkpointing": True}
    if question.recipe.recompute == "none":
        kept = rules.not_expressible("only what recompute keeps goes to host memory", "set recompute to full")
    settings: dict[str, rules.Written] = {"none": None, "optimizer": states, "activations": kept}
    settings["moments"] = rules.not_expressible("the master copy goes along with the moments", "offload the optimizer")
    settings["model"] = {**states, "zero_optimization.offload_param.device": "cpu"}
    return rules.combined(kept, states) if value == "optimizer-and-activations" else settings[value]


def _steps(value: Any, question: CompleteQuestion) -> rules.Written:
    """Steps of accumulation, and the whole batch, but for AutoTP, whose ranks DeepSpeed counts among the replicas."""
    steps = {"gradient_accumulation_steps": value // (question.recipe.micro_batch * question.layout.data)}
    return steps if question.layout.tensor > 1 else {"train_batch_size": value, **steps}


def _unless_one(name: str, note: str) -> rules.Rule:
    """Rule of a degree: above one it is written as a setting, with a note; one is the default."""
    return lambda value, _: None if value == 1 else rules.Fragment(((name, value),), assumptions=(note,))


_TABLE = rules.framework_table("deepspeed", "rules", *drafts.FATES, "earlier")

RULES: rules.Rules = {
    **rules.SCRIPT_RULES,
    **rules.rules_of(
        _TABLE["rules"],
        {
            "recipe.global_batch": _steps,
            "recipe.precision": _precision,
            "recipe.gradient_dtype": lambda value, _: value,
            "recipe.recompute": _recompute,
            "recipe.moment_dtype": _moments,
            "recipe.master_dtype": _master,
            "layout.data": rules.DATA_FROM_PROCESSES,
            "layout.tensor": _unless_one("tensor_parallel.autotp_size", "matrices are split by AutoTP"),
            "layout.context": lambda value, _: None if value == 1 else value,
            "layout.pipeline": _unless_one(
                "pipeline.stages", "the script makes the pipeline: PipelineModule with as many stages"
            ),
            "layout.expert_tensor": rules.has_usual_expert_tensor,
            "layout.zero_stage": lambda value, _: value,
            "layout.shard_group": rules.shards_over_all,
            "layout.reshard_after_forward": lambda value, q: q.layout.zero_stage != 3 or value,
            "layout.sequence_parallel": lambda value, q: not value or q.layout.tensor == 1,
            "layout.context_method": lambda value, q: q.layout.context == 1 or value == "ulysses",
            "layout.offload": _offload,
        },
    ),
}

FATES = drafts.fates_of(RULES, _TABLE)


DEEPSPEED = rules.training_target(
    "deepspeed", {"0.19": RULES}, lambda settings, _: json_text(nested((*settings, ("gradient_clipping", 1.0))))
)


FROM_ARGUMENTS = frozenset(
    {
        "train_micro_batch_size_per_gpu",
        "train_batch_size",
        "gradient_accumulation_steps",
        "bf16.enabled",
        "fp16.enabled",
    }
)
"""Settings whose auto Trainer replaces by its own arguments. Source: transformers 5.24.0 integrations/deepspeed.py."""


def read_deepspeed(entries: Sequence[Entry]) -> drafts.Draft:
    """Draft of a DeepSpeed file; what its auto stands for is open without the arguments that it comes from."""
    opened = {entry.name for entry in entries if entry.value == "auto"} & FROM_ARGUMENTS
    draft = deepspeed_draft([replace(one, value=None) if one.name in opened else one for one in entries])
    if opened:
        draft.assumptions.append("auto stands for what the script's arguments say: send them in files beside it")
        draft.accumulation_steps = None if "gradient_accumulation_steps" in opened else draft.accumulation_steps
    if opened & {"bf16.enabled", "fp16.enabled"}:
        del draft.recipe["precision"]
    draft.assumptions.append(
        "model, sequence length, tokens and recompute are the script's: give model and sequence_length"
    )
    if draft.recipe["recompute"] == "full":
        draft.assumptions.append("the script calls deepspeed.checkpointing, which Hugging Face's Trainer does not")
    return draft


def deepspeed_draft(entries: Sequence[Entry]) -> drafts.Draft:
    """What a DeepSpeed file says beside a script's own arguments."""
    draft = drafts.draft_of(entries, FATES)
    layout, recipe = draft.layout, draft.recipe
    layout |= draft.fields_of(RULES, "layout")
    recipe |= draft.fields_of(RULES, "recipe")
    layout["tensor"] = max(1, draft.get("tensor_parallel.autotp_size", 1))
    layout["pipeline"] = max(1, draft.get("pipeline.stages", 1))
    layout["context"] = max(1, draft.get("sequence_parallel_size", 1))
    if layout["context"] > 1:
        layout["context_method"] = "ulysses"
    _put_batch(draft)
    _put_numbers(draft)
    recipe["recompute"] = _recomputed(draft)
    layout["offload"] = _offloaded(draft)
    recipe["stack"] = _software(draft)
    return draft


def _recomputed(draft: drafts.Draft) -> Any:
    interval = draft.get("pipeline.activation_checkpoint_interval", 0)
    if draft.layout["pipeline"] > 1 and interval > 0:
        return {"granularity": "full", "layers": interval}
    if draft.layout["tensor"] > 1 and draft.get("activation_checkpointing.partition_activations"):
        why = "tensor ranks share what recompute keeps"
        draft.not_understood("activation_checkpointing.partition_activations", why)
    return "full" if "activation_checkpointing.number_checkpoints" in draft.settings else "none"


def _offloaded(draft: drafts.Draft) -> str:
    devices = {"none": False, "cpu": True, "nvme": True}
    weights, states = (draft.chosen(name, devices, "none") for name in (_WEIGHTS_DEVICE, _STATES_DEVICE))
    weights, states = weights or draft.get(f"{_ZERO}cpu_offload_param"), states or draft.get(f"{_ZERO}cpu_offload")
    if draft.layout["zero_stage"] != WEIGHTS:
        weights = False
        for name in (_WEIGHTS_DEVICE, f"{_ZERO}cpu_offload_param"):
            draft.without_effect(name, "weights are offloaded at ZeRO stage 3 alone")
    for name in (_WEIGHTS_DEVICE, _STATES_DEVICE):
        if draft.get(name) == "nvme":
            draft.not_understood(name, "what is offloaded is on a disk, whose speed is not modelled")
    if weights and not states:
        for name in draft.fates.keys() & {_WEIGHTS_DEVICE, f"{_ZERO}cpu_offload_param"}:
            draft.not_understood(name, "weights are in host memory, and the optimizer's states are not")
    threshold = f"{_ZERO}stage3_param_persistence_threshold"
    if (draft.get(threshold) or 0) > _MOST_PERSISTENT:
        draft.not_understood(threshold, "whole matrices stay gathered")
    kept = draft.get("activation_checkpointing.cpu_checkpointing", False)
    if kept and draft.recipe["recompute"] == "none":
        why = "what a script recomputes by DeepSpeed's own function waits in host memory"
        draft.not_understood("activation_checkpointing.cpu_checkpointing", why)
        kept = False
    kind = "optimizer-and-activations" if states else "activations"
    return "model" if weights else kind if kept else "optimizer" if states else "none"


def _software(draft: drafts.Draft) -> dict[str, Any]:
    """The stack with its overlap and its buckets, as far as the ZeRO stage and the pipeline use them."""
    layout, found = draft.layout, draft.fields_of(RULES, "recipe.stack")
    if layout["zero_stage"] != WEIGHTS:
        found.pop("gather_bucket_numbers", None)
    if layout["zero_stage"] == 0 or layout["pipeline"] > 1:
        found.pop("overlap_reduce", None)
    auto = [name for name in ("reduce_bucket_numbers", "gather_bucket_numbers") if found.get(name, 1) is None]
    if auto:
        draft.assumptions.append(f"{' and '.join(auto)}: auto is a size of the model's, and DeepSpeed's own is taken")
    return {"name": "deepspeed", **{name: value for name, value in found.items() if value is not None}}


def _put_batch(draft: drafts.Draft) -> None:
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
            message = "is not a multiple of micro batch x accumulation, so no number of replicas fits"
            fix = f"make it a multiple of {micro * steps}"
            raise draft.wrong("train_batch_size", "batch_divides", message, fix)
        draft.layout["data"] = data
    else:
        draft.assumptions.append(f"the file leaves one of its batches open: {drafts.FROM_GPUS}")
        draft.accumulation_steps = None if whole_batch and micro else steps or 1


def _put_numbers(draft: drafts.Draft) -> None:
    recipe = draft.recipe
    half = "fp16" if draft.get("fp16.enabled") else "bf16" if draft.get("bf16.enabled") else None
    master = half and draft.get(f"{half}.{half}_master_weights_and_grads")
    states = draft.get("bf16.bf16_optimizer_states")
    recipe["precision"] = "fp32" if half is None else f"{half}-pure" if master and states else f"{half}-mixed"
    if master and not states:
        recipe["master_dtype"] = half
