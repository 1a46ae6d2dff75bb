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
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.software.stacks import software_of
from service.formats.draft import Converter, Draft, boolean, draft_from, integer, items, number, text
from service.formats.frameworks.megatron_model import (
    CHOICES,
    MODEL_RULES,
    MODEL_SETTINGS,
    chunk_layers,
    even_chunks,
    layers_of_layout,
    put_model,
)
from service.formats.rules import (
    COMMON_RULES,
    NOTHING,
    ExportedFile,
    ExportRequest,
    Fragment,
    Rule,
    Rules,
    Target,
    Version,
    apply_rules,
    chooses,
    combined,
    not_expressible,
    only,
    only_stack,
    stack_default,
    values_of,
    writes,
)
from service.formats.text import Entry, command_text, words_of

_STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}

_STAGES_FIRST = "tp-cp-ep-pp-dp"

_OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")


def _virtual(value: Any, question: CompleteQuestion) -> Fragment:
    if value == 1 or _has_custom_split(question):
        return NOTHING
    return Fragment((("--num-virtual-stages-per-pipeline-rank", value),))


def _has_custom_split(question: CompleteQuestion) -> bool:
    """Whether layers are partitioned as no rule of Megatron-LM's own does it."""
    layout = question.layout
    return layout.stage_layers is not None and partition_layers(layout, question.model) != layout.stage_layers


def _stages(value: Any, question: CompleteQuestion) -> Fragment:
    """Chunks with bars between: E, the layers of each chunk as t, further depths as m, L."""
    if not _has_custom_split(question):
        return NOTHING
    chunks = [f"t*{layers}" if layers else "" for layers in value]
    chunks[0] = f"E,{chunks[0]}".rstrip(",")
    depths = question.model.num_nextn_predict_layers
    chunks[-1] = f"{chunks[-1]},{f'm*{depths},' if depths else ''}L".lstrip(",")
    return Fragment((("--pipeline-model-parallel-layout", "|".join(chunks)),))


def _zero(value: Any, question: CompleteQuestion) -> Fragment:
    if value == 0:
        return NOTHING
    if value == 1:
        return Fragment((("--use-distributed-optimizer", True),))
    fsdp = (("--use-megatron-fsdp", True), ("--data-parallel-sharding-strategy", _STRATEGIES[value]))
    return Fragment((*fsdp, ("--use-distributed-optimizer", True), ("--ckpt-format", "fsdp_dtensor")))


def _groups(value: Any, question: CompleteQuestion) -> Fragment:
    layout = question.layout
    replicas = layout.data * layout.context
    if layout.zero_stage == 0 or value == replicas:
        return NOTHING
    return Fragment((("--num-distributed-optimizer-instances", replicas // value),))


def _reshard(value: Any, question: CompleteQuestion) -> Fragment:
    if question.layout.zero_stage != 3 or value:
        return NOTHING
    return not_expressible(
        "Megatron-FSDP frees gathered weights after the forward pass", "leave reshard_after_forward out"
    )


def _offload(value: Any, question: CompleteQuestion) -> Fragment:
    optimizer = Fragment((("--optimizer-cpu-offload", True), ("--use-precision-aware-optimizer", True)))
    modules = ("--offload-modules", _OFFLOADED)
    waits = (("--fine-grained-offloading-max-inflight-offloads", 1),)
    in_a_graph = waits if software_of(question.recipe).cuda_graphs else ()
    activations = Fragment((("--fine-grained-activation-offloading", True), modules, *in_a_graph))
    found = {"none": NOTHING, "optimizer": optimizer, "activations": activations}
    if value == "optimizer-and-activations":
        return combined(optimizer, activations)
    return found.get(value) or not_expressible("weights stay on the GPU, sharded or not", "offload the optimizer alone")


def _split(option: str) -> Rule:
    return writes(option, lambda value, q: True if value and not _has_custom_split(q) else None)


def _context_method(value: Any, question: CompleteQuestion) -> Fragment:
    names = {"ring": "p2p", "all-gather": "allgather", "ulysses": "a2a"}
    return NOTHING if question.layout.context == 1 else Fragment((("--cp-comm-type", names[value]),))


def _world(value: Any, question: CompleteQuestion) -> Fragment:
    note = f"start it as {question.cluster.gpus} processes: the data degree {value} follows from their number"
    return Fragment(assumptions=(note,))


def _expert_tensor(value: Any, question: CompleteQuestion) -> int | None:
    """Without experts, None; but with stages before replicas, experts must fill one stage of a replica."""
    layout = question.layout
    if question.model.num_experts:
        return int(value)
    is_asked = layout.rank_order == _STAGES_FIRST and layout.pipeline > 1 and layout.context > 1
    return layout.tensor * layout.context if is_asked else None


LAYOUT_RULES: Rules = {
    "layout.data": _world,
    "layout.tensor": writes("--tensor-model-parallel-size"),
    "layout.context": writes("--context-parallel-size"),
    "layout.pipeline": writes("--pipeline-model-parallel-size"),
    "layout.virtual_pipeline": _virtual,
    "layout.expert": writes("--expert-model-parallel-size"),
    "layout.expert_tensor": writes("--expert-tensor-parallel-size", _expert_tensor),
    "layout.zero_stage": _zero,
    "layout.shard_group": _groups,
    "layout.reshard_after_forward": _reshard,
    "layout.sequence_parallel": writes("--sequence-parallel", lambda value, _: True if value else None),
    "layout.context_method": _context_method,
    "layout.virtual_group": writes(
        "--microbatch-group-size-per-virtual-pipeline-stage",
        lambda value, q: None if value == q.layout.pipeline else value,
    ),
    "layout.schedule": only(
        ("1f1b", "interleaved-1f1b"), "Megatron-LM runs 1f1b, interleaved or not, and not {value}", "use one of these"
    ),
    "layout.stage_layers": _stages,
    "layout.embedding_in_split": _split("--account-for-embedding-in-pipeline-split"),
    "layout.loss_in_split": _split("--account-for-loss-in-pipeline-split"),
    "layout.rank_order": writes("--use-tp-pp-dp-mapping", lambda value, _: True if value == _STAGES_FIRST else None),
    "layout.offload": _offload,
}


_WHOLE = (
    "seq-length", "micro-batch-size", "global-batch-size", "train-samples", "train-iters",
    "tensor-model-parallel-size", "context-parallel-size", "pipeline-model-parallel-size",
    "expert-model-parallel-size", "expert-tensor-parallel-size", "num-virtual-stages-per-pipeline-rank",
    "num-layers-per-virtual-pipeline-stage", "microbatch-group-size-per-virtual-pipeline-stage",
    "num-distributed-optimizer-instances", "recompute-num-layers", "make-vocab-size-divisible-by",
    "flash-attention-version",
)  # fmt: skip
_TRUTHS = (
    "bf16", "fp16", "sequence-parallel", "use-distributed-optimizer", "use-megatron-fsdp", "recompute-activations",
    "accumulate-allreduce-grads-in-fp32", "grad-reduce-in-bf16", "use-precision-aware-optimizer", "fp8-param-gather",
    "deterministic-mode", "moe-grouped-gemm", "tp-comm-overlap", "overlap-moe-expert-parallel-comm",
    "no-create-attention-mask-in-dataloader", "no-gradient-accumulation-fusion", "cross-entropy-loss-fusion",
    "optimizer-cpu-offload", "fine-grained-activation-offloading", "account-for-embedding-in-pipeline-split",
    "account-for-loss-in-pipeline-split", "use-flash-attn", "use-tp-pp-dp-mapping",
)  # fmt: skip
_TEXTS = (
    "recompute-granularity", "recompute-method", "data-parallel-sharding-strategy", "optimizer", "attention-backend",
    "transformer-impl", "cross-entropy-fusion-impl", "cuda-graph-impl", "moe-token-dispatcher-type", "cp-comm-type",
    "exp-avg-dtype", "exp-avg-sq-dtype", "main-params-dtype", "fp8-format", "fp8-recipe", "fp4-format", "fp4-recipe",
    "pipeline-model-parallel-layout",
)  # fmt: skip

SETTINGS: dict[str, Converter] = {
    **dict.fromkeys(_WHOLE, integer),
    **dict.fromkeys(_TRUTHS, boolean),
    **dict.fromkeys(_TEXTS, text),
    **dict.fromkeys(("attention-dropout", "hidden-dropout", "moe-expert-capacity-factor"), number),
    "recompute-modules": items,
    "offload-modules": items,
    **MODEL_SETTINGS,
}
"""Options that are read."""

IGNORED = (
    "adam-", "attention-softmax", "ckpt-", "clip-grad", "data-", "dataloader-", "decoupled-", "dist-ckpt",
    "distributed-", "eval-", "exit-", "fine-grained-offloading-max", "init-method-std", "load", "log-", "lr",
    "manual-gc", "merge-file", "min-lr", "mock-data", "no-check-for-nan", "no-load", "no-save", "norm-epsilon",
    "num-workers", "overlap-grad-reduce", "overlap-param-gather", "profile", "rotary-", "save", "seed", "split",
    "start-weight-decay", "tensorboard-", "timing-", "tokenizer-", "train-data-path", "use-mcore-models",
    "vocab-file", "wandb-", "weight-decay",
)  # fmt: skip
"""Prefixes of options about data, files, logs and learning rates."""


def read_megatron(entries: Sequence[Entry]) -> Draft:
    """Draft of Megatron-LM's arguments."""
    draft = draft_from(entries, SETTINGS, IGNORED)
    sparse = put_model(draft)
    _put_layout(draft, sparse=sparse)
    _put_stages(draft)
    _put_batch(draft)
    _put_numbers(draft)
    _put_recompute(draft)
    _put_software(draft, sparse=sparse)
    draft.assumptions.append("the number of processes is not in the arguments: data follows from the cluster's gpus")
    return draft


def _chosen(draft: Draft, option: str, default: str) -> Any:
    return draft.chosen(option, CHOICES[option], default)


def _put_layout(draft: Draft, *, sparse: bool) -> None:
    layout = draft.layout
    layout["tensor"] = draft.get("tensor-model-parallel-size", 1)
    layout["context"] = draft.get("context-parallel-size", 1)
    layout["pipeline"] = draft.get("pipeline-model-parallel-size", 1)
    layout["expert"] = draft.get("expert-model-parallel-size", 1)
    if sparse:
        layout["expert_tensor"] = draft.get("expert-tensor-parallel-size", layout["tensor"])
    stage = _chosen(draft, "data-parallel-sharding-strategy", "optim_grads_params")
    sharded = int(draft.get("use-distributed-optimizer", False))
    layout["zero_stage"] = stage if draft.get("use-megatron-fsdp") else sharded
    layout["rank_order"] = "tp-cp-ep-pp-dp" if draft.get("use-tp-pp-dp-mapping") else "tp-cp-ep-dp-pp"
    layout["sequence_parallel"] = bool(draft.get("sequence-parallel")) and layout["tensor"] > 1
    if layout["context"] > 1:
        layout["context_method"] = _chosen(draft, "cp-comm-type", "p2p")
    optimizer, activations = draft.get("optimizer-cpu-offload"), draft.get("fine-grained-activation-offloading")
    kind = "optimizer-and-activations" if optimizer and activations else "activations"
    layout["offload"] = kind if activations else "optimizer" if optimizer else "none"
    if draft.get("num-distributed-optimizer-instances", 1) > 1:
        note = "num-distributed-optimizer-instances divides the replicas: set shard_group to replicas over it"
        draft.assumptions.append(note)


def _put_stages(draft: Draft) -> None:
    layout, stages = draft.layout, draft.layout["pipeline"]
    layout["embedding_in_split"] = bool(draft.get("account-for-embedding-in-pipeline-split"))
    layout["loss_in_split"] = bool(draft.get("account-for-loss-in-pipeline-split"))
    layout["virtual_pipeline"] = draft.get("num-virtual-stages-per-pipeline-rank", 1)
    each, layers = draft.get("num-layers-per-virtual-pipeline-stage"), draft.get("num-layers")
    if each and layers:
        layout["virtual_pipeline"] = max(1, layers // (stages * each))
    written = "pipeline-model-parallel-layout"
    if draft.get(written):
        try:
            parts = layers_of_layout(draft.get(written))
            layout.update(stage_layers=list(parts), virtual_pipeline=even_chunks(parts, max(1, stages)))
        except NotExpressible:
            fix = "write E, t, m, L and bars, as many parts as stages times chunks"
            raise draft.wrong(written, "not_a_layout", "is no layout of the stages", fix) from None
    group = draft.get("microbatch-group-size-per-virtual-pipeline-stage")
    if group and layout["virtual_pipeline"] > 1:
        layout["virtual_group"] = group


def _put_batch(draft: Draft) -> None:
    recipe = draft.recipe
    for name, option in (("sequence_length", "seq-length"), ("global_batch", "global-batch-size")):
        if option in draft.settings:
            recipe[name] = draft.get(option)
    recipe["micro_batch"] = draft.get("micro-batch-size", 1)
    length, batch = recipe.get("sequence_length"), recipe.get("global_batch")
    if length and "train-samples" in draft.settings:
        recipe["training_tokens"] = float(draft.get("train-samples") * length)
    elif length and batch and "train-iters" in draft.settings:
        recipe["training_tokens"] = float(draft.get("train-iters") * batch * length)
    recipe["dropout_fraction"] = max(draft.get("attention-dropout", 0.1), draft.get("hidden-dropout", 0.1))
    recipe["vocabulary_multiple"] = draft.get("make-vocab-size-divisible-by", 128)
    if "moe-expert-capacity-factor" in draft.settings:
        recipe["expert_capacity_factor"] = draft.get("moe-expert-capacity-factor")


def _put_numbers(draft: Draft) -> None:
    recipe = draft.recipe
    half = "fp16-mixed" if draft.get("fp16") else "bf16-mixed" if draft.get("bf16") else "fp32"
    if "fp8-format" in draft.settings:
        half = _chosen(draft, "fp8-recipe", "delayed")
    if "fp4-format" in draft.settings:
        half = draft.chosen("fp4-recipe", {"nvfp4": "nvfp4"}, "nvfp4")
    recipe["precision"] = half
    in_fp16 = half == "fp16-mixed" and not draft.get("accumulate-allreduce-grads-in-fp32")
    recipe["gradient_dtype"] = "bf16" if draft.get("grad-reduce-in-bf16") else "fp16" if in_fp16 else "fp32"
    recipe["fp8_weights"] = bool(draft.get("fp8-param-gather"))
    recipe["optimizer"] = _chosen(draft, "optimizer", "adam")
    if draft.get("use-precision-aware-optimizer"):
        for name, option in (("moment_dtype", "exp-avg-dtype"), ("master_dtype", "main-params-dtype")):
            if option in draft.settings:
                recipe[name] = _chosen(draft, option, "fp32")


def _put_recompute(draft: Draft) -> None:
    granularity = draft.get("recompute-granularity", "selective" if draft.get("recompute-activations") else "none")
    found: dict[str, Any] = {"granularity": granularity}
    if granularity == "full":
        found["method"] = draft.get("recompute-method", "uniform")
        found["layers"] = draft.get("recompute-num-layers", 1)
    elif granularity == "selective":
        found["modules"] = list(draft.get("recompute-modules", ("core_attn",)))
    draft.recipe["recompute"] = found if granularity != "none" else "none"


def _put_software(draft: Draft, *, sparse: bool) -> None:
    implementation = _chosen(draft, "transformer-impl", "transformer_engine")
    fused = _chosen(draft, "cross-entropy-fusion-impl", "native")
    stack = {
        "name": "megatron-core",
        "implementation": implementation,
        "cross_entropy": fused if draft.get("cross-entropy-loss-fusion") else "vocab-parallel",
        "gradient_fusion": not draft.get("no-gradient-accumulation-fusion"),
        "deterministic": bool(draft.get("deterministic-mode")),
        "tensor_overlap": bool(draft.get("tp-comm-overlap")),
        "cuda_graphs": draft.get("cuda-graph-impl", "none") == "full_iteration",
        "expert_overlap": bool(draft.get("overlap-moe-expert-parallel-comm")),
        "attention_mask": not draft.get("no-create-attention-mask-in-dataloader"),
        "grouped_experts": bool(draft.get("moe-grouped-gemm")),
    }
    if sparse:
        stack["dispatcher"] = _chosen(draft, "moe-token-dispatcher-type", "allgather")
    draft.recipe["stack"] = stack
    version = draft.get("flash-attention-version")
    flash = f"flash-{version}" if version in (2, 3, 4) else "flash"
    kernels = {"auto": "flash", "flash": flash, "fused": "cudnn", "unfused": "eager", "local": "eager"}
    own = implementation == "local" and not draft.get("use-flash-attn")
    draft.recipe["attention"] = draft.chosen("attention-backend", kernels, "local" if own else "auto")


_OWN = "choose a value that Megatron-LM has, or extend its training script"

_PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16-mixed": {"--bf16": True},
    "fp16-mixed": {"--fp16": True},
    "fp8-tensorwise": {"--bf16": True, "--fp8-format": "hybrid", "--fp8-recipe": "tensorwise"},
    "fp8-blockwise": {"--bf16": True, "--fp8-format": "e4m3", "--fp8-recipe": "blockwise"},
    "mxfp8": {"--bf16": True, "--fp8-format": "e4m3", "--fp8-recipe": "mxfp8"},
    "nvfp4": {"--bf16": True, "--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"},
}

_ATTENTION: dict[str, dict[str, Any]] = {
    "flash": {},
    "eager": {"--attention-backend": "unfused"},
    "cudnn": {"--attention-backend": "fused"},
    **{
        f"flash-{version}": {"--attention-backend": "flash", "--flash-attention-version": version}
        for version in (2, 3, 4)
    },
}

_LOSSES: dict[str, dict[str, Any]] = {"vocab-parallel": {}, "fused": {"--cross-entropy-loss-fusion": True}}


def _samples(value: Any, question: CompleteQuestion) -> Fragment:
    if value is None:
        note = "the question names no training_tokens, so add --train-iters or --train-samples"
        return Fragment(assumptions=(note,))
    return Fragment((("--train-samples", ceil(value / question.recipe.sequence_length)),))


def _gradients(value: Any, question: CompleteQuestion) -> Fragment:
    if value == "bf16":
        return Fragment((("--grad-reduce-in-bf16", True),))
    if value == "fp16":
        note = "gradients are in fp16 as --fp16 does without --accumulate-allreduce-grads-in-fp32"
        return Fragment(assumptions=(note,))
    return Fragment((("--accumulate-allreduce-grads-in-fp32", True),))


def _recompute(value: Any, question: CompleteQuestion) -> Fragment:
    if value.granularity == "none":
        return NOTHING
    if value.granularity == "selective":
        if "op" in value.modules:
            return not_expressible("recompute by operation is another stack's", "name modules, such as core_attn")
        modules = (("--recompute-modules", value.modules),) if value.modules else ()
        return Fragment((("--recompute-granularity", "selective"), *modules))
    layers = value.layers or (1 if value.method == "uniform" else max(chunk_layers(question)))
    settings = (
        ("--recompute-granularity", "full"),
        ("--recompute-method", value.method),
        ("--recompute-num-layers", layers),
    )
    return Fragment(settings)


def _implementation(value: Any, question: CompleteQuestion) -> Fragment:
    if value == "transformer-engine":
        return Fragment((("--transformer-impl", "transformer_engine"),))
    if value == "local":
        return Fragment((("--transformer-impl", "local"),))
    return not_expressible("Megatron-LM runs Transformer Engine's layers or its own", _OWN)


def _dispatcher(value: Any, question: CompleteQuestion) -> Any:
    return (value or "alltoall") if question.model.num_experts else None


def _moments(value: Any, question: CompleteQuestion) -> Fragment:
    if value is None:
        return NOTHING
    formats = (("--exp-avg-dtype", value), ("--exp-avg-sq-dtype", value))
    return Fragment((("--use-precision-aware-optimizer", True), *formats))


def _master(value: Any, question: CompleteQuestion) -> Fragment:
    if value is None:
        return NOTHING
    if value == "bf16":
        return not_expressible("the master copy is in fp32 or fp16", "leave master_dtype out")
    return Fragment((("--use-precision-aware-optimizer", True), ("--main-params-dtype", value)))


def _dropout(value: Any, question: CompleteQuestion) -> Fragment:
    return Fragment((("--attention-dropout", value), ("--hidden-dropout", value)))


def _tensor_overlap(value: Any, question: CompleteQuestion) -> Any:
    return True if value and question.layout.tensor > 1 and question.layout.sequence_parallel else None


def _expert_overlap(value: Any, question: CompleteQuestion) -> Fragment:
    if not value:
        return NOTHING
    if question.layout.pipeline > 1 and question.layout.virtual_pipeline == 1:
        return not_expressible(
            "Megatron-LM runs one micro-batch beside another in a pipeline only where stages have several chunks",
            "set virtual_pipeline above 1, or leave expert_overlap out",
        )
    return Fragment((("--overlap-moe-expert-parallel-comm", True),))


def _kernel(value: Any, question: CompleteQuestion) -> Fragment:
    if software_of(question.recipe).implementation == "local" and value.startswith("flash"):
        return Fragment((("--use-flash-attn", True),))
    return chooses(_ATTENTION, "Megatron-LM has no option for the kernel {value}", _OWN)(value, question)


def _loss(value: Any, question: CompleteQuestion) -> Fragment:
    if value == "transformer-engine":
        return not_expressible(
            "Megatron-LM turned Transformer Engine's cross entropy off in Megatron-Core 0.19",
            "use vocab-parallel or fused, or leave cross_entropy out",
        )
    return chooses(_LOSSES, "Megatron-LM has no loss of the kind {value}", _OWN)(value, question)


def environment_of(question: CompleteQuestion) -> dict[str, str]:
    """Environment variables that Megatron-LM needs.

    Source:
        NVIDIA/Megatron-LM@d98e8a64 megatron/training/arguments.py validate_args
    """
    found = {} if question.layout.zero_stage >= 2 else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    if question.layout.offload in ("activations", "optimizer-and-activations"):
        found["NVTE_CPU_OFFLOAD_V1"] = "1"
    return found


def environment_notes(question: CompleteQuestion) -> list[str]:
    """Note on those variables."""
    variables = " ".join(f"{name}={value}" for name, value in environment_of(question).items())
    return [f"it runs with {variables} in its environment"] if variables else []


def _is_on(value: Any, question: CompleteQuestion) -> Any:
    return True if value else None


SOFTWARE_RULES: Rules = {
    "recipe.stack.name": only_stack("Megatron-LM", "megatron-core"),
    "recipe.stack.implementation": _implementation,
    "recipe.stack.cross_entropy": _loss,
    "recipe.stack.gradient_fusion": writes(
        "--no-gradient-accumulation-fusion", lambda value, _: None if value else True
    ),
    "recipe.stack.fused_update": stack_default("fused_update", "the optimizer's kernel cannot be chosen", _OWN),
    "recipe.stack.deterministic": writes("--deterministic-mode", _is_on),
    "recipe.stack.grouped_experts": writes(
        "--moe-grouped-gemm", lambda value, q: True if value and q.model.num_experts else None
    ),
    "recipe.stack.tensor_overlap": writes("--tp-comm-overlap", _tensor_overlap),
    "recipe.stack.cuda_graphs": chooses(
        {False: {}, True: {"--cuda-graph-impl": "full_iteration", "--no-check-for-nan-in-loss-and-grad": True}}, "", ""
    ),
    "recipe.stack.expert_overlap": _expert_overlap,
    "recipe.stack.dispatcher": writes("--moe-token-dispatcher-type", _dispatcher),
    "recipe.stack.attention_mask": writes(
        "--no-create-attention-mask-in-dataloader", lambda value, _: None if value else True
    ),
}

RECIPE_RULES: Rules = {
    "recipe.sequence_length": writes("--seq-length"),
    "recipe.micro_batch": writes("--micro-batch-size"),
    "recipe.global_batch": writes("--global-batch-size"),
    "recipe.training_tokens": _samples,
    "recipe.precision": chooses(_PRECISIONS, "Megatron-LM does not train in {value}", _OWN),
    "recipe.gradient_dtype": _gradients,
    "recipe.optimizer": chooses(
        {
            "adamw": {"--optimizer": "adam"},
            "sgd-momentum": {"--optimizer": "sgd"},
            "muon": {"--optimizer": "muon"},
            "lion": {"--optimizer": "lion"},
        },
        "Megatron-LM has no optimizer {value}",
        _OWN,
    ),
    "recipe.recompute": _recompute,
    "recipe.attention": _kernel,
    "recipe.dropout_fraction": _dropout,
    "recipe.moment_dtype": _moments,
    "recipe.master_dtype": _master,
    "recipe.fp8_weights": writes("--fp8-param-gather", _is_on),
    "recipe.expert_capacity_factor": writes("--moe-expert-capacity-factor"),
    "recipe.vocabulary_multiple": writes("--make-vocab-size-divisible-by"),
}


RULES: Rules = {**MODEL_RULES, **COMMON_RULES, **RECIPE_RULES, **SOFTWARE_RULES, **LAYOUT_RULES}


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
