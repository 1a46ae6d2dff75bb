"""How does Megatron-LM want a question written? As the arguments of pretrain_gpt.py.

Source: NVIDIA/Megatron-LM@d98e8a64 (core 0.20.0) megatron/training/arguments.py and the configurations that its groups
of options are made of: transformer_config.py, model_parallel_config.py, optimizer_config.py, training_config.py.
"""

from math import ceil
from typing import Any

from service.estimator.question import Question, filled
from service.estimator.software.stacks import software_of
from service.exports.common import COMMON, only_stack, usually
from service.exports.emitted import command_text, words_of
from service.exports.fields import values_of
from service.exports.said import NOTHING, Rules, Said, chooses, lacking, said_of, writes
from service.exports.target import Job, Target, Version, Written
from service.exports.training.megatron_layout import LAYOUT_RULES
from service.exports.training.megatron_model import MODEL_RULES, chunk_layers

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


def _samples(value: Any, question: Question) -> Said:
    if value is None:
        told = "the question names no training_tokens, so add --train-iters or --train-samples"
        return Said(assumptions=(told,))
    return Said((("--train-samples", ceil(value / question.recipe.sequence_length)),))


def _gradients(value: Any, question: Question) -> Said:
    if value == "bf16":
        return Said((("--grad-reduce-in-bf16", True),))
    if value == "fp16":
        told = "gradients are in fp16 as --fp16 does without --accumulate-allreduce-grads-in-fp32"
        return Said(assumptions=(told,))
    return Said((("--accumulate-allreduce-grads-in-fp32", True),))


def _recompute(value: Any, question: Question) -> Said:
    if value.granularity == "none":
        return NOTHING
    if value.granularity == "selective":
        if "op" in value.modules:
            return lacking("recompute by operation is another stack's", "name modules, such as core_attn")
        modules = (("--recompute-modules", value.modules),) if value.modules else ()
        return Said((("--recompute-granularity", "selective"), *modules))
    layers = value.layers or (1 if value.method == "uniform" else max(chunk_layers(question)))
    settings = (
        ("--recompute-granularity", "full"),
        ("--recompute-method", value.method),
        ("--recompute-num-layers", layers),
    )
    return Said(settings)


def _implementation(value: Any, question: Question) -> Said:
    if value == "transformer-engine":
        return Said((("--transformer-impl", "transformer_engine"),))
    if value == "local":
        return Said((("--transformer-impl", "local"),))
    return lacking("Megatron-LM runs Transformer Engine's layers or its own", _OWN)


def _dispatcher(value: Any, question: Question) -> Any:
    return (value or "alltoall") if question.model.num_experts else None


def _moments(value: Any, question: Question) -> Said:
    if value is None:
        return NOTHING
    formats = (("--exp-avg-dtype", value), ("--exp-avg-sq-dtype", value))
    return Said((("--use-precision-aware-optimizer", True), *formats))


def _master(value: Any, question: Question) -> Said:
    if value is None:
        return NOTHING
    if value == "bf16":
        return lacking("the master copy is in fp32 or fp16", "leave master_dtype out")
    return Said((("--use-precision-aware-optimizer", True), ("--main-params-dtype", value)))


def _dropout(value: Any, question: Question) -> Said:
    return Said((("--attention-dropout", value), ("--hidden-dropout", value)))


def _tensor_overlap(value: Any, question: Question) -> Any:
    return True if value and question.layout.tensor > 1 and question.layout.sequence_parallel else None


def _expert_overlap(value: Any, question: Question) -> Said:
    if not value:
        return NOTHING
    if question.layout.pipeline > 1 and question.layout.virtual_pipeline == 1:
        return lacking(
            "Megatron-LM runs one micro-batch beside another in a pipeline only where stages have several chunks",
            "set virtual_pipeline above 1, or leave expert_overlap out",
        )
    return Said((("--overlap-moe-expert-parallel-comm", True),))


def _kernel(value: Any, question: Question) -> Said:
    if software_of(question.recipe).implementation == "local" and value.startswith("flash"):
        return Said((("--use-flash-attn", True),))
    return chooses(_ATTENTION, "Megatron-LM cannot be told to run the kernel {value}", _OWN)(value, question)


def _loss(value: Any, question: Question) -> Said:
    if value == "transformer-engine":
        return lacking(
            "Megatron-LM turned Transformer Engine's cross entropy off in Megatron-Core 0.19",
            "use vocab-parallel or fused, or leave cross_entropy out",
        )
    return chooses(_LOSSES, "Megatron-LM has no loss of the kind {value}", _OWN)(value, question)


def environment_of(question: Question) -> dict[str, str]:
    """Variables that Megatron-LM wants in its environment.

    Args:
        question: the question, every default filled

    Returns:
        values by name

    Source:
        NVIDIA/Megatron-LM@d98e8a64 megatron/training/arguments.py validate_args
    """
    found = {} if filled(question.layout.zero_stage) >= 2 else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    if question.layout.offload in ("activations", "optimizer-and-activations"):
        found["NVTE_CPU_OFFLOAD_V1"] = "1"
    return found


def told_of_environment(question: Question) -> list[str]:
    """What whoever starts Megatron-LM has to know of its environment.

    Args:
        question: the question, every default filled

    Returns:
        a sentence, or none where nothing is wanted
    """
    variables = " ".join(f"{name}={value}" for name, value in environment_of(question).items())
    return [f"it runs with {variables} in its environment"] if variables else []


def _is_on(value: Any, question: Question) -> Any:
    return True if value else None


SOFTWARE_RULES: Rules = {
    "recipe.stack.name": only_stack("Megatron-LM", "megatron-core"),
    "recipe.stack.implementation": _implementation,
    "recipe.stack.cross_entropy": _loss,
    "recipe.stack.gradient_fusion": writes(
        "--no-gradient-accumulation-fusion", lambda value, _: None if value else True
    ),
    "recipe.stack.fused_update": usually("fused_update", "the optimizer's kernel cannot be chosen", _OWN),
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
"""How each choice of the software is written."""

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
"""How each other field of the recipe is written."""


RULES: Rules = {**MODEL_RULES, **COMMON, **RECIPE_RULES, **SOFTWARE_RULES, **LAYOUT_RULES}


def _write(job: Job) -> Written:
    said, unsaid = said_of(RULES, values_of(job.question), job.question)
    content = command_text(words_of(said.settings)) + "\n"
    told = "paths of data, tokenizer and checkpoints, and the learning rate, are yours to add"
    told_too = told_of_environment(job.question)
    return Written(content=content, not_expressible=unsaid, assumptions=(*said.assumptions, told, *told_too))


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
"""Arguments of pretrain_gpt.py."""
