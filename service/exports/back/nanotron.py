"""What does a YAML file of nanotron say? A model, a recipe and a layout.

Source: huggingface/nanotron@2411b02 src/nanotron/config, its defaults included.
"""

from collections.abc import Sequence
from typing import Any

from service.exports.back.draft import Draft, Form, drafted, text, truth, whole, words
from service.exports.back.entries import Entry

_MODEL = "model.model_config."
_EXPERTS = f"{_MODEL}moe_config."

_SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "num_key_value_heads",
    "max_position_embeddings",
)  # fmt: skip

FORMS: dict[str, Form] = {
    **dict.fromkeys((f"{_MODEL}{name}" for name in (*_SIZES, "sliding_window_size")), whole),
    **dict.fromkeys((f"{_MODEL}tie_word_embeddings", f"{_MODEL}attention_bias"), truth),
    f"{_MODEL}_attn_implementation": text,
    **dict.fromkeys((f"{_EXPERTS}num_experts", f"{_EXPERTS}top_k", f"{_EXPERTS}moe_intermediate_size"), whole),
    f"{_EXPERTS}shared_expert_intermediate_size": whole,
    f"{_EXPERTS}enable_shared_expert": truth,
    f"{_EXPERTS}token_dispatcher_type": text,
    f"{_EXPERTS}layers": words,
    "model.dtype": text,
    "model.make_vocab_size_divisible_by": whole,
    "optimizer.zero_stage": whole,
    "optimizer.accumulate_grad_in_fp32": truth,
    "optimizer.optimizer_factory.name": text,
    **dict.fromkeys(("parallelism.dp", "parallelism.tp", "parallelism.pp"), whole),
    **dict.fromkeys(("parallelism.context_parallel_size", "parallelism.expert_parallel_size"), whole),
    **dict.fromkeys(("parallelism.pp_engine", "parallelism.tp_mode"), text),
    "parallelism.recompute_layer": truth,
    **dict.fromkeys(("tokens.sequence_length", "tokens.micro_batch_size", "tokens.train_steps"), whole),
    "tokens.batch_accumulation_per_replica": whole,
}
"""Settings that are read."""

UNREAD = (
    "checkpoints", "data_stages", "general", "lighteval", "logging", "metrics_logging", "model.ddp_bucket_cap_mb",
    "model.init_method", "optimizer.clip_grad", "optimizer.learning_rate_scheduler", "optimizer.optimizer_factory.adam",
    "optimizer.optimizer_factory.torch_adam", "optimizer.weight_decay", "parallelism.tp_linear_async_communication",
    "parallelism.tp_recompute_allgather", "profiler", "s3_upload", "tokenizer", "tokens.limit", "tokens.val_check",
    *(f"{_MODEL}{name}" for name in (
        "_fused", "_use", "bos_token_id", "eos_token_id", "hidden_act", "initializer_range", "is_", "log_attn_probs",
        "moe_config.router_aux", "pad_token_id", "pretraining_tp", "rms_norm_eps", "rope_", "use_cache", "z_loss",
    )),
)  # fmt: skip
"""How settings begin that say nothing of a recipe or a layout."""


def read_nanotron(entries: Sequence[Entry]) -> Draft:
    """What a file of nanotron says.

    Args:
        entries: its settings

    Returns:
        model, recipe and layout

    Raises:
        Refused: a value is none that is understood
    """
    draft = drafted(entries, FORMS, UNREAD)
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
