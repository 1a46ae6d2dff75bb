"""What does each option of Megatron-LM change in memory? One row an option; one that has none here is refused by name.

`reads` options that others are read with, `sets` a field of the question, `describes` what changes no byte of a rank's
memory, `nearly` what changes some that the question cannot say, `refuses` what changes more.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from service.calibration.tables import NotExpressible


@dataclass(frozen=True, slots=True)
class Flag:
    """What one option does to the question."""

    does: Literal["reads", "sets", "describes", "nearly", "refuses"]
    """How it is dealt with."""
    why: str = ""
    """Why it is refused or only nearly said."""
    path: str = ""
    """Field of the question that it sets."""
    to: Callable[[str], Any] = str
    """The field's value, made of the option's."""


def switched_on(_: str) -> bool:
    """A field's value where the option is given at all."""
    return True


def switched_off(_: str) -> bool:
    """A field's value where the option, which begins with `no`, is given at all."""
    return False


def always(value: Any) -> Callable[[str], Any]:
    """A field's value whatever the option's is."""
    return lambda _: value


def one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    """A field's value by the option's."""
    return lambda said: values[said]


LARGEST = 1 << 24
"""The largest whole number that an option may have."""


def whole_of(flags: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """The whole number of an option.

    >>> whole_of({"mamba-num-heads": "32"}, "mamba-num-heads"), whole_of({}, "mamba-num-heads", 8)
    (32, 8)
    """
    try:
        return whole(str(flags.get(name, default)))
    except ValueError:
        raise NotExpressible(f"flag {name}: no field takes its value") from None


def whole(said: str) -> int:
    """The whole number that an option's text is.

    >>> whole("8")
    8
    """
    if not (said.isascii() and said.isdecimal() and len(said) < 10 and 1 <= int(said) <= LARGEST):
        raise ValueError(said)
    return int(said)


READ = Flag("reads")
DESCRIBES = Flag("describes")


DTYPES = one_of({"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"})

_SETS = {
    "add-qkv-bias": Flag("sets", path="model.attention_bias", to=switched_on),
    "attention-output-gate": Flag("sets", path="model.attention_gate", to=always("elementwise")),
    "moe-latent-size": Flag("sets", path="model.moe_latent_size", to=whole),
    "moe-shared-expert-gate": Flag("sets", path="model.shared_expert_gate", to=switched_on),
    "mtp-num-layers": Flag("sets", path="model.num_nextn_predict_layers", to=whole),
    "normalization": Flag(
        "sets", path="model.normalization", to=one_of({"RMSNorm": "rmsnorm", "LayerNorm": "layernorm"})
    ),
    "softmax-type": Flag(
        "sets", path="model.attention_sinks", to=one_of({"learnable": True, "vanilla": False, "off-by-one": False})
    ),
    "moe-token-dispatcher-type": Flag(
        "sets",
        path="stack.dispatcher",
        to=one_of({"alltoall": "alltoall", "flex": "flex", "allgather": "allgather"}),
    ),
    "moe-grouped-gemm": Flag("sets", path="stack.grouped_experts", to=switched_on),
    "no-create-attention-mask-in-dataloader": Flag("sets", path="stack.attention_mask", to=switched_off),
    "deterministic-mode": Flag("sets", path="stack.deterministic", to=switched_on),
    "no-gradient-accumulation-fusion": Flag("sets", path="stack.gradient_fusion", to=switched_off),
    "transformer-impl": Flag(
        "sets",
        path="stack.implementation",
        to=one_of({"transformer_engine": "transformer-engine", "local": "local"}),
    ),
    "attention-backend": Flag(
        "sets",
        path="recipe.attention",
        to=one_of({"unfused": "eager", "local": "eager", "flash": "flash-2", "fused": "cudnn", "auto": "flash"}),
    ),
    "expert-tensor-parallel-size": Flag("sets", path="layout.expert_tensor", to=whole),
    "moe-expert-capacity-factor": Flag("sets", path="recipe.expert_capacity_factor", to=float),
    "fp8-param-gather": Flag("sets", path="recipe.fp8_weights", to=switched_on),
    "grad-reduce-in-bf16": Flag("sets", path="recipe.gradient_dtype", to=always("bf16")),
    "main-grads-dtype": Flag("sets", path="recipe.gradient_dtype", to=DTYPES),
    "megatron-fsdp-main-grads-dtype": Flag("sets", path="recipe.gradient_dtype", to=DTYPES),
    "megatron-fsdp-main-params-dtype": Flag("sets", path="recipe.master_dtype", to=DTYPES),
    "main-params-dtype": Flag("sets", path="recipe.master_dtype", to=DTYPES),
    "exp-avg-dtype": Flag("sets", path="recipe.moment_dtype", to=DTYPES),
    "exp-avg-sq-dtype": Flag("sets", path="recipe.moment_dtype", to=DTYPES),
    "optimizer": Flag(
        "sets", path="recipe.optimizer", to=one_of({"adam": "adamw", "muon": "muon", "sgd": "sgd-momentum"})
    ),
    "optimizer-cpu-offload": Flag("sets", path="layout.offload", to=always("optimizer")),
    "fine-grained-activation-offloading": Flag("sets", path="layout.offload", to=always("activations")),
    "account-for-embedding-in-pipeline-split": Flag("sets", path="layout.embedding_in_split", to=switched_on),
    "account-for-loss-in-pipeline-split": Flag("sets", path="layout.loss_in_split", to=switched_on),
    "microbatch-group-size-per-virtual-pipeline-stage": Flag("sets", path="layout.virtual_group", to=whole),
    "num-virtual-stages-per-pipeline-rank": Flag("sets", path="layout.virtual_pipeline", to=whole),
    "cp-comm-type": Flag(
        "sets", path="layout.context_method", to=one_of({"p2p": "ring", "a2a": "ulysses", "allgather": "all-gather"})
    ),
    "data-parallel-sharding-strategy": Flag(
        "sets",
        path="layout.zero_stage",
        to=one_of({"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}),
    ),
}

_READ = dict.fromkeys(
    (
        *(
            "position-embedding-type",
            "max-position-embeddings",
            "use-rotary-position-embeddings",
            "disable-bias-linear",
        ),
        *("hidden-dropout", "attention-dropout", "cross-entropy-loss-fusion", "cross-entropy-fusion-impl"),
        *("use-flash-attn", "fp8-format", "fp8-recipe", "qk-layernorm", "multi-latent-attention", "q-lora-rank"),
        *("kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim", "moe-layer-freq"),
        *("hybrid-layer-pattern", "hybrid-override-pattern", "is-hybrid-model", "mamba-head-dim", "mamba-num-heads"),
        *("mamba-num-groups", "mamba-state-dim", "pipeline-model-parallel-layout", "decoder-first-pipeline-num-layers"),
        *("decoder-last-pipeline-num-layers", "num-layers-per-virtual-pipeline-stage"),
        *("num-distributed-optimizer-instances", "spec", "tokenizer-type", "make-vocab-size-divisible-by"),
        *("window-size", "window-attn-skip-freq", "experimental-attention-variant", "linear-attention-freq"),
        *("linear-conv-kernel-dim", "linear-key-head-dim", "linear-num-key-heads", "linear-num-value-heads"),
        *("linear-value-head-dim", "optimizer-offload-fraction"),
    ),
    READ,
)

_IN_COLUMNS = (
    *("bf16", "fp16", "num-layers", "hidden-size", "num-attention-heads", "group-query-attention", "num-query-groups"),
    *("kv-channels", "ffn-hidden-size", "swiglu", "vocab-size", "untie-embeddings-and-output-weights", "num-experts"),
    *("moe-router-topk", "moe-ffn-hidden-size", "moe-shared-expert-intermediate-size", "seq-length"),
    *("micro-batch-size", "global-batch-size", "tensor-model-parallel-size", "pipeline-model-parallel-size"),
    *("context-parallel-size", "expert-model-parallel-size", "sequence-parallel", "use-distributed-optimizer"),
    *("use-megatron-fsdp", "recompute-granularity", "recompute-method", "recompute-modules", "recompute-num-layers"),
    *("padded-vocab-size", "squared-relu"),
)
"""Options that the table's columns say too."""

_WITHOUT_BYTES = (
    *("accumulate-allreduce-grads-in-fp32", "activation-func-clamp-value", "adam-beta1", "adam-beta2", "adam-eps"),
    *("apply-layernorm-1p", "apply-query-key-layer-scaling", "apply-wd-to-qk-layernorm", "attention-softmax-in-fp32"),
    *("calculate-per-token-loss", "ckpt-format", "clip-grad", "ddp-average-in-collective", "ddp-num-buckets"),
    *("ddp-pad-buckets-for-high-nccl-busbw", "decoupled-lr", "decoupled-min-lr", "distributed-backend"),
    *("empty-unused-memory-level", "enable-experimental", "glu-linear-offset", "init-method-std", "lr", "min-lr"),
    *("moe-aux-loss-coeff", "moe-flex-dispatcher-backend", "moe-permute-fusion"),
    *("moe-router-bias-update-rate", "moe-router-dtype", "moe-router-enable-expert-bias", "moe-router-fusion"),
    *("moe-router-group-topk", "moe-router-load-balancing-type", "moe-router-num-groups", "moe-router-pre-softmax"),
    *("moe-router-score-function", "moe-router-topk-scaling-factor", "moe-z-loss-coeff"),
    *("mscale", "mscale-all-dim", "mtp-loss-scaling-factor", "muon-extra-scale-factor", "muon-momentum"),
    *("muon-scale-mode", "no-mmap-bin-files", "norm-epsilon"),
    *("overlap-grad-reduce", "overlap-p2p-communication-warmup-flush", "overlap-param-gather"),
    *("init-model-with-meta-device", "use-cpu-initialization", "disable-gloo-process-groups", "fim-data", "fim-rate"),
    *("fim-spm-rate", "high-priority-stream-groups", "megatron-fsdp-grad-comm-dtype", "model-provider"),
    *("moe-flex-dispatcher-num-sms", "moe-hybridep-num-sms", "no-check-for-nan-in-loss-and-grad"),
    *("no-persist-layer-norm", "no-record-throughput", "no-use-layer-wise-param-layout", "step-batch-size-schedule"),
    *("no-yarn-correction-range-round-to-int", "verify-integrity", "vocab-extra-ids", "yarn-beta-fast"),
    *("yarn-beta-slow", "yarn-original-max-position-embeddings"),
    *("overlap-param-gather-with-optimizer-step", "quick-geglu", "rotary-base", "rotary-interleaved"),
    *("rotary-percent", "rotary-scaling-factor", "te-rng-tracker", "train-iters", "train-samples", "use-mcore-models"),
    *("use-tp-pp-dp-mapping", "use-precision-aware-optimizer", "weight-decay", "use-mup", "mup-base-hidden-size"),
)
"""Options that change no byte of what a rank holds at its peak."""

PREFIXES_WITHOUT_BYTES = (
    *("async-", "auto-detect-ckpt", "check-", "ckpt-", "data-cache-path", "data-path", "dataloader-type", "dist-ckpt-"),
    *("distributed-timeout", "error-injection", "eval-", "exit-", "finetune", "log-", "logging-", "lr-", "load"),
    *("manual-gc", "merge-file", "mock-data", "no-ckpt", "no-load", "no-use-tokenizer", "num-workers", "override-opt"),
    *("profile", "rerun-mode", "save", "seed", "split", "straggler", "tensorboard-", "test-mode", "tiktoken-"),
    *("timing-", "tokenizer-model", "use-checkpoint", "use-persistent", "vocab-file", "wandb-"),
)
"""How options begin that are about files, logs, learning rates and limits of time."""

_NEARLY = {
    "delay-wgrad-compute": "inputs of delayed weight gradients live on",
    "first-last-layers-bf16": "the first and the last layers stay in bf16",
    "moe-pad-expert-input-to-capacity": "every expert works on its whole capacity",
    "moe-router-padding-for-quantization": "experts' tokens are padded to the scales' blocks",
    "moe-shared-expert-overlap": "shared and routed experts work at once",
    "num-layers-at-end-in-bf16": "the last layers stay in bf16",
    "num-layers-at-start-in-bf16": "the first layers stay in bf16",
    "no-bias-gelu-fusion": "the activation keeps more",
    "no-rope-fusion": "rotary positions keep more",
    "offload-modules": "only these modules' activations are offloaded",
    "overlap-moe-expert-parallel-comm": "two micro-batches are in flight at once",
    "reuse-grad-buf-for-mxfp8-param-ag": "gradients and gathered weights share a buffer",
    "use-fused-weighted-squared-relu": "the activation keeps less",
    "use-transformer-engine-op-fuser": "fused experts keep other tensors",
}

_REFUSED = {
    "cpu-offloading": "layers are offloaded by number",
    "cpu-offloading-num-layers": "layers are offloaded by number",
    "cuda-graph-impl": "graphs keep their buffers for good",
    "cuda-graph-modules": "graphs keep their buffers for good",
    "cuda-graph-scope": "graphs keep their buffers for good",
    "defer-embedding-wgrad-compute": "the head's inputs and gradients of many micro-batches live on",
    "distribute-saved-activations": "what recompute keeps is spread over tensor ranks",
    "dsa-indexer-head-dim": "attention over chosen keys",
    "dsa-indexer-loss-coeff": "attention over chosen keys",
    "dsa-indexer-n-heads": "attention over chosen keys",
    "dsa-indexer-topk": "attention over chosen keys",
    "enable-cuda-graph": "graphs keep their buffers for good",
    "export-kd-cfg": "a teacher model is held beside the trained one",
    "export-kd-teacher-load": "a teacher model is held beside the trained one",
    "export-te-mcore-model": "layers of another library are trained",
    "external-cuda-graph": "graphs keep their buffers for good",
    "flextron": "a model of many widths is trained at once",
    "hierarchical-context-parallel-sizes": "context ranks exchange on two levels",
    "moe-layer-recompute": "an older name of selective recompute",
    "mtp-use-repeated-layer": "depths share one layer",
    "no-masked-softmax-fusion": "the softmax keeps copies in other formats",
    "outer-dp-sharding-strategy": "sharding on two levels",
    "perform-rl-step": "not pretraining",
    "tp-comm-overlap": "buffers for overlapped exchange",
    "use-nccl-ub": "buffers registered with the network",
    "use-torch-fsdp2": "PyTorch's sharding inside Megatron-LM",
    "wgrad-deferral-limit": "the head's inputs and gradients of many micro-batches live on",
}

FLAGS: Mapping[str, Flag] = {
    **_READ,
    **_SETS,
    **dict.fromkeys((*_IN_COLUMNS, *_WITHOUT_BYTES), DESCRIBES),
    **{name: Flag("nearly", why) for name, why in _NEARLY.items()},
    **{name: Flag("refuses", why) for name, why in _REFUSED.items()},
}
"""Every option that is known."""


def flag_of(name: str) -> Flag | None:
    """What an option does.

    >>> flag_of("log-interval") == flag_of("bf16"), flag_of("warp-drive")
    (True, None)
    """
    return FLAGS.get(name) or (DESCRIBES if name.startswith(PREFIXES_WITHOUT_BYTES) else None)
