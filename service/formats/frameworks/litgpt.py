"""LitGPT: the YAML and the options of its finetune and pretrain, which Lightning Fabric runs.

Source: Lightning-AI/litgpt@2685705 finetune/full.py and pretrain.py (FSDP of blocks; recompute of blocks on several
GPUs; HYBRID_SHARD over nodes), finetune/lora.py (FSDP2; bitsandbytes on one GPU alone), utils.py (paged optimizer
beside matrices of few bits; precision where none is given), config.py (Config), model.py (a head beside the embedding).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from service.estimator.question import Model
from service.formats import drafts, rules
from service.formats.composed import PROGRAM, overrides_in, started
from service.formats.frameworks import trainer
from service.formats.model_names import named_model, stated
from service.formats.text import Entry
from service.text_bounds import Place

_TABLE = rules.framework_table("litgpt", *drafts.FATES, "sizes")
FATES = drafts.fates_of({}, _TABLE)

_PRECISIONS = {
    **{"bf16-true": "bf16-pure", "bf16-mixed": "bf16-mixed", "bf16": "bf16-mixed"},
    **{"16-true": "fp16-pure", "16-mixed": "fp16-mixed", "16": "fp16-mixed"},
    **{"32-true": "fp32", "32": "fp32"},
}
_QUANTIZATIONS = {
    **dict.fromkeys(("bnb.nf4", "bnb.fp4"), "nf4"),
    **dict.fromkeys(("bnb.nf4-dq", "bnb.fp4-dq"), "nf4-double"),
}
"""Formats of frozen matrices; the two kinds of 4 bits take as much."""

_OPTIMIZERS = {
    **{"AdamW": "adamw", "Adam": "adam", "SGD": "sgd", "RMSprop": "rmsprop", "Adafactor": "adafactor"},
    **{
        "PagedAdamW": "adamw",
        "AdamW8bit": "adamw-8bit",
        "PagedAdamW8bit": "adamw-8bit",
        "Lion": "lion",
        "Muon": "muon",
    },
}
_ADAPTERS = ("lora_query", "lora_key", "lora_value", "lora_projection", "lora_mlp", "lora_head")
_CAPPED = re.compile(r"(?i)gemma-?2-\d")
"""Models whose attention scores are capped, which no flash kernel does in LitGPT."""

_TOKENS = re.compile(r"\d{1,18}(?:\.\d{0,9})?(?:[eE]\+?\d\d?)?")
_BITSANDBYTES = "0.42"
"""The version that LitGPT pins."""


def read_litgpt(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a file of finetune or pretrain."""
    run = started(entries)
    draft = drafts.draft_of(run.entries, FATES)
    if "adapter" in run.program:
        raise trainer.not_estimated(draft, PROGRAM, "adapters that are no LoRA")
    pretrains = "pretrain" in run.program or any(name in draft.settings for name in ("model_name", "train.max_tokens"))
    adapts = any(name in draft.fates for name in ("quantize", "lora_r", *_ADAPTERS)) or run.program.endswith("lora")
    _put_layout(draft, pretrains=pretrains)
    model = _put_model(draft)
    _put_batch(draft, model, pretrains=pretrains)
    recipe = draft.recipe
    recipe["precision"] = draft.chosen("precision", _PRECISIONS, "bf16-mixed")
    recipe["optimizer"] = _optimizer(draft)
    recipe["method"] = _method(draft, model) if adapts and not pretrains else "full"
    is_alone = draft.layout.get("data") == 1
    recipe["recompute"] = "none" if pretrains or is_alone else "full"
    _put_software(draft, pretrains=pretrains)
    return draft


def _put_layout(draft: drafts.Draft, *, pretrains: bool) -> None:
    layout = draft.layout
    devices, nodes = _devices(draft, 0 if pretrains else 1), draft.get("num_nodes", 1)
    layout["zero_stage"] = 0 if devices * nodes == 1 else 3
    if devices:
        layout["data"] = devices * nodes
    else:
        draft.assumptions.append(f"devices is auto: {drafts.FROM_GPUS}")
    if layout["zero_stage"]:
        layout["reshard_after_forward"] = True
    if pretrains and nodes > 1 and devices:
        layout["shard_group"] = devices


def _devices(draft: drafts.Draft, default: int) -> int:
    """GPUs of a node; 0 for all that are there."""
    given = draft.get("devices", default)
    if given in ("auto", -1, "-1"):
        return 0
    try:
        return rules.integer((given,))
    except (rules.WrongType, ValueError):
        raise draft.wrong("devices", "not_a_whole_number", "is neither a number nor auto", "give a number") from None


def _put_model(draft: drafts.Draft) -> Model | None:
    """The model that the file names, with a head of its own; or that of the sizes that it gives."""
    given = draft.get("checkpoint_dir", draft.get("model_name"))
    if "model_config.n_layer" in draft.settings and "model_config.n_embd" in draft.settings:
        draft.model = _sized(draft)
        return None
    if given is None:
        draft.assumptions.append("no model: give model")
        return None
    named = named_model("/".join(given.rstrip("/").split("/")[-2:]) if "checkpoints" in given else given)
    draft.model = named.name
    if named.assumption:
        draft.assumptions.append(named.assumption)
    if _CAPPED.search(given):
        draft.recipe["attention"] = "eager"
    if named.model is not None and named.model.tie_word_embeddings and not draft.get("train.tie_embeddings"):
        draft.model = {**stated(named.model), "tie_word_embeddings": False}
        draft.assumptions.append("the head has a matrix of its own beside the embedding, as LitGPT's models have")
    return named.model


def _sized(draft: drafts.Draft) -> dict[str, Any]:
    sizes = {field: draft.get(f"model_config.{name}") for name, field in _TABLE["sizes"].items()}
    heads = draft.get("model_config.n_head", 32)
    usual = {"num_attention_heads": heads, "num_key_value_heads": heads, "mlp_bias": True, "parallel_attention": True}
    usual["intermediate_size"] = 4 * draft.settings["model_config.n_embd"]
    found = {**usual, **{field: value for field, value in sizes.items() if value is not None}}
    found["attention_out_bias"] = found["mlp_bias"]
    multiple = max(1, draft.get("model_config.padding_multiple", 512))
    rows = draft.get("model_config.vocab_size", 50254)
    found["vocab_size"] = draft.get("model_config.padded_vocab_size", multiple * -(-rows // multiple))
    norms = {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}
    found["normalization"] = draft.chosen("model_config.norm_class_name", norms, "LayerNorm")
    gated = {"GptNeoxMLP": False, "LLaMAMLP": True, "GemmaMLP": True}
    found["gated_mlp"] = draft.chosen("model_config.mlp_class_name", gated, "GptNeoxMLP")
    found["tie_word_embeddings"] = draft.get("train.tie_embeddings", False)
    found["norms_per_layer"] = 1 if draft.get("model_config.shared_attention_norm") else 2
    return found


def _put_batch(draft: drafts.Draft, model: Model | None, *, pretrains: bool) -> None:
    recipe = draft.recipe
    recipe["micro_batch"] = draft.get("train.micro_batch_size", 4 if pretrains else 1)
    recipe["global_batch"] = draft.get("train.global_batch_size", 512 if pretrains else 16)
    longest = model.max_position_embeddings if model else draft.get("model_config.block_size")
    length = draft.get("train.max_seq_length", longest if pretrains else None)
    if length is None:
        draft.assumptions.append("sequences are as long as the data has them: give recipe.sequence_length")
    else:
        recipe["sequence_length"] = length
    if pretrains:
        recipe["training_tokens"] = _tokens(draft)
    elif "train.max_steps" in draft.settings:
        draft.training_steps = draft.settings["train.max_steps"]


def _tokens(draft: drafts.Draft) -> float:
    """Tokens of the run, of which a setting may have more than any other counts."""
    word = str(draft.get("train.max_tokens", 3e12))
    if not _TOKENS.fullmatch(word):
        raise draft.wrong("train.max_tokens", "not_a_number", "is no number of tokens", "give one, such as 3e12")
    return float(word)


def _optimizer(draft: drafts.Draft) -> Any:
    name = "optimizer.class_path" if "optimizer.class_path" in draft.settings else "optimizer"
    found = _OPTIMIZERS.get(draft.get(name, "AdamW").rpartition(".")[2])
    if found is None:
        named = ", ".join(_OPTIMIZERS)
        raise draft.wrong(name, "not_a_choice", "is none of the optimizers that are understood", f"use {named}")
    momentum = "optimizer.init_args.momentum"
    return "sgd-momentum" if found == "sgd" and momentum in draft.fates else found


def _method(draft: drafts.Draft, model: Model | None) -> dict[str, Any]:
    is_gated = model is None or model.gated_mlp
    parts = {
        "lora_query": ("q_proj",),
        "lora_key": ("k_proj",),
        "lora_value": ("v_proj",),
        "lora_projection": ("o_proj",),
        "lora_mlp": ("gate_proj", "up_proj", "down_proj") if is_gated else ("up_proj", "down_proj"),
        "lora_head": ("lm_head",),
    }
    targets = [
        one for name in _ADAPTERS if draft.get(name, name in ("lora_query", "lora_value")) for one in parts[name]
    ]
    quantize = draft.get("quantize")
    if quantize == "bnb.int8-training":
        draft.not_understood("quantize", "frozen weights in 8 bits are not estimated")
        quantize = None
    return trainer.method_of(
        draft,
        trainer.Adapters(
            rank=draft.get("lora_r", 8),
            targets=targets,
            dropout_fraction=draft.get("lora_dropout", 0.05),
            quantization=draft.chosen("quantize", _QUANTIZATIONS, None) if quantize else None,
        ),
    )


def _put_software(draft: drafts.Draft, *, pretrains: bool) -> None:
    stack: dict[str, Any] = {"name": "transformers", "implementation": "litgpt"}
    method = draft.recipe["method"]
    draft.layout["offload"] = "none"
    if isinstance(method, dict) and method["name"] == "qlora":
        stack["versions"] = {"bitsandbytes": _BITSANDBYTES}
        draft.layout["offload"] = "optimizer"
    if draft.get("optimizer.init_args.fused", pretrains):
        stack["fused_update"] = True
    if pretrains:
        why = "pretraining compiles the whole model, which is not modelled; POST /v1/estimates leaves that out"
        draft.not_understood("model_name", why)
    draft.recipe["stack"] = stack


_KINDS_OF_FINETUNE = ("lora", "full", "adapter", "adapter_v2")
"""Words after finetune of LitGPT's older releases."""


def command_entries(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """What LitGPT's program is asked to do, the model that stands after it, and its options."""
    names = list(takewhile(lambda one: not one[0].startswith("--"), words))
    task, place = names[0] if names else ("", words[0][1])
    kind = names[1:2] if task == "finetune" and len(names) > 1 and names[1][0] in _KINDS_OF_FINETUNE else []
    yield Entry(PROGRAM, "_".join([task, *(word for word, _ in kind)]), place)
    for word, where in names[1 + len(kind) :][:1]:
        yield Entry("model_name" if task == "pretrain" else "checkpoint_dir", (word,), where)
    yield from overrides_in(words[len(names) :])
