"""How does nanotron want a question written? As the YAML of run_train.py.

Source: huggingface/nanotron@2411b02 src/nanotron/config/config.py, parallelism_config.py.
"""

from typing import Any

from service.estimator.parallelism.pipeline import partition_layers_by_cost
from service.estimator.question import Question, filled
from service.exports.common import COMMON, only_stack, steps_of, usually
from service.exports.emitted import nested, yaml_text
from service.exports.fields import values_of
from service.exports.said import NOTHING, Rules, Said, Silent, chooses, lacking, said_of, takes_only, writes
from service.exports.target import Job, Target, Version, Written
from service.exports.training.nanotron_model import AT, MODEL_RULES

_OWN = "choose a value that nanotron has, or change its code"

_SETUP = (
    ("general.project", "traincost"),
    ("general.run", "run"),
    ("general.seed", 42),
    ("checkpoints.checkpoints_path", "checkpoints"),
    ("checkpoints.checkpoint_interval", 1000),
    ("model.init_method.std", 0.02),
    (f"{AT}.is_qwen2_config", True),
    ("tokenizer.tokenizer_name_or_path", None),
    ("optimizer.weight_decay", 0.1),
    ("optimizer.clip_grad", 1.0),
    ("optimizer.learning_rate_scheduler.learning_rate", 3e-4),
    ("optimizer.learning_rate_scheduler.lr_warmup_steps", 0),
    ("optimizer.learning_rate_scheduler.lr_warmup_style", "linear"),
    ("optimizer.learning_rate_scheduler.lr_decay_style", "cosine"),
    ("optimizer.learning_rate_scheduler.min_decay_lr", 3e-5),
)
"""What the file needs that no question says."""

_ADAMW = {
    "optimizer.optimizer_factory.name": "adamW",
    "optimizer.optimizer_factory.adam_eps": 1e-8,
    "optimizer.optimizer_factory.adam_beta1": 0.9,
    "optimizer.optimizer_factory.adam_beta2": 0.95,
    "optimizer.optimizer_factory.torch_adam_is_fused": True,
}

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "bf16-mixed": "bfloat16"}

_SOME_STEPS = 1000
"""Steps that are written where the question names no tokens."""


def _steps(value: Any, question: Question) -> Said:
    steps = steps_of(question)
    if steps is not None:
        return Said((("tokens.train_steps", steps),))
    told = f"the question names no training_tokens, so train_steps is {_SOME_STEPS}: change it"
    return Said((("tokens.train_steps", _SOME_STEPS),), assumptions=(told,))


def _accumulation(value: Any, question: Question) -> int:
    return int(value // (question.recipe.micro_batch * filled(question.layout.data)))


def _recompute(value: Any, question: Question) -> Said:
    if value.granularity == "selective":
        return lacking("a layer recomputes as a whole or not at all", "use full recompute, or none")
    if value.method == "block" or (value.layers or 1) > 1:
        return lacking("every layer recomputes by itself", "leave method and layers out")
    return Said((("parallelism.recompute_layer", value.granularity == "full"),))


def _precision(value: Any, question: Question) -> Said:
    """A master copy and gradients in fp32 come together, and make bf16 mixed."""
    if value not in _DTYPES:
        return lacking(f"nanotron does not train in {value}", _OWN)
    mixed = ("optimizer.accumulate_grad_in_fp32", value == "bf16-mixed")
    return Said((("model.dtype", _DTYPES[value]), mixed))


def _gradients(value: Any, question: Question) -> Said:
    precision = question.recipe.precision or ""
    own = "fp32" if precision.endswith("mixed") or precision not in _DTYPES else precision
    if value == own:
        return NOTHING
    return lacking(f"gradients are in {own} under {precision}, and not in {value}", "leave gradient_dtype out")


def _norms(value: Any, question: Question) -> Said:
    mode = "REDUCE_SCATTER" if value else "ALL_REDUCE"
    asynchronous = ("parallelism.tp_linear_async_communication", bool(value))
    return Said((("parallelism.tp_mode", mode), asynchronous))


def _stages(value: Any, question: Question) -> Said:
    layout = question.layout
    if value is None or (layout.pipeline > 1 and value == partition_layers_by_cost(layout.pipeline, question.model)):
        return NOTHING
    return lacking("layers are dealt to stages by their cost", "leave stage_layers out")


def _whole_groups(value: Any, question: Question) -> Said:
    layout = question.layout
    if layout.zero_stage == 0 or value == filled(layout.data) * layout.context:
        return NOTHING
    return lacking("the optimizer is sharded over all replicas", "leave shard_group out")


def _dispatcher(value: Any, question: Question) -> Said:
    if not question.model.num_experts:
        return NOTHING
    if value == "flex":
        return lacking("tokens reach experts by all-to-all or all-gather", _OWN)
    return Said(((f"{AT}.moe_config.token_dispatcher_type", value or "alltoall"),))


def _expert_tensor(value: Any, question: Question) -> Said:
    usual = 1 if question.layout.expert > 1 else question.layout.tensor
    if not question.model.num_experts or value == usual:
        return NOTHING
    return lacking("experts' matrices are split as those of other layers or not at all", "leave expert_tensor out")


_NO_CHOICE = "nanotron has one way to do this, and it cannot be chosen"

RULES: Rules = {
    **MODEL_RULES,
    **COMMON,
    "recipe.sequence_length": writes("tokens.sequence_length"),
    "recipe.micro_batch": writes("tokens.micro_batch_size"),
    "recipe.global_batch": writes("tokens.batch_accumulation_per_replica", _accumulation),
    "recipe.training_tokens": _steps,
    "recipe.precision": _precision,
    "recipe.gradient_dtype": _gradients,
    "recipe.optimizer": chooses({"adamw": _ADAMW}, "nanotron has no optimizer {value} that keeps such states", _OWN),
    "recipe.recompute": _recompute,
    "recipe.attention": chooses(
        {
            "flash": {f"{AT}._attn_implementation": "flash_attention_2"},
            "flash-2": {f"{AT}._attn_implementation": "flash_attention_2"},
            "eager": {f"{AT}._attn_implementation": "sdpa"},
        },
        "nanotron has no kernel {value}",
        _OWN,
    ),
    "recipe.dropout_fraction": takes_only((0.0,), "the model has no dropout", "set it to 0"),
    "recipe.moment_dtype": takes_only((None,), "moments are in fp32", "leave it out"),
    "recipe.master_dtype": takes_only((None,), "the master copy is in fp32", "leave it out"),
    "recipe.fp8_weights": takes_only((False,), "nanotron has no fp8", "leave it out"),
    "recipe.expert_capacity_factor": takes_only((None,), "no token is dropped by an expert", "leave it out"),
    "recipe.vocabulary_multiple": writes("model.make_vocab_size_divisible_by"),
    "recipe.stack.name": only_stack("nanotron", "nanotron"),
    **{
        f"recipe.stack.{name}": usually(name, _NO_CHOICE, "leave it out")
        for name in ("implementation", "cross_entropy", "gradient_fusion", "grouped_experts", "tensor_overlap")
    },
    "recipe.stack.fused_update": usually("fused_update", _NO_CHOICE, "set torch_adam_is_fused in the file by hand"),
    "recipe.stack.deterministic": takes_only((False,), _NO_CHOICE, "leave it out"),
    "recipe.stack.cuda_graphs": takes_only((False,), _NO_CHOICE, "leave it out"),
    "recipe.stack.expert_overlap": takes_only((False,), _NO_CHOICE, "leave it out"),
    "recipe.stack.dispatcher": _dispatcher,
    "recipe.stack.attention_mask": takes_only((False,), _NO_CHOICE, "leave it out"),
    "layout.data": writes("parallelism.dp"),
    "layout.tensor": writes("parallelism.tp"),
    "layout.context": writes("parallelism.context_parallel_size"),
    "layout.pipeline": writes("parallelism.pp"),
    "layout.virtual_pipeline": takes_only((1,), "a stage is one chunk", "set virtual_pipeline to 1"),
    "layout.expert": writes("parallelism.expert_parallel_size"),
    "layout.expert_tensor": _expert_tensor,
    "layout.zero_stage": chooses(
        {0: {"optimizer.zero_stage": 0}, 1: {"optimizer.zero_stage": 1}},
        "nanotron shards the optimizer alone, and not as ZeRO stage {value} does",
        "use zero_stage 1 or 0",
    ),
    "layout.shard_group": _whole_groups,
    "layout.reshard_after_forward": takes_only((False,), "weights are never sharded", "leave it out"),
    "layout.sequence_parallel": _norms,
    "layout.context_method": lambda value, q: (
        NOTHING
        if q.layout.context == 1 or value == "ring"
        else lacking("context ranks pass keys and values around a ring", "set context_method to ring")
    ),
    "layout.virtual_group": Silent("it orders chunks, and a stage is one"),
    "layout.schedule": chooses(
        {"1f1b": {"parallelism.pp_engine": "1f1b"}, "gpipe": {"parallelism.pp_engine": "afab"}},
        "nanotron has no schedule {value}",
        "use 1f1b or gpipe",
    ),
    "layout.stage_layers": _stages,
    "layout.embedding_in_split": takes_only((False,), "layers are dealt by their cost", "leave it out"),
    "layout.loss_in_split": takes_only((False,), "layers are dealt by their cost", "leave it out"),
    "layout.offload": takes_only(("none",), "nothing is offloaded", "leave offload out"),
}
"""How each field is written."""


_NEEDED = {
    **dict(_SETUP),
    "optimizer.accumulate_grad_in_fp32": True,
    "optimizer.zero_stage": 0,
    "parallelism.pp_engine": "1f1b",
    **_ADAMW,
}
"""What the file needs too: fields without a default that a value which cannot be said would leave open."""


def _write(job: Job) -> Written:
    said, unsaid = said_of(RULES, values_of(job.question), job.question)
    settings = tuple({**_NEEDED, **dict(said.settings)}.items())
    told = "data_stages, the tokenizer, checkpoints and the learning rate are yours to set"
    assumptions = (*said.assumptions, told)
    return Written(content=yaml_text(nested(settings)), not_expressible=unsaid, assumptions=assumptions)


NANOTRON = Target(
    name="nanotron",
    tool="nanotron",
    kind="training",
    versions={
        "0.4": Version(
            covers="main at 2411b02: a file for run_train.py --config-file",
            file_name="nanotron.yaml",
            media_type="application/yaml",
            rules=RULES,
        )
    },
    write=_write,
    source="huggingface/nanotron@2411b02 src/nanotron/config",
)
"""A configuration of nanotron."""
