"""Megatron-LM: the arguments of pretrain_gpt.py.

Source: NVIDIA/Megatron-LM@d98e8a64 (core 0.20.0) megatron/training/arguments.py, its defaults included, and the
configurations that its groups of options are made of: transformer_config.py, model_parallel_config.py,
optimizer_config.py, training_config.py.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

from service.calibration.tables import NotExpressible
from service.estimator.complete import CompleteQuestion
from service.estimator.software.stacks import software_of
from service.formats.frameworks.megatron_model import (
    MODEL_RULES,
    chunk_layers,
    even_chunks,
    layers_of_layout,
    put_model,
)
from service.formats.rules import (
    COMBINED,
    COMMON_RULES,
    DATA_FROM_PROCESSES,
    Draft,
    ExportedFile,
    ExportRequest,
    Fragment,
    Option,
    Rules,
    Target,
    Version,
    Writer,
    Written,
    apply_rules,
    chooses,
    draft_reader,
    framework_table,
    has_custom_split,
    needs,
    not_expressible,
    only_stack,
    options_of,
    rules_of,
    shards_over_all,
    text,
    values_of,
)
from service.formats.text import Entry, command_text, words_of

CONTEXT_METHODS = {"p2p": "ring", "a2a": "ulysses", "allgather": "all-gather", "all_gather": "all-gather"}
"""Methods of cp-comm-type."""

SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO stages of data-parallel-sharding-strategy."""

FP8_RECIPES = {
    "delayed": "fp8-tensorwise", "tensorwise": "fp8-tensorwise", "blockwise": "fp8-blockwise", "mxfp8": "mxfp8",
}  # fmt: skip
"""Precision recipes of fp8-recipe."""

FUSED_LOSSES = {"native": "fused", "te": "transformer-engine"}
"""Losses of cross-entropy-fusion-impl."""

DTYPES = {name: name for name in ("fp32", "bf16", "fp16", "fp8")}
"""Formats of the optimizer's states."""

_STAGES_FIRST = "tp-cp-ep-pp-dp"

_OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")


def _stage_layout(value: Any, question: CompleteQuestion) -> str | None:
    """Layout, a bar between chunks: E is the embedding, t a layer, m a prediction depth, and L the loss."""
    if not has_custom_split(question):
        return None
    chunks = [f"t*{layers}" if layers else "" for layers in value]
    chunks[0] = f"E,{chunks[0]}".rstrip(",")
    depths = question.model.num_nextn_predict_layers
    chunks[-1] = f"{chunks[-1]},{f'm*{depths},' if depths else ''}L".lstrip(",")
    return "|".join(chunks)


def _sharding(value: Any, question: CompleteQuestion) -> Written:
    if value == 0:
        return None
    fsdp = {"use-megatron-fsdp": True, "data-parallel-sharding-strategy": list(SHARDING)[value]}
    distributed = {"use-distributed-optimizer": True}
    return distributed if value == 1 else {**fsdp, **distributed, "ckpt-format": "fsdp_dtensor"}


def _optimizer_instances(value: Any, question: CompleteQuestion) -> Written:
    replicas = question.layout.data * question.layout.context
    return None if shards_over_all(value, question) else {"num-distributed-optimizer-instances": replicas // value}


def _offload(value: Any, question: CompleteQuestion) -> Written:
    has_cuda_graphs = software_of(question.recipe).cuda_graphs
    optimizer = {"optimizer-cpu-offload": True, "use-precision-aware-optimizer": True}
    activations: dict[str, Any] = {"fine-grained-activation-offloading": True, "offload-modules": _OFFLOADED}
    activations |= {"fine-grained-offloading-max-inflight-offloads": 1} if has_cuda_graphs else {}
    options = {"none": {}, "optimizer": optimizer, "activations": activations}
    options["optimizer-and-activations"] = optimizer | activations
    if value not in options:
        return not_expressible("weights stay on the GPU, sharded or not", "offload the optimizer alone")
    return options[value]


def _unless_default(default: Any) -> Writer:
    """Writer of values other than the default, where the question does not list the layers of each stage."""
    return lambda value, q: None if value == default or has_custom_split(q) else value


def _expert_tensor(value: Any, question: CompleteQuestion) -> int | None:
    """None without experts, unless stages are numbered first: expert ranks must then fill a stage of a replica."""
    layout = question.layout
    if question.model.num_experts:
        return int(value)
    is_required = layout.rank_order == _STAGES_FIRST and layout.pipeline > 1 and layout.context > 1
    return layout.tensor * layout.context if is_required else None


_USE_ANOTHER = "choose a value that Megatron-LM has, or extend its training script"

_ATTENTION: dict[str, dict[str, Any]] = {
    "flash": {},
    "eager": {"attention-backend": "unfused"},
    "cudnn": {"attention-backend": "fused"},
    **{f"flash-{version}": {"attention-backend": "flash", "flash-attention-version": version} for version in (2, 3, 4)},
}

_LOSSES: dict[str, dict[str, Any]] = {"vocab-parallel": {}, "fused": {"cross-entropy-loss-fusion": True}}


def _samples(value: Any, question: CompleteQuestion) -> Written:
    if value is None:
        note = "the question names no training_tokens, so add --train-iters or --train-samples"
        return Fragment(assumptions=(note,))
    return {"train-samples": ceil(value / question.recipe.sequence_length)}


def _gradients(value: Any, question: CompleteQuestion) -> Written:
    if value == "fp16":
        note = "gradients are in fp16 as --fp16 does without --accumulate-allreduce-grads-in-fp32"
        return Fragment(assumptions=(note,))
    return {"grad-reduce-in-bf16" if value == "bf16" else "accumulate-allreduce-grads-in-fp32": True}


def _recompute(value: Any, question: CompleteQuestion) -> Written:
    granularity = {"recompute-granularity": value.granularity}
    if value.granularity == "none":
        return None
    if value.granularity == "selective":
        if "op" in value.modules:
            return not_expressible("recompute by operation is another stack's", "name modules, such as core_attn")
        return {**granularity, "recompute-modules": value.modules} if value.modules else granularity
    layers = value.layers or (1 if value.method == "uniform" else max(chunk_layers(question)))
    return {**granularity, "recompute-method": value.method, "recompute-num-layers": layers}


def _moments(value: Any, question: CompleteQuestion) -> Written:
    return value and {"use-precision-aware-optimizer": True, "exp-avg-dtype": value, "exp-avg-sq-dtype": value}


def _master_weights(value: Any, question: CompleteQuestion) -> Written:
    if value == "bf16":
        return not_expressible("the master copy is in fp32 or fp16", "leave master_dtype out")
    return value and {"use-precision-aware-optimizer": True, "main-params-dtype": value}


def _expert_overlap(value: Any, question: CompleteQuestion) -> Any:
    if value and question.layout.pipeline > 1 and question.layout.virtual_pipeline == 1:
        return not_expressible(
            "Megatron-LM runs one micro-batch beside another in a pipeline only where stages have several chunks",
            "set virtual_pipeline above 1, or leave expert_overlap out",
        )
    return value or None


def _kernel(value: Any, question: CompleteQuestion) -> Written:
    if software_of(question.recipe).implementation == "local" and value.startswith("flash"):
        return {"use-flash-attn": True}
    return chooses(_ATTENTION, "Megatron-LM has no option for the kernel {value}", _USE_ANOTHER)(value, question)


def _loss(value: Any, question: CompleteQuestion) -> Written:
    if value == "transformer-engine":
        return not_expressible(
            "Megatron-LM turned Transformer Engine's cross entropy off in Megatron-Core 0.19",
            "use vocab-parallel or fused, or leave cross_entropy out",
        )
    return chooses(_LOSSES, "Megatron-LM has no loss of the kind {value}", _USE_ANOTHER)(value, question)


def environment_of(question: CompleteQuestion) -> dict[str, str]:
    """Environment variables that Megatron-LM needs.

    Source:
        NVIDIA/Megatron-LM@d98e8a64 megatron/training/arguments.py validate_args
    """
    variables = {} if question.layout.zero_stage >= 2 else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    if question.layout.offload in ("activations", "optimizer-and-activations"):
        variables["NVTE_CPU_OFFLOAD_V1"] = "1"
    return variables


def environment_notes(question: CompleteQuestion) -> list[str]:
    """Note that names the variables of `environment_of`."""
    variables = " ".join(f"{name}={value}" for name, value in environment_of(question).items())
    return [f"it runs with {variables} in its environment"] if variables else []


_TABLE = framework_table("megatron", "model", "rules", "read")

RULES: Rules = {
    **MODEL_RULES,
    **COMMON_RULES,
    **rules_of(
        _TABLE["rules"],
        {
            "recipe.training_tokens": _samples,
            "recipe.gradient_dtype": _gradients,
            "recipe.recompute": _recompute,
            "recipe.attention": _kernel,
            "recipe.dropout_fraction": lambda value, _: {"attention-dropout": value, "hidden-dropout": value},
            "recipe.moment_dtype": _moments,
            "recipe.master_dtype": _master_weights,
            "recipe.stack.name": only_stack("Megatron-LM", "megatron-core"),
            "recipe.stack.cross_entropy": _loss,
            "recipe.stack.grouped_experts": lambda value, q: True if value and q.model.num_experts else None,
            "recipe.stack.tensor_overlap": lambda value, q: (
                (value and q.layout.tensor > 1 and q.layout.sequence_parallel) or None
            ),
            "recipe.stack.cuda_graphs": chooses(
                {False: {}, True: {"cuda-graph-impl": "full_iteration", "no-check-for-nan-in-loss-and-grad": True}},
                "",
                "",
            ),
            "recipe.stack.expert_overlap": _expert_overlap,
            "recipe.stack.dispatcher": lambda value, q: (value or "alltoall") if q.model.num_experts else None,
            "layout.data": DATA_FROM_PROCESSES,
            "layout.virtual_pipeline": _unless_default(1),
            "layout.expert_tensor": _expert_tensor,
            "layout.zero_stage": _sharding,
            "layout.shard_group": _optimizer_instances,
            "layout.reshard_after_forward": needs(
                lambda value, q: q.layout.zero_stage != 3 or value,
                "Megatron-FSDP frees gathered weights after the forward pass",
                "leave reshard_after_forward out",
            ),
            "layout.context_method": Option(
                "cp-comm-type", text, COMBINED, CONTEXT_METHODS, when=lambda q: q.layout.context > 1
            ),
            "layout.virtual_group": lambda value, q: None if value == q.layout.pipeline else value,
            "layout.stage_layers": _stage_layout,
            "layout.embedding_in_split": _unless_default(default=False),
            "layout.loss_in_split": _unless_default(default=False),
            "layout.offload": _offload,
        },
    ),
}

_READ = draft_reader(RULES, _TABLE["read"])


def read_megatron(entries: Sequence[Entry]) -> Draft:
    """Draft of Megatron-LM's arguments."""
    draft = _READ(entries)
    sparse = put_model(draft)
    _put_layout(draft, sparse=sparse)
    _put_stages(draft)
    _put_recipe(draft)
    _put_precision(draft)
    _put_recompute(draft)
    _put_software(draft, sparse=sparse)
    draft.assumptions.append("the number of processes is not in the arguments: data follows from the cluster's gpus")
    return draft


def _put_layout(draft: Draft, *, sparse: bool) -> None:
    layout = draft.layout
    layout |= draft.fields_of(RULES, "layout")
    if sparse:
        layout.setdefault("expert_tensor", layout["tensor"])
    else:
        layout.pop("expert_tensor", None)
    stage = draft.chosen("data-parallel-sharding-strategy", SHARDING, "optim_grads_params")
    sharded = int(draft.get("use-distributed-optimizer", False))
    layout["zero_stage"] = stage if draft.get("use-megatron-fsdp") else sharded
    layout["sequence_parallel"] &= layout["tensor"] > 1
    if layout["context"] > 1:
        layout["context_method"] = draft.chosen("cp-comm-type", CONTEXT_METHODS, "p2p")
    optimizer, activations = draft.get("optimizer-cpu-offload"), draft.get("fine-grained-activation-offloading")
    kind = "optimizer-and-activations" if optimizer and activations else "activations"
    layout["offload"] = kind if activations else "optimizer" if optimizer else "none"
    if draft.get("num-distributed-optimizer-instances", 1) > 1:
        note = "num-distributed-optimizer-instances divides the replicas: set shard_group to replicas over it"
        draft.assumptions.append(note)


def _put_stages(draft: Draft) -> None:
    layout, stages = draft.layout, draft.layout["pipeline"]
    layers_each, layers = draft.get("num-layers-per-virtual-pipeline-stage"), draft.get("num-layers")
    if layers_each and layers:
        layout["virtual_pipeline"] = max(1, layers // (stages * layers_each))
    option = "pipeline-model-parallel-layout"
    if draft.get(option):
        try:
            parts = layers_of_layout(draft.get(option))
            layout.update(stage_layers=list(parts), virtual_pipeline=even_chunks(parts, max(1, stages)))
        except NotExpressible:
            fix = "write E, t, m, L and bars, as many parts as stages times chunks"
            raise draft.wrong(option, "not_a_layout", "is no layout of the stages", fix) from None
    if not layout.get("virtual_group") or layout["virtual_pipeline"] <= 1:
        layout.pop("virtual_group", None)


def _put_recipe(draft: Draft) -> None:
    recipe = draft.recipe
    recipe |= draft.fields_of(RULES, "recipe")
    length, batch = recipe.get("sequence_length"), recipe.get("global_batch")
    if length and "train-samples" in draft.settings:
        recipe["training_tokens"] = float(draft.get("train-samples") * length)
    elif length and batch and "train-iters" in draft.settings:
        recipe["training_tokens"] = float(draft.get("train-iters") * batch * length)
    recipe["dropout_fraction"] = max(draft.get("attention-dropout", 0.1), draft.get("hidden-dropout", 0.1))


def _put_precision(draft: Draft) -> None:
    recipe = draft.recipe
    precision = "fp16-mixed" if draft.get("fp16") else "bf16-mixed" if draft.get("bf16") else "fp32"
    if "fp8-format" in draft.settings:
        precision = draft.chosen("fp8-recipe", FP8_RECIPES, "delayed")
    if "fp4-format" in draft.settings:
        precision = draft.chosen("fp4-recipe", {"nvfp4": "nvfp4"}, "nvfp4")
    recipe["precision"] = precision
    in_fp16 = precision == "fp16-mixed" and not draft.get("accumulate-allreduce-grads-in-fp32")
    recipe["gradient_dtype"] = "bf16" if draft.get("grad-reduce-in-bf16") else "fp16" if in_fp16 else "fp32"
    if draft.get("use-precision-aware-optimizer"):
        for name, option in (("moment_dtype", "exp-avg-dtype"), ("master_dtype", "main-params-dtype")):
            if option in draft.settings:
                recipe[name] = draft.chosen(option, DTYPES, "fp32")


def _put_recompute(draft: Draft) -> None:
    granularity = draft.get("recompute-granularity", "selective" if draft.get("recompute-activations") else "none")
    recompute: dict[str, Any] = {"granularity": granularity}
    if granularity == "full":
        recompute["method"] = draft.get("recompute-method", "uniform")
        recompute["layers"] = draft.get("recompute-num-layers", 1)
    elif granularity == "selective":
        recompute["modules"] = list(draft.get("recompute-modules", ("core_attn",)))
    draft.recipe["recompute"] = recompute if granularity != "none" else "none"


def _put_software(draft: Draft, *, sparse: bool) -> None:
    stack = {"name": "megatron-core", **draft.fields_of(RULES, "recipe.stack")}
    fused = draft.chosen("cross-entropy-fusion-impl", FUSED_LOSSES, "native")
    stack["cross_entropy"] = fused if draft.get("cross-entropy-loss-fusion") else "vocab-parallel"
    stack["cuda_graphs"] = draft.get("cuda-graph-impl", "none") == "full_iteration"
    if sparse:
        choices = options_of(RULES)["recipe.stack.dispatcher"].choices
        stack["dispatcher"] = draft.chosen("moe-token-dispatcher-type", choices, "allgather")
    draft.recipe["stack"] = stack
    version = draft.get("flash-attention-version")
    flash = f"flash-{version}" if version in (2, 3, 4) else "flash"
    kernels = {"auto": "flash", "flash": flash, "fused": "cudnn", "unfused": "eager", "local": "eager"}
    own = stack["implementation"] == "local" and not draft.get("use-flash-attn")
    draft.recipe["attention"] = draft.chosen("attention-backend", kernels, "local" if own else "auto")


def _write(request: ExportRequest) -> ExportedFile:
    fragment, gaps = apply_rules(RULES, values_of(request.question), request.question)
    content = command_text(words_of(fragment.settings)) + "\n"
    note = "paths of data, tokenizer and checkpoints, and the learning rate, are yours to add"
    notes = environment_notes(request.question)
    return ExportedFile(content=content, not_expressible=gaps, assumptions=(*fragment.assumptions, note, *notes))


MEGATRON_LM = Target(
    name="megatron-lm",
    tool="Megatron-LM",
    kind="training",
    versions={
        "core-0.20": Version(
            covers="main at d98e8a64, Megatron-Core 0.20.0: arguments of pretrain_gpt.py",
            file_name="megatron.args",
            rules=RULES,
        )
    },
    write=_write,
    source="NVIDIA/Megatron-LM@d98e8a64 megatron/training/arguments.py",
)
