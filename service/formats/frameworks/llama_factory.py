"""LLaMA-Factory: its YAML, JSON and command line, which become arguments of Hugging Face's Trainer.

Source: hiyouga/LLaMA-Factory@ff6d4d1 (0.9.6) src/llamafactory/hparams, model/adapter.py (trained weights become fp32
unless pure_bf16), model/model_utils (checkpointing, quantization, liger_kernel).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.formats import drafts, rules
from service.formats.frameworks import trainer
from service.formats.model_names import named_model
from service.formats.text import Entry

_TABLE = rules.framework_table("llama_factory", *drafts.FATES, "files")

FATES = drafts.fates_of({}, trainer.FSDP, trainer.TABLE, _TABLE)

_STAGES = {
    "rm": "reward modelling, which reads a chosen and a rejected answer at once",
    "ppo": "training by rewards (PPO), with answers that the model generates while it trains",
    "dpo": "training by preference (DPO and its kin), with two answers at once and often a second, frozen model",
    "kto": "training by preference (KTO), with a second, frozen model",
}

_FLASH = {"disabled": "eager", **dict.fromkeys(("auto", "sdpa", "fa2", "fa3"), "flash")}


def read_llama_factory(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of LLaMA-Factory's arguments."""
    own, deepspeed, accelerate = trainer.parted(trainer.with_shipped(entries, _TABLE["files"]))
    draft = drafts.draft_of([_today(one) for one in own], FATES)
    _refuse_untrained(draft)
    if (stage := draft.get("stage", "sft")) in _STAGES:
        raise trainer.not_estimated(draft, "stage", _STAGES[stage])
    draft.chosen("stage", {"pt": "pt", "sft": "sft"}, "sft")
    training = trainer.common_arguments(draft)
    training.model = draft.get("model_name_or_path")
    training.sequence_length = draft.get("cutoff_len", 2048)
    training.weights = "bf16" if draft.get("pure_bf16") else "fp32"
    if draft.get("pure_bf16"):
        training.autocast = None
    training.recomputes = not draft.get("disable_gradient_checkpointing", False)
    draft.without_effect("gradient_checkpointing", "disable_gradient_checkpointing decides")
    training.attention = draft.chosen("flash_attn", _FLASH, "auto")
    training.method = _method(draft)
    if "enable_liger_kernel" in draft.settings:
        training.liger, training.liger_setting = draft.settings["enable_liger_kernel"], "enable_liger_kernel"
    for name, optimizer in (("use_adam_mini", "adam-mini"), ("use_muon", "muon")):
        if draft.get(name):
            training.optimizer, training.is_fused = optimizer, False
    return trainer.put_training(draft, training, deepspeed, accelerate)


def _refuse_untrained(draft: drafts.Draft) -> None:
    """Refuse a file that evaluates or exports a model, which states no training."""
    for name in ("task", "export_dir", "infer_backend"):
        if draft.fates.get(name) is not None:
            fix = "send the file of the training itself"
            raise draft.wrong(name, "not_a_training", "stands in a file that trains no model", fix)


def _today(entry: Entry) -> Entry:
    """A setting as releases of today spell it; flash_attn was a switch before 0.8."""
    is_switch = entry.name == "flash_attn" and entry.value in ((), True)
    return replace(entry, value="fa2") if is_switch else entry


def _method(draft: drafts.Draft) -> dict[str, Any]:
    kind = draft.chosen("finetuning_type", {name: name for name in ("lora", "full", "freeze", "oft")}, "lora")
    if kind == "oft":
        raise trainer.not_estimated(draft, "finetuning_type", "orthogonal fine-tuning")
    if kind != "lora":
        for name in ("lora_rank", "lora_target", "lora_dropout", "additional_target"):
            draft.without_effect(name, "there are no adapters")
        return {"name": "full"} if kind == "full" else _frozen(draft)
    bits = draft.get("quantization_bit")
    if bits not in (None, 4):
        draft.not_understood("quantization_bit", f"frozen weights in {bits} bits are not estimated")
    double = "nf4-double" if draft.get("double_quantization", True) else "nf4"
    kinds = {"bnb": double, "bitsandbytes": double, "gptq": "gptq"}
    adapters = trainer.Adapters(
        rank=draft.get("lora_rank", 8),
        targets=draft.get("lora_target", ("all",)),
        dropout_fraction=draft.get("lora_dropout", 0.0),
        whole=draft.get("additional_target", ()),
        quantization=draft.chosen("quantization_method", kinds, "bnb") if bits == 4 else None,
        targets_setting="lora_target",
        whole_setting="additional_target",
    )
    return trainer.method_of(draft, adapters)


def _frozen(draft: drafts.Draft) -> dict[str, Any]:
    """The last layers alone are trained, as the file has it; others are frozen with both ends of the model."""
    trained = draft.get("freeze_trainable_layers", 2)
    named = named_model(draft.get("model_name_or_path", ""))
    if named.model is None or not 0 < trained <= named.model.num_hidden_layers:
        why = "which layers are frozen follows from the model's own, which the catalogue lacks"
        raise draft.wrong(
            "finetuning_type", "not_estimated", f"freezes layers, and {why}", "name a model of the catalogue"
        )
    layers = named.model.num_hidden_layers - trained
    return {"name": "full", "frozen": ["embedding", "head"], "frozen_layers": layers}
