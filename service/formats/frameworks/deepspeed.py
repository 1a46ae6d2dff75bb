"""DeepSpeed: the JSON of deepspeed.initialize (batches, number formats, sharding; the rest is the script's).

Source: DeepSpeed 0.19.8 runtime/config.py, runtime/zero/config.py, runtime/precision_config.py,
runtime/tensor_parallel/config.py, runtime/activation_checkpointing/config.py, defaults included.
"""

from collections.abc import Sequence
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.formats.draft import Converter, Draft, boolean, draft_from, integer, text
from service.formats.rules import (
    IN_SCRIPT,
    NOTHING,
    SCRIPT_RULES,
    ExportedFile,
    ExportRequest,
    Fragment,
    Rules,
    Target,
    Version,
    apply_rules,
    chooses,
    combined,
    not_expressible,
    only,
    only_stack,
    values_of,
    writes,
)
from service.formats.text import Entry, json_text, nested

_OWN = "choose a value that DeepSpeed has"

_PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16-mixed": {"bf16.enabled": True},
    "fp16-mixed": {"fp16.enabled": True},
}

_LEARNING_RATE = {"optimizer.params.lr": 3e-4}


def _accumulation(value: Any, question: CompleteQuestion) -> Fragment:
    """Global batch and accumulation steps, which DeepSpeed requires to agree."""
    steps = value // (question.recipe.micro_batch * question.layout.data)
    return Fragment((("train_batch_size", value), ("gradient_accumulation_steps", steps)))


def _recompute(value: Any, question: CompleteQuestion) -> Fragment:
    if value.granularity == "none":
        return NOTHING
    if value.granularity == "selective" or value.method == "block" or (value.layers or 1) > 1:
        return not_expressible("the file counts checkpoints of whole layers, and the script makes them", IN_SCRIPT)
    count = ("activation_checkpointing.number_checkpoints", question.model.num_hidden_layers)
    note = "the script has to call deepspeed.checkpointing, or enable gradient checkpointing, itself"
    return Fragment((("activation_checkpointing.partition_activations", False), count), assumptions=(note,))


def _precision(value: Any, question: CompleteQuestion) -> Fragment:
    if value == "bf16" and question.layout.zero_stage == 0:
        plain = Fragment((("bf16.enabled", True),))
        return combined(
            plain, not_expressible("without ZeRO the master copy is in fp32", "use zero_stage 1, or bf16-mixed")
        )
    if value == "bf16":
        names = ("bf16.enabled", "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states")
        return Fragment(tuple((name, True) for name in names))
    return chooses(_PRECISIONS, "DeepSpeed does not train in {value}", _OWN)(value, question)


def _moments(value: Any, question: CompleteQuestion) -> Fragment:
    if value is None or (value == "fp32" and question.recipe.precision != "bf16"):
        return NOTHING
    has_master = question.recipe.master_dtype == "bf16" and question.layout.zero_stage != 0
    if value == "bf16" and has_master and question.recipe.precision.startswith("bf16"):
        return Fragment((("bf16.bf16_optimizer_states", True),))
    return not_expressible(f"moments in {value} come with a master copy in bf16 alone", "set master_dtype to bf16 too")


def _master(value: Any, question: CompleteQuestion) -> Fragment:
    if value is None or value == "fp32":
        return NOTHING
    if not question.recipe.precision.startswith(value):
        return not_expressible(f"a master copy in {value} comes with weights in {value}", "leave master_dtype out")
    if question.layout.zero_stage == 0:
        return not_expressible(f"without ZeRO the master copy is in fp32, not in {value}", "use zero_stage 1")
    return Fragment(((f"{value}.{value}_master_weights_and_grads", True),))


def _groups(value: Any, question: CompleteQuestion) -> Fragment:
    layout = question.layout
    if layout.zero_stage == 0 or value == layout.data * layout.context:
        return NOTHING
    return not_expressible(
        "states are sharded over all replicas; MiCS shards over fewer in code", "leave shard_group out"
    )


def _reshard(value: Any, question: CompleteQuestion) -> Fragment:
    if question.layout.zero_stage != 3 or value:
        return NOTHING
    return not_expressible("gathered weights are freed after the forward pass", "leave reshard_after_forward out")


def _context(value: Any, question: CompleteQuestion) -> Fragment:
    return NOTHING if value == 1 else Fragment((("sequence_parallel_size", value),))


def _context_method(value: Any, question: CompleteQuestion) -> Fragment:
    if question.layout.context == 1 or value == "ulysses":
        return NOTHING
    return not_expressible("context ranks exchange heads", "set context_method to ulysses")


def _offload(value: Any, question: CompleteQuestion) -> Fragment:
    states = Fragment((("zero_optimization.offload_optimizer.device", "cpu"),))
    weights = combined(states, Fragment((("zero_optimization.offload_param.device", "cpu"),)))
    if value in ("activations", "optimizer-and-activations"):
        found = Fragment((("activation_checkpointing.cpu_checkpointing", True),))
        if question.recipe.recompute == "none":
            found = not_expressible("only what recompute keeps goes to host memory", "set recompute to full")
        return combined(found, states) if value != "activations" else found
    return {"none": NOTHING, "optimizer": states, "model": weights}[value]


def _stages(value: Any, question: CompleteQuestion) -> Fragment:
    if value == 1:
        return NOTHING
    note = "the script makes the pipeline: PipelineModule with as many stages"
    return Fragment((("pipeline.stages", value),), assumptions=(note,))


def _tensor(value: Any, question: CompleteQuestion) -> Fragment:
    if value == 1:
        return NOTHING
    return Fragment((("tensor_parallel.autotp_size", value),), assumptions=("matrices are split by AutoTP",))


def _expert_tensor(value: Any, question: CompleteQuestion) -> Fragment:
    usual = 1 if question.layout.expert > 1 else question.layout.tensor
    if not question.model.num_experts or value == usual:
        return NOTHING
    return not_expressible("how experts' matrices are split is set in code", IN_SCRIPT)


RULES: Rules = {
    **SCRIPT_RULES,
    "recipe.micro_batch": writes("train_micro_batch_size_per_gpu"),
    "recipe.global_batch": _accumulation,
    "recipe.precision": _precision,
    "recipe.gradient_dtype": writes("data_types.grad_accum_dtype"),
    "recipe.optimizer": chooses(
        {
            "adamw": {"optimizer.type": "AdamW", **_LEARNING_RATE},
            "lion": {"optimizer.type": "Lion", **_LEARNING_RATE},
            "muon": {"optimizer.type": "Muon", **_LEARNING_RATE},
        },
        "DeepSpeed has no optimizer {value} of its own",
        "pass one to deepspeed.initialize in the script",
    ),
    "recipe.recompute": _recompute,
    "recipe.moment_dtype": _moments,
    "recipe.master_dtype": _master,
    "recipe.stack.name": only_stack("DeepSpeed", "deepspeed"),
    "layout.data": lambda value, q: Fragment(
        assumptions=(f"start it as {q.cluster.gpus} processes: the data degree {value} follows from their number",)
    ),
    "layout.tensor": _tensor,
    "layout.context": _context,
    "layout.pipeline": _stages,
    "layout.expert": only((1,), "how experts are split is set in code", "give ep_size to deepspeed.moe.MoE"),
    "layout.expert_tensor": _expert_tensor,
    "layout.zero_stage": writes("zero_optimization.stage"),
    "layout.shard_group": _groups,
    "layout.reshard_after_forward": _reshard,
    "layout.sequence_parallel": lambda value, q: (
        not_expressible("tensor ranks keep norms whole", "leave sequence_parallel out")
        if value and q.layout.tensor > 1
        else NOTHING
    ),
    "layout.context_method": _context_method,
    "layout.schedule": only(("1f1b",), "DeepSpeed's pipeline runs 1f1b, and not {value}", "use 1f1b"),
    "layout.offload": _offload,
}


def _write(request: ExportRequest) -> ExportedFile:
    fragment, gaps = apply_rules(RULES, values_of(request.question), request.question)
    settings = tuple({**dict(fragment.settings), "gradient_clipping": 1.0}.items())
    assumptions = (*fragment.assumptions, "the learning rate, and all that the script says, are yours to set")
    return ExportedFile(content=json_text(nested(settings)), not_expressible=gaps, assumptions=assumptions)


DEEPSPEED = Target(
    name="deepspeed",
    tool="DeepSpeed",
    kind="training",
    versions={
        "0.19": Version(
            covers="0.19.8: the config of deepspeed.initialize",
            file_name="deepspeed.json",
            media_type="application/json",
            rules=RULES,
        )
    },
    write=_write,
    source="DeepSpeed 0.19.8 runtime/config.py",
)


SETTINGS: dict[str, Converter] = {
    **dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), integer),
    **dict.fromkeys(("zero_optimization.stage", "sequence_parallel_size"), integer),
    **dict.fromkeys(("tensor_parallel.autotp_size", "pipeline.stages"), integer),
    **dict.fromkeys(("zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"), text),
    **dict.fromkeys(("bf16.enabled", "fp16.enabled", "bf16.bf16_master_weights_and_grads"), boolean),
    **dict.fromkeys(("bf16.bf16_optimizer_states", "fp16.fp16_master_weights_and_grads"), boolean),
    "data_types.grad_accum_dtype": text,
    "optimizer.type": text,
    "activation_checkpointing.number_checkpoints": integer,
    "activation_checkpointing.cpu_checkpointing": boolean,
}
"""Settings that are read."""

IGNORED = (
    "activation_checkpointing.contiguous", "activation_checkpointing.partition", "activation_checkpointing.profile",
    "activation_checkpointing.synchronize", "bf16.", "checkpoint", "comms_logger", "csv_monitor", "flops_profiler",
    "fp16.", "gradient_clipping", "optimizer.", "prescale_gradients", "scheduler", "steps_per_print", "tensorboard",
    "wall_clock_breakdown", "wandb", "zero_allow_untested_optimizer", "zero_optimization.allgather",
    "zero_optimization.contiguous", "zero_optimization.offload", "zero_optimization.overlap",
    "zero_optimization.reduce", "zero_optimization.round_robin", "zero_optimization.stage3_",
    "zero_optimization.sub_group_size",
)  # fmt: skip
"""Prefixes of settings about neither recipe nor layout."""


def read_deepspeed(entries: Sequence[Entry]) -> Draft:
    """Draft of a DeepSpeed file."""
    draft = draft_from(entries, SETTINGS, IGNORED)
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
    kind = "optimizer-and-activations" if states else "activations"
    layout["offload"] = "model" if weights else kind if kept else "optimizer" if states else "none"
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
