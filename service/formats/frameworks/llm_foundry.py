"""llm-foundry: the YAML of its training script, which Composer runs under PyTorch's FSDP, and MosaicML's jobs.

Source: mosaicml/llm-foundry@8c8dd48 llmfoundry/command_utils/train.py (TrainConfig), models/mpt (MPTConfig: biases,
learned positions and a tied head by default; FlashAttention's loss), optim; mosaicml/composer@6405188
utils/parallelism.py (FSDPConfig), distributed/mosaic_parallelism.py (fp32 shards, gathered in the compute format).
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.estimator.degrees import WEIGHTS
from service.formats import drafts, rules
from service.formats.composed import Started, started
from service.formats.frameworks import trainer
from service.formats.model_names import named_model
from service.formats.text import Entry

_TABLE = rules.framework_table("llm_foundry", *drafts.FATES, "sizes")
FATES = drafts.fates_of({}, _TABLE)

_PARAMETERS = "parameters."
"""Section of a MosaicML job that becomes the file of the training script."""

_GPUS = "compute.gpus"

_PRECISIONS = {
    **{"fp32": "fp32", "amp_bf16": "bf16-mixed", "amp_fp16": "fp16-mixed", "amp_fp8": "fp8-tensorwise"},
    **{"bf16": "bf16-mixed", "amp": "fp16-mixed"},
}
_OPTIMIZERS = {
    **dict.fromkeys(("decoupled_adamw", "adamw"), "adamw"),
    **dict.fromkeys(("decoupled_lionw", "clip_lion", "adalr_lion"), "lion"),
    **{"adam": "adam", "sgd": "sgd", "decoupled_sgdw": "sgd", "rmsprop": "rmsprop"},
}
_SHARDING: dict[str, tuple[int, bool]] = {
    **{"FULL_SHARD": (3, True), "HYBRID_SHARD": (3, True)},
    **{"SHARD_GRAD_OP": (3, False), "_HYBRID_SHARD_ZERO2": (3, False), "NO_SHARD": (0, False)},
}
"""ZeRO stage, and whether weights are freed after the forward pass, by strategy."""

_DURATION = re.compile(r"(\d[\d_]{0,18})(ba|tok|ep|sp|sec|iter|dur)?")
_NORMS = {
    **dict.fromkeys(("layernorm", "low_precision_layernorm"), "layernorm"),
    **dict.fromkeys(("rmsnorm", "low_precision_rmsnorm", "triton_rmsnorm"), "rmsnorm"),
}
_OTHERS = {
    "hf_t5": "a model of encoder and decoder",
    "contrastive_lm": "training of embeddings",
    "finetune_embedding_model": "training of embeddings",
}


def read_llm_foundry(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a file of the training script, or of a job that holds one."""
    gpus = next((entry.value for entry in entries if entry.name == _GPUS), None)
    own = [replace(one, name=one.name.removeprefix(_PARAMETERS)) for one in entries if one.name.startswith(_PARAMETERS)]
    run = started(own or entries)
    if own and isinstance(gpus, int) and 0 < gpus <= rules.LARGEST:
        run = replace(run, processes=gpus)
    draft = drafts.draft_of(run.entries, FATES)
    if "model.name" not in draft.settings:
        message = "is not there: the file that a job's command names has the model"
        raise draft.wrong("model.name", "missing_file", message, "send that file, or the command with it beside")
    if (name := draft.get("model.name", "")) in _OTHERS:
        raise trainer.not_estimated(draft, "model.name", _OTHERS[name])
    is_mpt = draft.chosen("model.name", {"mpt_causal_lm": True, "hf_causal_lm": False}, None)
    _put_layout(draft, run)
    recipe = draft.recipe
    recipe["precision"] = draft.chosen("precision", _PRECISIONS, "amp_bf16")
    recipe["optimizer"] = draft.chosen("optimizer.name", _OPTIMIZERS, "decoupled_adamw")
    recipe["recompute"] = "full" if draft.get("fsdp_config.activation_checkpointing") else "none"
    recipe["method"] = _method(draft)
    recipe["stack"] = {"name": "fsdp1", "fused_update": True}
    if draft.get("expandable_segments", True):
        recipe["stack"]["expandable_segments"] = True
    _put_batch(draft)
    if is_mpt:
        _put_mpt(draft)
    else:
        _put_named(draft)
    return draft


def _put_layout(draft: drafts.Draft, run: Started) -> None:
    layout = draft.layout
    sharded = any(name == "fsdp_config" or name.startswith("fsdp_config.") for name in draft.fates)
    given = draft.get("fsdp_config.sharding_strategy", "FULL_SHARD" if sharded else "NO_SHARD")
    if str(given) not in _SHARDING:
        fix = f"use {', '.join(_SHARDING)}"
        raise draft.wrong("fsdp_config.sharding_strategy", "not_a_choice", "is no strategy of FSDP", fix)
    layout["zero_stage"], reshard = _SHARDING[str(given)]
    if layout["zero_stage"] == WEIGHTS:
        layout["reshard_after_forward"] = reshard
        if not draft.get("fsdp_config.reshard_after_forward", True):
            layout["reshard_after_forward"] = False
    shards = draft.get("fsdp_config.data_parallel_shard_degree", -1)
    groups = draft.get("fsdp_config.data_parallel_replicate_degree", 1)
    if run.processes is not None:
        layout["data"] = run.processes
    elif shards > 0:
        layout["data"] = shards * groups
    if "HYBRID" in str(given) and shards < 0 and groups == 1:
        why = "shards stay inside a node, whose GPUs the file does not count: give layout.shard_group"
        draft.not_understood("fsdp_config.sharding_strategy", why)
    elif shards > 0 and groups > 1:
        layout["shard_group"] = shards
    elif groups > 1:
        draft.shard_groups = groups
    layout["offload"] = "activations" if draft.get("fsdp_config.activation_cpu_offload") else "none"
    mixed = draft.get("fsdp_config.mixed_precision", "DEFAULT")
    if sharded and str(mixed).upper() not in ("PURE", "DEFAULT"):
        draft.not_understood("fsdp_config.mixed_precision", "weights are gathered in a format of their own")


def _put_batch(draft: drafts.Draft) -> None:
    recipe = draft.recipe
    if "max_seq_len" in draft.settings:
        recipe["sequence_length"] = draft.settings["max_seq_len"]
    if "global_train_batch_size" in draft.settings:
        recipe["global_batch"] = draft.settings["global_train_batch_size"]
    micro = draft.get("device_train_microbatch_size", "auto")
    if micro == "auto":
        draft.not_understood("device_train_microbatch_size", "the largest micro-batch that fits is searched")
    else:
        recipe["micro_batch"] = _sequences(draft, "device_train_microbatch_size")
    if "device_train_batch_size" in draft.settings and "global_batch" not in recipe:
        whole = _sequences(draft, "device_train_batch_size")
        draft.accumulation_steps = max(1, whole // max(1, recipe.get("micro_batch", whole)))
    _put_duration(draft)


def _sequences(draft: drafts.Draft, name: str) -> int:
    try:
        return rules.integer((draft.settings[name],))
    except (rules.WrongType, ValueError):
        raise draft.wrong(name, "not_a_whole_number", "is neither a whole number nor auto", "give one") from None


def _put_duration(draft: drafts.Draft) -> None:
    """Steps or tokens of the run; epochs count neither."""
    match = _DURATION.fullmatch(str(draft.get("max_duration", "1ep")))
    if match is None:
        raise draft.wrong("max_duration", "not_a_duration", "is no number with ba, tok, sp or ep", "write 4800ba")
    count, unit = int(match[1]), match[2] or "ep"
    length = draft.recipe.get("sequence_length")
    if unit == "ba":
        draft.training_steps = count
    elif unit == "tok" and count:
        draft.recipe["training_tokens"] = float(count)
    elif unit == "sp" and length and count:
        draft.recipe["training_tokens"] = float(count * length)


def _put_mpt(draft: drafts.Draft) -> None:
    """MPT by its sizes; what the file leaves out is MPTConfig's."""
    defaults = {"d_model": 2048, "n_heads": 16, "n_layers": 24, "vocab_size": 50368, "head_dim": None}
    sizes = {field: draft.get(f"model.{name}", defaults[name]) for name, field in _TABLE["sizes"].items()}
    width, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    bias = not draft.get("model.no_bias", False)
    kinds = {"multihead_attention": heads, "multiquery_attention": 1, "grouped_query_attention": None}
    groups = draft.chosen("model.attn_config.attn_type", kinds, "multihead_attention")
    learned = draft.get("model.learned_pos_emb", True)
    is_positioned = draft.get("model.attn_config.alibi", False) or draft.get("model.attn_config.rope", False)
    gated = {"mptmlp": False, "mptglu": True, "mb_dmoe": False, "mb_moe": False, "torch_dmoe": False}
    draft.model = {
        **{field: value for field, value in sizes.items() if value is not None},
        "num_key_value_heads": draft.get("model.attn_config.kv_n_heads", groups or heads),
        "intermediate_size": int(draft.get("model.expansion_ratio", 4) * width),
        "gated_mlp": draft.chosen("model.ffn_config.ffn_type", gated, "mptmlp"),
        "tie_word_embeddings": draft.get("model.tie_word_embeddings", True),
        "attention_bias": draft.get("model.attention_bias", bias),
        "attention_out_bias": bias,
        "mlp_bias": bias,
        "normalization": draft.chosen("model.norm_type", _NORMS, "low_precision_layernorm"),
        "position_embedding_rows": draft.get("model.max_seq_len", 2048) if learned and not is_positioned else 0,
    }
    if draft.model["normalization"] == "layernorm" and not bias:
        draft.model["normalization"] = "layernorm_no_bias"
    if draft.get("model.ffn_config.ffn_type", "mptmlp") not in ("mptmlp", "mptglu"):
        draft.not_understood("model.ffn_config.ffn_type", "experts stand in place of the MLP")
    kernels = {"flash": "flash", "triton": "flash-1", "torch": "eager"}
    draft.recipe["attention"] = draft.chosen("model.attn_config.attn_impl", kernels, "flash")
    losses = {"fused_crossentropy": "flash-attention", "torch_crossentropy": "eager"}
    draft.recipe["stack"]["cross_entropy"] = draft.chosen("model.loss_fn", losses, "fused_crossentropy")
    dropouts = [draft.get(f"model.{name}", 0.0) for name in ("resid_pdrop", "emb_pdrop", "attn_config.attn_pdrop")]
    if any(dropouts):
        draft.recipe["dropout_fraction"] = max(dropouts)


def _put_named(draft: drafts.Draft) -> None:
    """A model of Hugging Face by its name."""
    named = named_model(draft.get("model.pretrained_model_name_or_path", "."))
    draft.model = named.name
    if named.assumption:
        draft.assumptions.append(named.assumption)
    draft.recipe["stack"]["cross_entropy"] = "eager"
    if "model.attn_implementation" in draft.settings:
        draft.recipe["attention"] = draft.chosen("model.attn_implementation", trainer.ATTENTION, "sdpa")


def _method(draft: drafts.Draft) -> Any:
    if "model.peft_config.peft_type" not in draft.settings:
        return "full"
    if draft.settings["model.peft_config.peft_type"].upper() != "LORA":
        raise trainer.not_estimated(draft, "model.peft_config.peft_type", "adapters that are no LoRA")
    return trainer.method_of(
        draft,
        trainer.Adapters(
            rank=draft.get("model.peft_config.r", 8),
            targets=draft.get("model.peft_config.target_modules", ()),
            dropout_fraction=draft.get("model.peft_config.lora_dropout", 0.0),
            targets_setting="model.peft_config.target_modules",
        ),
    )
