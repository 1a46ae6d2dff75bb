"""How does DeepSpeed want a question written? As the JSON that deepspeed.initialize takes.

Source: DeepSpeed 0.19.8 runtime/config.py, runtime/zero/config.py, runtime/precision_config.py,
runtime/tensor_parallel/config.py, runtime/activation_checkpointing/config.py.
"""

from collections.abc import Sequence
from typing import Any

from service.estimator.question import Question, filled
from service.formats.draft import Draft, Form, drafted, text, truth, whole
from service.formats.rules import (
    LEFT,
    NOTHING,
    SCRIPT,
    Job,
    Rules,
    Said,
    Target,
    Version,
    Written,
    both,
    chooses,
    lacking,
    only_stack,
    said_of,
    takes_only,
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


def _accumulation(value: Any, question: Question) -> Said:
    """Batch of all replicas, of one, and the steps between: DeepSpeed asks that they agree."""
    steps = value // (question.recipe.micro_batch * filled(question.layout.data))
    return Said((("train_batch_size", value), ("gradient_accumulation_steps", steps)))


def _recompute(value: Any, question: Question) -> Said:
    if value.granularity == "none":
        return NOTHING
    if value.granularity == "selective" or value.method == "block" or (value.layers or 1) > 1:
        return lacking("the file counts checkpoints of whole layers, and the script makes them", SCRIPT)
    count = ("activation_checkpointing.number_checkpoints", question.model.num_hidden_layers)
    told = "the script has to call deepspeed.checkpointing, or enable gradient checkpointing, itself"
    return Said((("activation_checkpointing.partition_activations", False), count), assumptions=(told,))


def _precision(value: Any, question: Question) -> Said:
    if value == "bf16" and question.layout.zero_stage == 0:
        plain = Said((("bf16.enabled", True),))
        return both(plain, lacking("without ZeRO the master copy is in fp32", "use zero_stage 1, or bf16-mixed"))
    if value == "bf16":
        names = ("bf16.enabled", "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states")
        return Said(tuple((name, True) for name in names))
    return chooses(_PRECISIONS, "DeepSpeed does not train in {value}", _OWN)(value, question)


def _moments(value: Any, question: Question) -> Said:
    if value is None or (value == "fp32" and question.recipe.precision != "bf16"):
        return NOTHING
    has_master = question.recipe.master_dtype == "bf16" and question.layout.zero_stage != 0
    if value == "bf16" and has_master and (question.recipe.precision or "").startswith("bf16"):
        return Said((("bf16.bf16_optimizer_states", True),))
    return lacking(f"moments in {value} come with a master copy in bf16 alone", "set master_dtype to bf16 too")


def _master(value: Any, question: Question) -> Said:
    if value is None or value == "fp32":
        return NOTHING
    if not (question.recipe.precision or "").startswith(value):
        return lacking(f"a master copy in {value} comes with weights in {value}", "leave master_dtype out")
    if question.layout.zero_stage == 0:
        return lacking(f"without ZeRO the master copy is in fp32, not in {value}", "use zero_stage 1")
    return Said(((f"{value}.{value}_master_weights_and_grads", True),))


def _groups(value: Any, question: Question) -> Said:
    layout = question.layout
    if layout.zero_stage == 0 or value == filled(layout.data) * layout.context:
        return NOTHING
    return lacking("states are sharded over all replicas; MiCS shards over fewer in code", "leave shard_group out")


def _reshard(value: Any, question: Question) -> Said:
    if question.layout.zero_stage != 3 or value:
        return NOTHING
    return lacking("gathered weights are freed after the forward pass", "leave reshard_after_forward out")


def _context(value: Any, question: Question) -> Said:
    return NOTHING if value == 1 else Said((("sequence_parallel_size", value),))


def _context_method(value: Any, question: Question) -> Said:
    if question.layout.context == 1 or value == "ulysses":
        return NOTHING
    return lacking("context ranks exchange heads", "set context_method to ulysses")


def _offload(value: Any, question: Question) -> Said:
    states = Said((("zero_optimization.offload_optimizer.device", "cpu"),))
    weights = both(states, Said((("zero_optimization.offload_param.device", "cpu"),)))
    if value in ("activations", "optimizer-and-activations"):
        found = Said((("activation_checkpointing.cpu_checkpointing", True),))
        if question.recipe.recompute == "none":
            found = lacking("only what recompute keeps goes to host memory", "set recompute to full")
        return both(found, states) if value != "activations" else found
    return {"none": NOTHING, "optimizer": states, "model": weights}[value]


def _stages(value: Any, question: Question) -> Said:
    if value == 1:
        return NOTHING
    told = "the script makes the pipeline: PipelineModule with as many stages"
    return Said((("pipeline.stages", value),), assumptions=(told,))


def _tensor(value: Any, question: Question) -> Said:
    if value == 1:
        return NOTHING
    return Said((("tensor_parallel.autotp_size", value),), assumptions=("matrices are split by AutoTP",))


def _expert_tensor(value: Any, question: Question) -> Said:
    usual = 1 if question.layout.expert > 1 else question.layout.tensor
    if not question.model.num_experts or value == usual:
        return NOTHING
    return lacking("how experts' matrices are split is said in code", SCRIPT)


RULES: Rules = {
    **LEFT,
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
    "layout.data": lambda value, q: Said(
        assumptions=(f"start it as {q.cluster.gpus} processes: the data degree {value} follows from their number",)
    ),
    "layout.tensor": _tensor,
    "layout.context": _context,
    "layout.pipeline": _stages,
    "layout.expert": takes_only((1,), "how experts are split is said in code", "give ep_size to deepspeed.moe.MoE"),
    "layout.expert_tensor": _expert_tensor,
    "layout.zero_stage": writes("zero_optimization.stage"),
    "layout.shard_group": _groups,
    "layout.reshard_after_forward": _reshard,
    "layout.sequence_parallel": lambda value, q: (
        lacking("tensor ranks keep norms whole", "leave sequence_parallel out")
        if value and q.layout.tensor > 1
        else NOTHING
    ),
    "layout.context_method": _context_method,
    "layout.schedule": takes_only(("1f1b",), "DeepSpeed's pipeline runs 1f1b, and not {value}", "use 1f1b"),
    "layout.offload": _offload,
}
"""How each field is written."""


def _write(job: Job) -> Written:
    said, unsaid = said_of(RULES, values_of(job.question), job.question)
    settings = tuple({**dict(said.settings), "gradient_clipping": 1.0}.items())
    assumptions = (*said.assumptions, "the learning rate, and all that the script says, are yours to set")
    return Written(content=json_text(nested(settings)), not_expressible=unsaid, assumptions=assumptions)


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
"""A configuration of DeepSpeed."""


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
    """What a file of DeepSpeed says."""
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
