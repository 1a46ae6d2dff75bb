"""nanotron: the YAML of run_train.py.

Source: huggingface/nanotron@2411b02 src/nanotron/config/config.py, parallelism_config.py, models_config.py, defaults
included.
"""

from collections.abc import Sequence
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.estimator.parallelism.pipeline import partition_layers_by_cost
from service.formats import drafts, rules
from service.formats.text import Entry, nested, yaml_text

_MODEL = "model.model_config."
_EXPERTS = f"{_MODEL}moe_config."

_ADD_LAYER = "add the layer to nanotron's code"


def _attention_window(value: Any, question: CompleteQuestion) -> rules.Written:
    kinds = {*value} or ({"sliding_attention"} if question.model.sliding_window else {"full_attention"})
    if kinds == {"full_attention"}:
        return None
    if kinds == {"sliding_attention"}:
        return {f"{_MODEL}sliding_window_size": question.model.sliding_window}
    return rules.not_expressible("every layer has the same attention, with or without a window", _ADD_LAYER)


def _experts(value: Any, question: CompleteQuestion) -> rules.Written:
    model = question.model
    if not value:
        return None
    shared = model.shared_expert_intermediate_size
    sizes = (
        (f"{_EXPERTS}num_experts", value),
        (f"{_EXPERTS}top_k", model.num_experts_per_tok),
        (f"{_EXPERTS}moe_intermediate_size", model.expert_width),
        (f"{_EXPERTS}enable_shared_expert", shared > 0),
        (f"{_EXPERTS}shared_expert_intermediate_size", shared or model.expert_width),
    )
    dense = range(model.first_k_dense_replace)
    layers = [layer for layer in range(model.num_hidden_layers) if layer not in dense]
    return rules.Fragment((*sizes, (f"{_EXPERTS}layers", layers)))


_TABLE = rules.framework_table("nanotron", "model", "rules", *drafts.FATES, "required")

_NO_PART = "nanotron's configuration of Qwen2 has no such part of a model"

MODEL_RULES: rules.Rules = {
    **{path: rules.default_only(path, _NO_PART, _ADD_LAYER) for path in rules.MODEL_FIELDS},
    **rules.rules_of(
        _TABLE["model"],
        {
            "model.intermediate_size": lambda value, q: value or q.model.expert_width,
            "model.head_dim": lambda value, q: (
                value in (None, q.model.hidden_size // max(1, q.model.num_attention_heads))
            ),
            "model.max_position_embeddings": lambda value, q: max(q.recipe.sequence_length, value or 0),
            "model.layer_types": _attention_window,
            "model.num_experts": _experts,
            "model.mlp_layer_types": lambda value, q: {*value} <= ({"sparse"} if q.model.num_experts else {"dense"}),
        },
    ),
}
"""Rules of the model's fields, in the names of Qwen2Config."""


_CHANGE_VALUE = "choose a value that nanotron has, or change its code"

_DTYPES = {"fp32": "float32", "fp16-pure": "float16", "bf16-pure": "bfloat16", "bf16-mixed": "bfloat16"}

_SOME_STEPS = 1000
"""Steps for a question without training_tokens."""


def _steps(value: Any, question: CompleteQuestion) -> rules.Written:
    if value is not None:
        return rules.counted("tokens.train_steps", value, question.recipe.global_batch_tokens)
    why = f"the question names no training_tokens, so train_steps is {_SOME_STEPS}"
    gap = rules.not_expressible(why, "change train_steps", instead=rules.LEFT_OPEN)
    return rules.combined({"tokens.train_steps": _SOME_STEPS}, gap)


def _recompute(value: Any, question: CompleteQuestion) -> rules.Written:
    if value.granularity == "selective":
        return rules.not_expressible("nanotron recomputes whole layers or nothing", "use full recompute, or none")
    if value.method == "block" or (value.layers or 1) > 1:
        return rules.not_expressible("nanotron recomputes every layer by itself", "leave method and layers out")
    return {"parallelism.recompute_layer": value.granularity == "full"}


def _precision(value: Any, question: CompleteQuestion) -> rules.Written:
    """Settings of a precision; bf16-mixed means fp32 gradients and an fp32 master copy, which one setting controls."""
    if value not in _DTYPES:
        return rules.not_expressible(f"nanotron does not train in {value}", _CHANGE_VALUE)
    mixed = ("optimizer.accumulate_grad_in_fp32", value == "bf16-mixed")
    return rules.Fragment((("model.dtype", _DTYPES[value]), mixed))


def _gradients(value: Any, question: CompleteQuestion) -> rules.Written:
    precision = question.recipe.precision
    dtype = precision.removesuffix("-pure") if precision in _DTYPES and precision != "bf16-mixed" else "fp32"
    if value == dtype:
        return None
    return rules.not_expressible(
        f"gradients are in {dtype} under {precision}, and not in {value}", "leave gradient_dtype out"
    )


def _sequence_parallel(value: Any, question: CompleteQuestion) -> rules.Written:
    mode = "REDUCE_SCATTER" if value else "ALL_REDUCE"
    asynchronous = ("parallelism.tp_linear_async_communication", bool(value))
    return rules.Fragment((("parallelism.tp_mode", mode), asynchronous))


def _attention(value: Any, question: CompleteQuestion) -> rules.Written:
    names = {"flash": "flash_attention_2", "flash-2": "flash_attention_2", "eager": "sdpa"}
    setting = {f"{_MODEL}_attn_implementation": names.get(value, "flash_attention_2")}
    if value == "flash-2":
        why = "flash_attention_2 is the kernel that flash stands for, and is read back as that"
        return rules.combined(setting, rules.not_expressible(why, "set attention to flash"))
    if value not in names:
        return rules.combined(setting, rules.not_expressible(f"nanotron has no kernel {value}", _CHANGE_VALUE))
    return setting


_MEBIBYTE = 1 << 20

_PAIR = 2


def _weight_bytes(precision: str) -> int:
    """Bytes of a weight, and so of a gradient in a bucket."""
    return 4 if precision == "fp32" else 2


def _bucket(value: Any, question: CompleteQuestion) -> Any:
    if value is None:
        return None
    size, rest = divmod(value * _weight_bytes(question.recipe.precision), _MEBIBYTE)
    if rest or not size:
        each = _MEBIBYTE // _weight_bytes(question.recipe.precision)
        return rules.not_expressible("buckets are whole MiB", f"make reduce_bucket_numbers a multiple of {each}")
    return size


def _dispatcher(value: Any, question: CompleteQuestion) -> Any:
    if value == "flex" and question.model.num_experts:
        return rules.not_expressible("tokens reach experts by all-to-all or all-gather", _CHANGE_VALUE)
    return (value or "alltoall") if question.model.num_experts else None


RULES: rules.Rules = {
    **MODEL_RULES,
    **rules.COMMON_RULES,
    **rules.rules_of(
        _TABLE["rules"],
        {
            "recipe.global_batch": lambda value, q: value // (q.recipe.micro_batch * q.layout.data),
            "recipe.training_tokens": _steps,
            "recipe.attention": _attention,
            "recipe.precision": _precision,
            "recipe.gradient_dtype": _gradients,
            "recipe.recompute": _recompute,
            "recipe.stack.dispatcher": _dispatcher,
            "recipe.stack.reduce_bucket_numbers": _bucket,
            "layout.expert_tensor": rules.has_usual_expert_tensor,
            "layout.shard_group": rules.shards_over_all,
            "layout.sequence_parallel": _sequence_parallel,
            "layout.context_method": lambda value, q: q.layout.context == 1 or value == "ring",
            "layout.stage_layers": lambda value, q: (
                value is None
                or (q.layout.pipeline > 1 and value == partition_layers_by_cost(q.layout.pipeline, q.model))
            ),
        },
    ),
}

FATES = drafts.fates_of(RULES, _TABLE)


def read_nanotron(entries: Sequence[Entry]) -> drafts.Draft:
    draft = drafts.draft_of(entries, FATES)
    draft.layout |= draft.fields_of(RULES, "layout")
    modes = {"REDUCE_SCATTER": True, "ALL_REDUCE": False, "reduce_scatter": True, "all_reduce": False}
    split = draft.chosen("parallelism.tp_mode", modes, "ALL_REDUCE")
    draft.layout["sequence_parallel"] = split and draft.layout["tensor"] > 1
    _put_recipe(draft)
    _put_model(draft)
    stages = draft.fates.get("data_stages")
    if stages and _lengths(stages.entry.value) - {draft.get("tokens.sequence_length")}:
        draft.not_understood("data_stages", "a stage of the data has sequences of another length")
    return draft


def _lengths(value: Any) -> set[Any]:
    """Lengths of sequences that a list of stages names."""
    if not isinstance(value, tuple):
        return set()
    if len(value) == _PAIR and value[0] == "sequence_length":
        return {value[1]} - {None}
    return {length for inner in value for length in _lengths(inner)}


def _put_recipe(draft: drafts.Draft) -> None:
    recipe = draft.recipe
    recipe |= {"stack": {"name": "nanotron"}, **draft.fields_of(RULES, "recipe")}
    steps = draft.get("tokens.batch_accumulation_per_replica", 1)
    recipe["global_batch"] = recipe["micro_batch"] * steps * draft.layout["data"]
    if "sequence_length" not in recipe:
        draft.training_steps = draft.get("tokens.train_steps")
    elif "tokens.train_steps" in draft.settings:
        tokens = draft.get("tokens.train_steps") * recipe["global_batch"] * recipe["sequence_length"]
        recipe["training_tokens"] = float(tokens)
    dtypes = {"float32": "fp32", "float16": "fp16-pure", "bfloat16": "bf16-pure"}
    dtype = draft.chosen("model.dtype", dtypes, "bfloat16")
    mixed = dtype == "bf16-pure" and draft.get("optimizer.accumulate_grad_in_fp32", False)
    recipe["precision"] = "bf16-mixed" if mixed else dtype
    if "model.ddp_bucket_cap_mb" in draft.settings:
        bucket_bytes = draft.get("model.ddp_bucket_cap_mb") * _MEBIBYTE
        recipe["stack"]["reduce_bucket_numbers"] = bucket_bytes // _weight_bytes(recipe["precision"])
    recipe["recompute"] = "full" if draft.get("parallelism.recompute_layer") else "none"


def _put_model(draft: drafts.Draft) -> None:
    model = draft.fields_of(RULES, "model")
    required = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    missing = [name for name in required if name not in model]
    if missing:
        draft.assumptions.append(f"no model: the file does not say {', '.join(missing)}")
        return
    model["attention_out_bias"] = False
    model.setdefault("intermediate_size", 11008)
    if f"{_MODEL}sliding_window_size" in draft.settings:
        model["sliding_window"] = draft.get(f"{_MODEL}sliding_window_size")
    if draft.get(f"{_EXPERTS}num_experts"):
        model["num_experts"] = draft.get(f"{_EXPERTS}num_experts")
        model["num_experts_per_tok"] = draft.get(f"{_EXPERTS}top_k", 2)
        model["moe_intermediate_size"] = draft.get(f"{_EXPERTS}moe_intermediate_size", 1408)
        if draft.get(f"{_EXPERTS}enable_shared_expert"):
            model["shared_expert_intermediate_size"] = draft.get(f"{_EXPERTS}shared_expert_intermediate_size", 5632)
        sparse = draft.get(f"{_EXPERTS}layers", (-1,))
        if sparse != (-1,) and model["num_hidden_layers"] <= 2048:
            kinds = {True: "sparse", False: "dense"}
            model["mlp_layer_types"] = [kinds[layer in sparse] for layer in range(model["num_hidden_layers"])]
    draft.model = model


_REQUIRED_SETTINGS = tuple((name, None if value == "" else value) for name, value in _TABLE["required"].items())


NANOTRON = rules.training_target(
    "nanotron", {"0.4": RULES}, lambda settings, _: yaml_text(nested((*_REQUIRED_SETTINGS, *settings)))
)
