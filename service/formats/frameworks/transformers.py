"""transformers and TRL: the arguments of scripts around Hugging Face's Trainer, on a command line, in YAML or JSON.

Source: transformers 5.24.0 training_args.py, 4.57.6 and 4.36.2 for older names; huggingface/trl@f2cd577 (1.10)
trl/trainer/*_config.py, trl/scripts/utils.py; lm-sys/FastChat@587d5cf fastchat/train (model_max_length, q_lora);
huggingface/peft@5d602fd examples/sft/train.py (use_peft_lora); artidoro/qlora@7f4e95a qlora.py (bits, source_max_len).
"""

import re
from collections.abc import Sequence
from typing import Any

from service.formats import drafts, rules
from service.formats.composed import PROGRAM
from service.formats.frameworks import trainer
from service.formats.text import Entry

_TABLE = rules.framework_table("transformers", *drafts.FATES, "earlier", "trainings")
FATES = drafts.fates_of({}, trainer.FSDP, trainer.TABLE, _TABLE, trainer.refused_trainings(_TABLE["trainings"]))

_MODELS = ("model_name_or_path", "model_name", "model_path", "model_id", "model", "base_model")

_LENGTHS = ("max_seq_length", "max_length", "block_size", "model_max_length", "max_seq_len")

_SWITCHES = ("use_peft", "use_lora", "use_peft_lora", "q_lora", "bits")
_TARGETS = ("lora_target_modules", "lora_modules", "target_modules")
_OF_ADAPTERS = {"rank": {"lora_r", "lora_rank"}, "matrices": {*_TARGETS}}
"""Settings that state what adapters have."""
_IN_4_BITS = ("load_in_4bit", "q_lora", "use_4bit_quantization")
_IN_8_BITS = ("load_in_8bit", "bits", "use_8bit_quantization")
_DOUBLED = ("use_bnb_nested_quant", "double_quant", "use_nested_quant")
"""Settings of adapters and frozen matrices in TRL, FastChat, the examples of peft, and QLoRA."""

_DTYPES = {
    **dict.fromkeys(("bfloat16", "bf16", "auto"), "bf16"),
    **dict.fromkeys(("float16", "fp16"), "fp16"),
    **dict.fromkeys(("float32", "fp32"), "fp32"),
}
"""Formats of loaded weights; auto is that of the checkpoint, which is bf16 for models of today."""


def read_transformers(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of arguments of a script around Trainer."""
    return _read(entries, is_trl=False)


def read_trl(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of arguments of TRL's scripts, whose defaults differ."""
    return _read(entries, is_trl=True)


def _read(entries: Sequence[Entry], *, is_trl: bool) -> drafts.Draft:
    own, deepspeed, accelerate = trainer.parted(entries)
    draft = drafts.draft_of(own, FATES)
    is_trl = is_trl and not _is_own_script(draft)
    trainer.refuse_trainings(draft, _TABLE["trainings"])
    _refuse_programs(draft)
    training = trainer.common_arguments(draft)
    if is_trl:
        _put_trl_defaults(draft, training)
    else:
        _note_defaults(draft)
    training.model = _model(draft)
    length = next((name for name in _LENGTHS if name in draft.settings), None)
    training.sequence_length = draft.settings[length] if length else _parted_length(draft, is_trl=is_trl)
    training.weights = _weights(draft, is_trl=is_trl)
    training.attention = _attention(draft)
    training.method = _method(draft)
    training.liger = training.liger or draft.get("use_liger", False)
    if training.sequence_length is None:
        draft.assumptions.append("the sequence length is the script's: give recipe.sequence_length")
    trainer.put_training(draft, training, deepspeed, accelerate)
    if draft.recipe["stack"]["name"] != "deepspeed":
        _put_frozen(draft, training, is_trl=is_trl)
    return draft


def _model(draft: drafts.Draft) -> Any:
    """The model, which scripts with arguments of their own name in other words."""
    name = next((one for one in _MODELS if one in draft.settings), "")
    if name and name != _MODELS[0]:
        draft.assumptions.append(f"the model is that of {name}, which is the script's own setting")
    return draft.get(name)


def _is_own_script(draft: drafts.Draft) -> bool:
    """Whether a script takes its data in its own way, and so is none of TRL's, which require dataset_name."""
    is_script = draft.get(PROGRAM, "").endswith(".py")
    return is_script and not any(name.startswith("dataset") for name in draft.fates)


_PROGRAMS = re.compile(
    r"(?:^|[._-])(?:dpo|grpo|kto|orpo|cpo|bco|ppo|rloo|rlhf|gkd|xpo|nash|online|simpo|gspo|reward|rm|prm|distill\w*)(?:[._-]|$)"
)
"""Names of scripts of trainings that are not estimated."""


def _refuse_programs(draft: drafts.Draft) -> None:
    """Refuse a script whose name tells of another training than SFT, and adapters of a model that gives one number."""
    if _PROGRAMS.search(draft.get(PROGRAM, "")):
        what = "training by preference or by rewards, reward modelling or distillation, by its name"
        raise trainer.not_estimated(draft, PROGRAM, what)
    task = draft.fates.get("lora_task_type")
    if task is not None and "SEQ_CLS" in (task.entry.value, *(task.entry.value or ())):
        raise trainer.not_estimated(draft, "lora_task_type", "reward modelling or classification")


def _put_frozen(draft: drafts.Draft, training: trainer.Training, *, is_trl: bool) -> None:
    """What frozen weights are loaded in, which DeepSpeed alone casts: adapters stand beside them as they are."""
    if training.method["name"] != "lora" or training.weights != "fp32" or training.autocast is None:
        return
    if is_trl:
        switch = next(name for name in _SWITCHES if draft.get(name))
        draft.not_understood(switch, "frozen weights are loaded in fp32 and stay so; give dtype bfloat16")
    else:
        draft.assumptions.append(
            "frozen weights are taken in the compute format; those loaded in fp32 need twice as much"
        )


def _parted_length(draft: drafts.Draft, *, is_trl: bool) -> int | None:
    """The length of a prompt and of its answer together, as QLoRA's script gives them; TRL's own length without."""
    parts = [draft.settings[name] for name in ("source_max_len", "target_max_len") if name in draft.settings]
    return sum(parts) if parts else 1024 if is_trl else None


def _note_defaults(draft: drafts.Draft) -> None:
    """What scripts around Trainer often set themselves."""
    missing = [name for name in ("gradient_checkpointing", "gradient_accumulation_steps") if name not in draft.settings]
    if missing:
        draft.assumptions.append(
            f"{' and '.join(missing)}: as TrainingArguments has them unless they are given; a script may have its own"
        )
    if "source_max_len" in draft.settings and not {"bits", "full_finetune"} & draft.settings.keys():
        why = "scripts after QLoRA's train adapters beside matrices of 4 bits unless they are asked for full_finetune"
        draft.not_understood("source_max_len", why)


def _put_trl_defaults(draft: drafts.Draft, training: trainer.Training) -> None:
    if "bf16" not in draft.settings and training.autocast is None:
        training.autocast = "bf16"
    if "gradient_checkpointing" not in draft.settings:
        training.recomputes = True
    losses = draft.get("loss_type", ())
    training.chunked_loss = not losses and not draft.get("use_liger_kernel", False)
    stated = {*draft.settings, *(("bf16",) if draft.get("fp16") else ())}
    missing = [name for name in ("bf16", "gradient_checkpointing") if name not in stated]
    if missing:
        draft.assumptions.append(f"{' and '.join(missing)}: true, as TRL sets them since 0.20 unless they are given")
    if training.chunked_loss:
        draft.assumptions.append("the loss is made in chunks, as TRL 1.10 does; earlier releases hold all logits")


def _weights(draft: drafts.Draft, *, is_trl: bool) -> Any:
    for name in ("dtype", "torch_dtype", "model_init_kwargs.dtype", "model_init_kwargs.torch_dtype"):
        if name in draft.settings:
            return draft.chosen(name, _DTYPES, "float32")
    if draft.get("deepspeed") is None:
        by = "TRL" if is_trl else "a script that does not say otherwise"
        draft.assumptions.append(f"weights are loaded in fp32, as {by} does")
    return "fp32"


def _attention(draft: drafts.Draft) -> str | None:
    for name in ("attn_implementation", "model_init_kwargs.attn_implementation"):
        if name in draft.settings:
            return str(draft.chosen(name, trainer.ATTENTION, "sdpa"))
    return None


def _method(draft: drafts.Draft) -> dict[str, Any]:
    bits = 4 if any(map(draft.get, _IN_4_BITS)) or draft.get("bits") == 4 else None
    eight = next((name for name in _IN_8_BITS if draft.get(name) in (True, 8)), None)
    if eight is not None:
        draft.not_understood(eight, "frozen weights in 8 bits are not estimated")
    switch = next((name for name in _SWITCHES if draft.get(name)), None)
    if draft.get("full_finetune"):
        return {"name": "full"}
    if switch is None:
        off = next((name for name in _SWITCHES if draft.get(name) is False), None)
        for name in {"lora_r", "lora_rank", *_TARGETS} & draft.settings.keys():
            if off:
                draft.without_effect(name, f"it is about adapters, and {off} is off")
            else:
                draft.not_understood(name, "it tells of adapters, and nothing says whether they are used")
        return {"name": "full"}
    rank = draft.get("lora_r", draft.get("lora_rank", 16 if switch == "use_peft" else 8))
    given = draft.settings.keys()
    missing = [name for name, known in _OF_ADAPTERS.items() if not known & given]
    if missing and switch not in ("q_lora", "bits"):
        draft.assumptions.append(
            f"adapters have TRL's or PEFT's default {' and '.join(missing)}; a script may have its own"
        )
    doubled = (draft.settings[name] for name in _DOUBLED if name in draft.settings)
    is_double = next(doubled, switch in ("q_lora", "bits"))
    targets = next((name for name in _TARGETS if name in draft.settings), _TARGETS[0])
    adapters = trainer.Adapters(
        rank=rank,
        targets=draft.get(targets, ()),
        targets_setting=targets,
        dropout_fraction=draft.get("lora_dropout", 0.05),
        whole=draft.get("lora_modules_to_save", ()),
        quantization=None if bits is None else "nf4-double" if is_double else "nf4",
    )
    return trainer.method_of(draft, adapters)
