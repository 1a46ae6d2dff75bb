"""nanotron: the YAML of run_train.py.

Source: huggingface/nanotron@2411b02 src/nanotron/config/config.py, parallelism_config.py, models_config.py, defaults
included.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.estimator.parallelism.pipeline import partition_layers_by_cost
from service.estimator.question import Model
from service.formats.draft import Converter, Draft, boolean, draft_from, integer, items, text
from service.formats.rules import (
    COMMON_RULES,
    NOTHING,
    ExportedFile,
    ExportRequest,
    Fragment,
    Omitted,
    Rule,
    Rules,
    Target,
    Version,
    apply_rules,
    chooses,
    not_expressible,
    only,
    only_stack,
    stack_default,
    steps_of,
    values_of,
    writes,
)
from service.formats.text import Entry, nested, yaml_text

AT = "model.model_config"
"""Path of the model in the file."""

_OWN_OF_MODEL = "add the layer to nanotron's code"

_WRITTEN = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "tie_word_embeddings")


def _only(name: str) -> Rule:
    """Rule of a field without a key: the default alone is expressible."""
    default = next(field.default for field in fields(Model) if field.name == name)
    return only((default,), "nanotron's configuration of Qwen2 has no such part of a model", _OWN_OF_MODEL)


def _windows(value: Any, question: CompleteQuestion) -> Fragment:
    kinds = {*value} or ({"sliding_attention"} if question.model.sliding_window else {"full_attention"})
    if kinds == {"full_attention"}:
        return NOTHING
    if kinds == {"sliding_attention"}:
        return Fragment(((f"{AT}.sliding_window_size", question.model.sliding_window),))
    return not_expressible("every layer attends alike, in a window or not", _OWN_OF_MODEL)


def _experts(value: Any, question: CompleteQuestion) -> Fragment:
    model = question.model
    if not value:
        return NOTHING
    shared = model.shared_expert_intermediate_size
    at = f"{AT}.moe_config"
    sizes = (
        (f"{at}.num_experts", value),
        (f"{at}.top_k", model.num_experts_per_tok),
        (f"{at}.moe_intermediate_size", model.expert_width),
        (f"{at}.enable_shared_expert", shared > 0),
        (f"{at}.shared_expert_intermediate_size", shared or model.expert_width),
    )
    dense = range(model.first_k_dense_replace)
    layers = [layer for layer in range(model.num_hidden_layers) if layer not in dense]
    return Fragment((*sizes, (f"{at}.layers", layers)))


def _mlp_types(value: Any, question: CompleteQuestion) -> Fragment:
    plain = {"sparse"} if question.model.num_experts else {"dense"}
    return (
        NOTHING
        if {*value} <= plain
        else not_expressible("layers with and without experts are not dealt so", _OWN_OF_MODEL)
    )


def _longest(value: Any, question: CompleteQuestion) -> int:
    return max(question.recipe.sequence_length, value or 0)


_ELSEWHERE = {
    "num_experts_per_tok": "written with num_experts",
    "moe_intermediate_size": "written with num_experts",
    "shared_expert_intermediate_size": "written with num_experts",
    "first_k_dense_replace": "written with num_experts",
    "sliding_window": "written with layer_types",
}

MODEL_RULES: Rules = {
    **{f"model.{field.name}": _only(field.name) for field in fields(Model)},
    **{f"model.{name}": writes(f"{AT}.{name}") for name in _WRITTEN},
    **{f"model.{name}": Omitted(reason) for name, reason in _ELSEWHERE.items()},
    "model.intermediate_size": writes(f"{AT}.intermediate_size", lambda value, q: value or q.model.expert_width),
    "model.num_key_value_heads": writes(f"{AT}.num_key_value_heads"),
    "model.head_dim": lambda value, q: (
        NOTHING
        if value in (None, q.model.hidden_size // max(1, q.model.num_attention_heads))
        else not_expressible("heads share the width of the model evenly", _OWN_OF_MODEL)
    ),
    "model.gated_mlp": lambda value, _: NOTHING if value else not_expressible("the MLP is gated", _OWN_OF_MODEL),
    "model.attention_bias": writes(f"{AT}.attention_bias"),
    "model.attention_out_bias": lambda value, _: (
        not_expressible("the attention's output has no bias", _OWN_OF_MODEL) if value else NOTHING
    ),
    "model.max_position_embeddings": writes(f"{AT}.max_position_embeddings", _longest),
    "model.layer_types": _windows,
    "model.num_experts": _experts,
    "model.mlp_layer_types": _mlp_types,
}
"""Rules of the model's fields, in the names of Qwen2Config."""


_MODEL = "model.model_config."
_EXPERTS = f"{_MODEL}moe_config."

_SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "num_key_value_heads",
    "max_position_embeddings",
)  # fmt: skip

SETTINGS: dict[str, Converter] = {
    **dict.fromkeys((f"{_MODEL}{name}" for name in (*_SIZES, "sliding_window_size")), integer),
    **dict.fromkeys((f"{_MODEL}tie_word_embeddings", f"{_MODEL}attention_bias"), boolean),
    f"{_MODEL}_attn_implementation": text,
    **dict.fromkeys((f"{_EXPERTS}num_experts", f"{_EXPERTS}top_k", f"{_EXPERTS}moe_intermediate_size"), integer),
    f"{_EXPERTS}shared_expert_intermediate_size": integer,
    f"{_EXPERTS}enable_shared_expert": boolean,
    f"{_EXPERTS}token_dispatcher_type": text,
    f"{_EXPERTS}layers": items,
    "model.dtype": text,
    "model.make_vocab_size_divisible_by": integer,
    "optimizer.zero_stage": integer,
    "optimizer.accumulate_grad_in_fp32": boolean,
    "optimizer.optimizer_factory.name": text,
    **dict.fromkeys(("parallelism.dp", "parallelism.tp", "parallelism.pp"), integer),
    **dict.fromkeys(("parallelism.context_parallel_size", "parallelism.expert_parallel_size"), integer),
    **dict.fromkeys(("parallelism.pp_engine", "parallelism.tp_mode"), text),
    "parallelism.recompute_layer": boolean,
    **dict.fromkeys(("tokens.sequence_length", "tokens.micro_batch_size", "tokens.train_steps"), integer),
    "tokens.batch_accumulation_per_replica": integer,
}
"""Settings that are read."""

IGNORED = (
    "checkpoints", "data_stages", "general", "lighteval", "logging", "metrics_logging", "model.ddp_bucket_cap_mb",
    "model.init_method", "optimizer.clip_grad", "optimizer.learning_rate_scheduler", "optimizer.optimizer_factory.adam",
    "optimizer.optimizer_factory.torch_adam", "optimizer.weight_decay", "parallelism.tp_linear_async_communication",
    "parallelism.tp_recompute_allgather", "profiler", "s3_upload", "tokenizer", "tokens.limit", "tokens.val_check",
    *(f"{_MODEL}{name}" for name in (
        "_fused", "_use", "bos_token_id", "eos_token_id", "hidden_act", "initializer_range", "is_", "log_attn_probs",
        "moe_config.router_aux", "pad_token_id", "pretraining_tp", "rms_norm_eps", "rope_", "use_cache", "z_loss",
    )),
)  # fmt: skip
"""Prefixes of settings about neither recipe nor layout."""


def read_nanotron(entries: Sequence[Entry]) -> Draft:
    """Draft of a nanotron file."""
    draft = draft_from(entries, SETTINGS, IGNORED)
    layout, recipe = draft.layout, draft.recipe
    names = {"data": "dp", "tensor": "tp", "pipeline": "pp", "context": "context_parallel_size"}
    layout.update({field: draft.get(f"parallelism.{name}", 1) for field, name in names.items()})
    layout["expert"] = draft.get("parallelism.expert_parallel_size", 1)
    layout["zero_stage"] = draft.chosen("optimizer.zero_stage", {0: 0, 1: 1}, 0)
    layout["schedule"] = draft.chosen("parallelism.pp_engine", {"afab": "gpipe", "1f1b": "1f1b"}, "afab")
    modes = {"REDUCE_SCATTER": True, "ALL_REDUCE": False, "reduce_scatter": True, "all_reduce": False}
    split = draft.chosen("parallelism.tp_mode", modes, "ALL_REDUCE")
    layout["sequence_parallel"] = split and layout["tensor"] > 1
    _put_recipe(draft, recipe)
    _put_model(draft)
    return draft


def _put_recipe(draft: Draft, recipe: dict[str, Any]) -> None:
    recipe["stack"] = {"name": "nanotron"}
    recipe["micro_batch"] = draft.get("tokens.micro_batch_size", 1)
    steps = draft.get("tokens.batch_accumulation_per_replica", 1)
    recipe["global_batch"] = recipe["micro_batch"] * steps * draft.layout["data"]
    if "tokens.sequence_length" in draft.settings:
        recipe["sequence_length"] = draft.get("tokens.sequence_length")
        if "tokens.train_steps" in draft.settings:
            tokens = draft.get("tokens.train_steps") * recipe["global_batch"] * recipe["sequence_length"]
            recipe["training_tokens"] = float(tokens)
    dtypes = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    dtype = draft.chosen("model.dtype", dtypes, "bfloat16")
    mixed = dtype == "bf16" and draft.get("optimizer.accumulate_grad_in_fp32", False)
    recipe["precision"] = "bf16-mixed" if mixed else dtype
    recipe["optimizer"] = draft.chosen("optimizer.optimizer_factory.name", {"adamW": "adamw"}, "adamW")
    recipe["recompute"] = "full" if draft.get("parallelism.recompute_layer") else "none"
    kernels = {"flash_attention_2": "flash", "sdpa": "eager"}
    recipe["attention"] = draft.chosen(f"{_MODEL}_attn_implementation", kernels, "flash_attention_2")
    recipe["vocabulary_multiple"] = draft.get("model.make_vocab_size_divisible_by", 1)


def _put_model(draft: Draft) -> None:
    sizes = {name: draft.get(f"{_MODEL}{name}") for name in _SIZES if f"{_MODEL}{name}" in draft.settings}
    missing = [name for name in _SIZES[:4] if name not in sizes]
    if missing:
        draft.assumptions.append(f"no model: the file does not say {', '.join(missing)}")
        return
    model: dict[str, Any] = dict(sizes)
    model["tie_word_embeddings"] = draft.get(f"{_MODEL}tie_word_embeddings", False)
    model["attention_bias"] = draft.get(f"{_MODEL}attention_bias", False)
    model["attention_out_bias"] = False
    if f"{_MODEL}sliding_window_size" in draft.settings:
        model["sliding_window"] = draft.get(f"{_MODEL}sliding_window_size")
    if draft.get(f"{_EXPERTS}num_experts"):
        model["num_experts"] = draft.get(f"{_EXPERTS}num_experts")
        model["num_experts_per_tok"] = draft.get(f"{_EXPERTS}top_k", 2)
        model["moe_intermediate_size"] = draft.get(f"{_EXPERTS}moe_intermediate_size", 1408)
        if draft.get(f"{_EXPERTS}enable_shared_expert"):
            model["shared_expert_intermediate_size"] = draft.get(f"{_EXPERTS}shared_expert_intermediate_size", 5632)
        sparse = draft.get(f"{_EXPERTS}layers", (-1,))
        if sparse != (-1,) and sizes["num_hidden_layers"] <= 2048:
            kinds = {True: "sparse", False: "dense"}
            model["mlp_layer_types"] = [kinds[layer in sparse] for layer in range(sizes["num_hidden_layers"])]
    draft.model = model


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
"""Settings that the file needs and no question has."""

_ADAMW = {
    "optimizer.optimizer_factory.name": "adamW",
    "optimizer.optimizer_factory.adam_eps": 1e-8,
    "optimizer.optimizer_factory.adam_beta1": 0.9,
    "optimizer.optimizer_factory.adam_beta2": 0.95,
    "optimizer.optimizer_factory.torch_adam_is_fused": True,
}

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "bf16-mixed": "bfloat16"}

_SOME_STEPS = 1000
"""Steps if the question names no tokens."""


def _steps(value: Any, question: CompleteQuestion) -> Fragment:
    steps = steps_of(question)
    if steps is not None:
        return Fragment((("tokens.train_steps", steps),))
    note = f"the question names no training_tokens, so train_steps is {_SOME_STEPS}: change it"
    return Fragment((("tokens.train_steps", _SOME_STEPS),), assumptions=(note,))


def _accumulation(value: Any, question: CompleteQuestion) -> int:
    return int(value // (question.recipe.micro_batch * question.layout.data))


def _recompute(value: Any, question: CompleteQuestion) -> Fragment:
    if value.granularity == "selective":
        return not_expressible("a layer recomputes as a whole or not at all", "use full recompute, or none")
    if value.method == "block" or (value.layers or 1) > 1:
        return not_expressible("every layer recomputes by itself", "leave method and layers out")
    return Fragment((("parallelism.recompute_layer", value.granularity == "full"),))


def _precision(value: Any, question: CompleteQuestion) -> Fragment:
    """fp32 gradients and a master copy come together, and make bf16 mixed."""
    if value not in _DTYPES:
        return not_expressible(f"nanotron does not train in {value}", _OWN)
    mixed = ("optimizer.accumulate_grad_in_fp32", value == "bf16-mixed")
    return Fragment((("model.dtype", _DTYPES[value]), mixed))


def _gradients(value: Any, question: CompleteQuestion) -> Fragment:
    precision = question.recipe.precision
    own = "fp32" if precision.endswith("mixed") or precision not in _DTYPES else precision
    if value == own:
        return NOTHING
    return not_expressible(f"gradients are in {own} under {precision}, and not in {value}", "leave gradient_dtype out")


def _norms(value: Any, question: CompleteQuestion) -> Fragment:
    mode = "REDUCE_SCATTER" if value else "ALL_REDUCE"
    asynchronous = ("parallelism.tp_linear_async_communication", bool(value))
    return Fragment((("parallelism.tp_mode", mode), asynchronous))


def _stages(value: Any, question: CompleteQuestion) -> Fragment:
    layout = question.layout
    if value is None or (layout.pipeline > 1 and value == partition_layers_by_cost(layout.pipeline, question.model)):
        return NOTHING
    return not_expressible("layers are dealt to stages by their cost", "leave stage_layers out")


def _whole_groups(value: Any, question: CompleteQuestion) -> Fragment:
    layout = question.layout
    if layout.zero_stage == 0 or value == layout.data * layout.context:
        return NOTHING
    return not_expressible("the optimizer is sharded over all replicas", "leave shard_group out")


def _dispatcher(value: Any, question: CompleteQuestion) -> Fragment:
    if not question.model.num_experts:
        return NOTHING
    if value == "flex":
        return not_expressible("tokens reach experts by all-to-all or all-gather", _OWN)
    return Fragment(((f"{AT}.moe_config.token_dispatcher_type", value or "alltoall"),))


def _expert_tensor(value: Any, question: CompleteQuestion) -> Fragment:
    usual = 1 if question.layout.expert > 1 else question.layout.tensor
    if not question.model.num_experts or value == usual:
        return NOTHING
    return not_expressible(
        "experts' matrices are split as those of other layers or not at all", "leave expert_tensor out"
    )


_NO_CHOICE = "nanotron has one way to do this, and it cannot be chosen"

RULES: Rules = {
    **MODEL_RULES,
    **COMMON_RULES,
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
    "recipe.dropout_fraction": only((0.0,), "the model has no dropout", "set it to 0"),
    "recipe.moment_dtype": only((None,), "moments are in fp32", "leave it out"),
    "recipe.master_dtype": only((None,), "the master copy is in fp32", "leave it out"),
    "recipe.fp8_weights": only((False,), "nanotron has no fp8", "leave it out"),
    "recipe.expert_capacity_factor": only((None,), "no token is dropped by an expert", "leave it out"),
    "recipe.vocabulary_multiple": writes("model.make_vocab_size_divisible_by"),
    "recipe.stack.name": only_stack("nanotron", "nanotron"),
    **{
        f"recipe.stack.{name}": stack_default(name, _NO_CHOICE, "leave it out")
        for name in ("implementation", "cross_entropy", "gradient_fusion", "grouped_experts", "tensor_overlap")
    },
    "recipe.stack.fused_update": stack_default(
        "fused_update", _NO_CHOICE, "set torch_adam_is_fused in the file by hand"
    ),
    "recipe.stack.deterministic": only((False,), _NO_CHOICE, "leave it out"),
    "recipe.stack.cuda_graphs": only((False,), _NO_CHOICE, "leave it out"),
    "recipe.stack.expert_overlap": only((False,), _NO_CHOICE, "leave it out"),
    "recipe.stack.dispatcher": _dispatcher,
    "recipe.stack.attention_mask": only((False,), _NO_CHOICE, "leave it out"),
    "layout.data": writes("parallelism.dp"),
    "layout.tensor": writes("parallelism.tp"),
    "layout.context": writes("parallelism.context_parallel_size"),
    "layout.pipeline": writes("parallelism.pp"),
    "layout.virtual_pipeline": only((1,), "a stage is one chunk", "set virtual_pipeline to 1"),
    "layout.expert": writes("parallelism.expert_parallel_size"),
    "layout.expert_tensor": _expert_tensor,
    "layout.zero_stage": chooses(
        {0: {"optimizer.zero_stage": 0}, 1: {"optimizer.zero_stage": 1}},
        "nanotron shards the optimizer alone, and not as ZeRO stage {value} does",
        "use zero_stage 1 or 0",
    ),
    "layout.shard_group": _whole_groups,
    "layout.reshard_after_forward": only((False,), "weights are never sharded", "leave it out"),
    "layout.sequence_parallel": _norms,
    "layout.context_method": lambda value, q: (
        NOTHING
        if q.layout.context == 1 or value == "ring"
        else not_expressible("context ranks pass keys and values around a ring", "set context_method to ring")
    ),
    "layout.virtual_group": Omitted("it orders chunks, and a stage is one"),
    "layout.schedule": chooses(
        {"1f1b": {"parallelism.pp_engine": "1f1b"}, "gpipe": {"parallelism.pp_engine": "afab"}},
        "nanotron has no schedule {value}",
        "use 1f1b or gpipe",
    ),
    "layout.stage_layers": _stages,
    "layout.embedding_in_split": only((False,), "layers are dealt by their cost", "leave it out"),
    "layout.loss_in_split": only((False,), "layers are dealt by their cost", "leave it out"),
    "layout.offload": only(("none",), "nothing is offloaded", "leave offload out"),
}
"""How each field is written."""


_NEEDED = {
    **dict(_SETUP),
    "optimizer.accumulate_grad_in_fp32": True,
    "optimizer.zero_stage": 0,
    "parallelism.pp_engine": "1f1b",
    **_ADAMW,
}
"""Needed too: fields without a default that a gap would leave open."""


def _write(request: ExportRequest) -> ExportedFile:
    fragment, gaps = apply_rules(RULES, values_of(request.question), request.question)
    settings = tuple({**_NEEDED, **dict(fragment.settings)}.items())
    note = "data_stages, the tokenizer, checkpoints and the learning rate are yours to set"
    assumptions = (*fragment.assumptions, note)
    return ExportedFile(content=yaml_text(nested(settings)), not_expressible=gaps, assumptions=assumptions)


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
