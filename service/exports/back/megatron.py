"""What do the arguments of Megatron-LM say? A recipe and a layout, and the model where its sizes are all there.

Source: NVIDIA/Megatron-LM@d98e8a64 (core 0.20.0) megatron/training/arguments.py, its defaults included.
"""

from collections.abc import Sequence
from typing import Any

from service.calibration.tables import NotExpressible
from service.exports.back.draft import Draft, Form, drafted, number, text, truth, whole, words
from service.exports.back.entries import Entry
from service.exports.back.megatron_model import MODEL_FORMS, put_model
from service.exports.back.pipeline_layout import even_chunks, layers_of_layout

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

FORMS: dict[str, Form] = {
    **dict.fromkeys(_WHOLE, whole),
    **dict.fromkeys(_TRUTHS, truth),
    **dict.fromkeys(_TEXTS, text),
    **dict.fromkeys(("attention-dropout", "hidden-dropout", "moe-expert-capacity-factor"), number),
    "recompute-modules": words,
    "offload-modules": words,
    **MODEL_FORMS,
}
"""Options that are read."""

UNREAD = (
    "adam-", "attention-softmax", "ckpt-", "clip-grad", "data-", "dataloader-", "decoupled-", "dist-ckpt",
    "distributed-", "eval-", "exit-", "fine-grained-offloading-max", "init-method-std", "load", "log-", "lr",
    "manual-gc", "merge-file", "min-lr", "mock-data", "no-check-for-nan", "no-load", "no-save", "norm-epsilon",
    "num-workers", "overlap-grad-reduce", "overlap-param-gather", "profile", "rotary-", "save", "seed", "split",
    "start-weight-decay", "tensorboard-", "timing-", "tokenizer-", "train-data-path", "use-mcore-models",
    "vocab-file", "wandb-", "weight-decay",
)  # fmt: skip
"""How options begin that are about data, files, logs and learning rates."""

_DTYPES = {name: name for name in ("fp32", "bf16", "fp16", "fp8")}
_FP8 = {
    "delayed": "fp8-tensorwise",
    "tensorwise": "fp8-tensorwise",
    "blockwise": "fp8-blockwise",
    "mxfp8": "mxfp8",
}


def read_megatron(entries: Sequence[Entry]) -> Draft:
    """What the arguments of Megatron-LM say.

    Args:
        entries: the options

    Returns:
        recipe, layout and model

    Raises:
        Refused: an option's value is none that is understood
    """
    draft = drafted(entries, FORMS, UNREAD)
    sparse = put_model(draft)
    _put_layout(draft, sparse=sparse)
    _put_stages(draft)
    _put_batch(draft)
    _put_numbers(draft)
    _put_recompute(draft)
    _put_software(draft, sparse=sparse)
    draft.assumptions.append("the number of processes is not in the arguments: data follows from the cluster's gpus")
    return draft


def _put_layout(draft: Draft, *, sparse: bool) -> None:
    layout = draft.layout
    layout["tensor"] = draft.get("tensor-model-parallel-size", 1)
    layout["context"] = draft.get("context-parallel-size", 1)
    layout["pipeline"] = draft.get("pipeline-model-parallel-size", 1)
    layout["expert"] = draft.get("expert-model-parallel-size", 1)
    if sparse:
        layout["expert_tensor"] = draft.get("expert-tensor-parallel-size", layout["tensor"])
    strategies = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    stage = draft.chosen("data-parallel-sharding-strategy", strategies, "optim_grads_params")
    sharded = int(draft.get("use-distributed-optimizer", False))
    layout["zero_stage"] = stage if draft.get("use-megatron-fsdp") else sharded
    layout["rank_order"] = "tp-cp-ep-pp-dp" if draft.get("use-tp-pp-dp-mapping") else "tp-cp-ep-dp-pp"
    layout["sequence_parallel"] = bool(draft.get("sequence-parallel")) and layout["tensor"] > 1
    if layout["context"] > 1:
        methods = {"p2p": "ring", "a2a": "ulysses", "allgather": "all-gather", "all_gather": "all-gather"}
        layout["context_method"] = draft.chosen("cp-comm-type", methods, "p2p")
    optimizer, activations = draft.get("optimizer-cpu-offload"), draft.get("fine-grained-activation-offloading")
    both = "optimizer-and-activations" if optimizer and activations else "activations"
    layout["offload"] = both if activations else "optimizer" if optimizer else "none"
    if draft.get("num-distributed-optimizer-instances", 1) > 1:
        told = "num-distributed-optimizer-instances divides the replicas: set shard_group to replicas over it"
        draft.assumptions.append(told)


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
        half = draft.chosen("fp8-recipe", _FP8, "delayed")
    if "fp4-format" in draft.settings:
        half = draft.chosen("fp4-recipe", {"nvfp4": "nvfp4"}, "nvfp4")
    recipe["precision"] = half
    in_fp16 = half == "fp16-mixed" and not draft.get("accumulate-allreduce-grads-in-fp32")
    recipe["gradient_dtype"] = "bf16" if draft.get("grad-reduce-in-bf16") else "fp16" if in_fp16 else "fp32"
    recipe["fp8_weights"] = bool(draft.get("fp8-param-gather"))
    optimizers = {"adam": "adamw", "sgd": "sgd-momentum", "muon": "muon", "dist_muon": "muon", "lion": "lion"}
    recipe["optimizer"] = draft.chosen("optimizer", optimizers, "adam")
    if draft.get("use-precision-aware-optimizer"):
        for name, option in (("moment_dtype", "exp-avg-dtype"), ("master_dtype", "main-params-dtype")):
            if option in draft.settings:
                recipe[name] = draft.chosen(option, _DTYPES, "fp32")


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
    implementations = {"transformer_engine": "transformer-engine", "local": "local"}
    implementation = draft.chosen("transformer-impl", implementations, "transformer_engine")
    losses = {"native": "fused", "te": "transformer-engine"}
    fused = draft.chosen("cross-entropy-fusion-impl", losses, "native")
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
        kinds = {"alltoall": "alltoall", "allgather": "allgather", "flex": "flex"}
        stack["dispatcher"] = draft.chosen("moe-token-dispatcher-type", kinds, "allgather")
    draft.recipe["stack"] = stack
    version = draft.get("flash-attention-version")
    flash = f"flash-{version}" if version in (2, 3, 4) else "flash"
    kernels = {"auto": "flash", "flash": flash, "fused": "cudnn", "unfused": "eager", "local": "eager"}
    own = implementation == "local" and not draft.get("use-flash-attn")
    draft.recipe["attention"] = draft.chosen("attention-backend", kernels, "local" if own else "auto")
