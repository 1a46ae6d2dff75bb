"""axolotl: its YAML, which becomes arguments of Hugging Face's Trainer.

Source: axolotl-ai-cloud/axolotl@067b021c (0.18.0) src/axolotl/utils/schemas, utils/config (dtypes),
core/builders/base.py (arguments of Trainer), loaders/model.py and loaders/adapter.py (quantization, targets),
utils/trainer.py (FSDP).
"""

from collections.abc import Sequence
from typing import Any

from service.formats import drafts, rules
from service.formats.composed import PROGRAM
from service.formats.frameworks import trainer
from service.formats.text import Entry

_TABLE = rules.framework_table("axolotl", *drafts.FATES, "trainings", "files")

FATES = drafts.fates_of({}, trainer.FSDP, _TABLE, trainer.refused_trainings(_TABLE["trainings"]))

_DATA = ("datasets", "pretraining_dataset")

_RL = {
    **dict.fromkeys(("dpo", "ipo", "kto", "orpo", "simpo", "gdpo"), "training by preference, with two answers at once"),
    **dict.fromkeys(("grpo", "ebft"), "training by rewards, with answers that the model generates while it trains"),
}

_ATTENTION_FLAGS = {
    **dict.fromkeys(("flash_attention", "sdp_attention", "xformers_attention", "flex_attention"), "flash"),
    "eager_attention": "eager",
}


def read_axolotl(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of an axolotl file."""
    own, deepspeed, accelerate = trainer.parted(trainer.with_shipped(entries, _TABLE["files"]))
    draft = drafts.draft_of(own, FATES)
    _refuse_own_script(draft)
    trainer.refuse_trainings(draft, _TABLE["trainings"])
    _refuse_rewards(draft)
    if "deepspeed" in draft.settings:
        raise trainer.missing_file(draft, "deepspeed")
    half: Any = "bf16" if _is_bf16(draft) else "fp16" if draft.get("fp16") or draft.get("float16") else None
    steps = draft.get("max_steps", 0)
    checkpointing = draft.get("gradient_checkpointing", False)
    if checkpointing not in (True, False):
        draft.not_understood("gradient_checkpointing", "what recompute keeps waits in host memory or on a disk")
    training = trainer.Training(
        model=draft.get("base_model"),
        model_setting="base_model",
        sequence_length=draft.get("sequence_len", 512),
        micro_batch=draft.get("micro_batch_size", 1),
        accumulation=_accumulation(draft),
        steps=steps if steps > 0 else None,
        autocast=half,
        weights=half or "fp32",
        **trainer.optimizer_of(draft, "optimizer"),
        recomputes=bool(checkpointing),
        attention=_attention(draft),
        method=_method(draft),
        compiled=draft.get("torch_compile", False) is not False,
        **_liger(draft),
        fsdp=_fsdp(draft),
        parallel=_parallel(draft),
        chunked_loss=draft.get("chunked_cross_entropy", False),
    )
    return trainer.put_training(draft, training, deepspeed, accelerate)


def _refuse_own_script(draft: drafts.Draft) -> None:
    """Refuse a script that takes its data in its own way: every file of axolotl lists its datasets."""
    if draft.get(PROGRAM, "").endswith(".py") and not any(name.startswith(_DATA) for name in draft.fates):
        what = "names a script of its own, with some of axolotl's names among its settings and none of its datasets"
        fix = "no format reads it: state the question itself, with its model, recipe and layout"
        raise draft.wrong(PROGRAM, "not_read", what, fix)


def _refuse_rewards(draft: drafts.Draft) -> None:
    kinds = {"rl": _RL.get(str(draft.fates["rl"].entry.value), "another training") if "rl" in draft.fates else ""}
    for name in ("reward_model", "process_reward_model"):
        kinds[name] = "reward modelling, which reads a chosen and a rejected answer at once"
    for name, what in kinds.items():
        if name in draft.fates and draft.fates[name].entry.value not in (None, False):
            raise trainer.not_estimated(draft, name, what)


def _is_bf16(draft: drafts.Draft) -> bool:
    given = draft.get("bf16", "auto")
    if given == "auto":
        return not draft.get("fp16", False)
    return given in (True, "full", "true") or draft.get("bfloat16", False)


def _accumulation(draft: drafts.Draft) -> int:
    whole, micro = draft.get("batch_size"), draft.get("micro_batch_size", 1)
    given: int = draft.get("gradient_accumulation_steps") or (whole // micro if whole else 1)
    return max(1, given)


def _attention(draft: drafts.Draft) -> str | None:
    if "attn_implementation" in draft.settings:
        return str(draft.chosen("attn_implementation", trainer.ATTENTION, "sdpa"))
    return next((kind for name, kind in _ATTENTION_FLAGS.items() if draft.get(name)), None)


def _method(draft: drafts.Draft) -> dict[str, Any]:
    adapter = draft.get("adapter")
    if adapter is None:
        for name in ("lora_r", "lora_target_modules", "lora_target_linear", "lora_dropout"):
            draft.without_effect(name, "there are no adapters")
        return {"name": "full"}
    if adapter not in ("lora", "qlora"):
        raise trainer.not_estimated(draft, "adapter", "a kind of adapter that is neither lora nor qlora")
    if draft.get("load_in_8bit"):
        draft.not_understood("load_in_8bit", "frozen weights in 8 bits are not estimated")
    is_quantized = adapter == "qlora" or draft.get("load_in_4bit") or draft.get("gptq")
    targets = (*draft.get("lora_target_modules", ()), *(("all-linear",) if draft.get("lora_target_linear") else ()))
    adapters = trainer.Adapters(
        rank=draft.get("lora_r", 8),
        targets=targets,
        dropout_fraction=draft.get("lora_dropout", 0.0),
        whole=draft.get("lora_modules_to_save", ()),
        quantization="gptq" if draft.get("gptq") else "nf4-double" if is_quantized else None,
    )
    return trainer.method_of(draft, adapters)


def _liger(draft: drafts.Draft) -> dict[str, Any]:
    """Liger's kernels: the estimator has those of norms and MLP together, with its loss or without."""
    layers = draft.get("liger_rms_norm", False), draft.get("liger_glu_activation", draft.get("liger_swiglu", False))
    loss = draft.get("liger_fused_linear_cross_entropy", False)
    if (any(layers) or loss) and not all(layers):
        for name in ("liger_rms_norm", "liger_glu_activation", "liger_swiglu", "liger_fused_linear_cross_entropy"):
            if draft.get(name):
                draft.not_understood(name, "some of Liger's kernels run without the others")
    for plugin in draft.get("plugins", ()):
        if "liger" not in plugin and "cut_cross_entropy" not in plugin:
            draft.not_understood("plugins", "a plugin changes the training")
        elif "cut_cross_entropy" in plugin and draft.get("cut_cross_entropy", True):
            draft.not_understood("plugins", "the head and the loss run in one kernel that keeps no logits")
    return {"liger": all(layers), "liger_loss": loss, "liger_setting": "liger_rms_norm"}


def _fsdp(draft: drafts.Draft) -> dict[str, Any] | None:
    given = [name for name in draft.fates if name == "fsdp_config" or name.startswith("fsdp_config.")]
    if not (draft.get("fsdp") or any(draft.fates[name].entry.value is not None for name in given)):
        return None
    found = trainer.fsdp_settings(draft)
    found.setdefault("version", draft.get("fsdp_version", 1))
    found.setdefault("auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
    words = trainer.fsdp_words(draft)
    strategies = [word for word in words if "shard" in word]
    if strategies and found["version"] == 1:
        found.setdefault("sharding_strategy", strategies[0].upper())
    if "offload" in words:
        found["offload_params"] = True
    return found


def _parallel(draft: drafts.Draft) -> dict[str, int]:
    context = max(draft.get("context_parallel_size", 1), draft.get("sequence_parallel_degree", 1))
    found = {"tp_size": max(1, draft.get("tensor_parallel_size", 1)), "cp_size": context}
    return found | {
        name: draft.settings[name] for name in ("dp_shard_size", "dp_replicate_size") if name in draft.settings
    }
