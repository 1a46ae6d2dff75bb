"""Hugging Face's Trainer: what its arguments make of a question, whichever tool's file states them.

Source: transformers 5.24.0 trainer.py, training_args.py, integrations/deepspeed.py; accelerate 1.15.0 accelerator.py,
utils/fsdp_utils.py (weights that are trained become fp32 under FSDP and mixed precision); peft 0.18 tuners/lora.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from service.formats import rules
from service.formats.drafts import FATES, Draft, Setting, under
from service.formats.frameworks.accelerate import FILE_OF_DEEPSPEED, accelerate_draft, deepspeed_entries, put_ranks
from service.formats.frameworks.deepspeed import FROM_ARGUMENTS, deepspeed_draft
from service.formats.model_names import NamedModel, named_model
from service.formats.text import Entry, shortened
from service.text_bounds import Place

Half = Literal["bf16", "fp16"]

DEEPSPEED = "deepspeed"
ACCELERATE = "accelerate"
"""Settings under which another tool's file stands: its own object, or a file that is sent beside."""

AUTO = "auto"

FSDP = rules.framework_table("fsdp", *FATES)
TABLE = rules.framework_table("trainer", *FATES)
"""Fates of the settings of fsdp_config, and of those of TrainingArguments."""

OPTIMIZERS: Mapping[str, str] = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw", "adam"), "adamw"),
    **dict.fromkeys(("paged_adamw", "paged_adamw_32bit", "adamw_torch_npu_fused", "optimi_adamw"), "adamw"),
    **dict.fromkeys(
        ("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit", "ao_adamw_8bit"), "adamw-8bit"
    ),
    **dict.fromkeys(("lion", "lion_32bit", "paged_lion", "paged_lion_32bit"), "lion"),
    **{name: name for name in ("sgd", "rmsprop", "adafactor", "muon")},
}
"""Optimizers of a question by their names in transformers (OptimizerNames) and axolotl."""

ATTENTION: Mapping[str, str] = {
    **dict.fromkeys(("sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "xformers", "auto"), "flash"),
    **dict.fromkeys(("kernels-community/flash-attn", "kernels-community/flash-attn2", "fa2", "fa3"), "flash"),
    **dict.fromkeys(("kernels-community/flash-attn3", "kernels-community/vllm-flash-attn3"), "flash"),
    **dict.fromkeys(("eager", "disabled"), "eager"),
}
"""Attention of a question by its names in transformers, axolotl and LLaMA-Factory."""

_MATRICES: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")},
    **{name: (name,) for name in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "in_proj", "x_proj")},
    **{name: (name,) for name in ("dt_proj", "lm_head", "all-linear")},
    **dict.fromkeys(("all", "all_linear"), ("all-linear",)),
    **dict.fromkeys(("query_key_value", "qkv_proj", "c_attn", "Wqkv", "W_pack"), ("q_proj", "k_proj", "v_proj")),
    **dict.fromkeys(("out_proj", "dense"), ("o_proj",)),
    **dict.fromkeys(("dense_h_to_4h", "fc1", "c_fc"), ("up_proj",)),
    **dict.fromkeys(("dense_4h_to_h", "fc2"), ("down_proj",)),
    **dict.fromkeys(("gate_up_proj", "linear_fc1"), ("gate_proj", "up_proj")),
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc2": ("down_proj",),
    "linear_q_down_proj": ("q_a_proj",),
    "linear_q_up_proj": ("q_b_proj",),
    "linear_kv_down_proj": ("kv_a_proj_with_mqa",),
    "linear_kv_up_proj": ("kv_b_proj",),
}
"""Matrices of a question by the names of modules; one module with several shares an adapter's input half."""

_WHOLE: Mapping[str, str] = {
    **dict.fromkeys(("embed_tokens", "wte", "word_embeddings", "embed_in"), "embedding"),
    **dict.fromkeys(("lm_head", "embed_out", "score"), "head"),
    **dict.fromkeys(("norm", "input_layernorm", "post_attention_layernorm"), "norms"),
}
"""Parts of a model that are trained whole, by the names of modules (modules_to_save)."""


@dataclass(slots=True, kw_only=True)
class Training:
    """What Trainer is given; the names are those of TrainingArguments and of TRL's ModelConfig."""

    model: Any = None
    """A Hugging Face id or a folder."""
    model_setting: str = "model_name_or_path"
    sequence_length: int | None = None
    micro_batch: int = 8
    accumulation: int = 1
    steps: int | None = None
    autocast: Half | None = None
    """The compute format; None for that of the weights."""
    weights: Half | Literal["fp32"] = "fp32"
    """The format that weights are loaded in."""
    optimizer: str = "adamw"
    """A question's name of it."""
    is_fused: bool = True
    """Whether the optimizer's arithmetic is one kernel."""
    recomputes: bool = False
    attention: str | None = None
    """A question's name of it; None for the tool's own."""
    method: dict[str, Any] = field(default_factory=lambda: {"name": "full"})
    compiled: bool = False
    liger: bool = False
    liger_setting: str = "use_liger_kernel"
    liger_loss: bool = True
    """Whether Liger's kernel makes the loss too, with the head."""
    chunked_loss: bool = False
    fsdp: Mapping[str, Any] | None = None
    """Settings of fsdp_config without the prefix fsdp_; None without FSDP."""
    parallel: Mapping[str, int] = field(default_factory=dict)
    """Degrees of parallelism_config without its prefix."""


def common_arguments(draft: Draft) -> Training:
    """The arguments that tools around Trainer pass on as they are."""
    for name in (DEEPSPEED, ACCELERATE):
        if name in draft.settings:
            raise missing_file(draft, name)
    steps = draft.get("max_steps", -1)
    return Training(
        micro_batch=draft.get("per_device_train_batch_size", draft.get("per_gpu_train_batch_size", 8)),
        accumulation=draft.get("gradient_accumulation_steps", 1),
        steps=steps if steps > 0 else None,
        autocast="bf16" if draft.get("bf16") else "fp16" if draft.get("fp16") else None,
        **optimizer_of(draft, "optim"),
        recomputes=draft.get("gradient_checkpointing", draft.get("activation_checkpointing", False)),
        compiled=draft.get("torch_compile", False),
        liger=draft.get("use_liger_kernel", False),
        fsdp=_fsdp(draft),
    )


def optimizer_of(draft: Draft, setting: str) -> dict[str, Any]:
    """The optimizer of a setting with transformers' names, and whether it is one kernel."""
    default = "adamw_torch_fused"
    is_fused = str(draft.get(setting, default)).endswith("fused")
    return {"optimizer": draft.chosen(setting, OPTIMIZERS, default), "is_fused": is_fused}


def fsdp_settings(draft: Draft) -> dict[str, Any]:
    """The settings of fsdp_config that are read, without their prefixes."""
    start = "fsdp_config."
    found = {name.removeprefix(start): value for name, value in draft.settings.items() if name.startswith(start)}
    offload = found.pop("cpu_offload", found.pop("offload_params", False))
    return found | ({"offload_params": True} if str(offload).lower() == "true" else {})


def fsdp_words(draft: Draft) -> list[str]:
    """The words of FSDP's switch, which are strategies in older versions."""
    given = draft.get("fsdp", ())
    return " ".join(map(str, given if isinstance(given, tuple) else (given,))).lower().replace(",", " ").split()


def _fsdp(draft: Draft) -> dict[str, Any] | None:
    """FSDP's settings: the switch, which older versions gave words, and fsdp_config."""
    words = fsdp_words(draft)
    if not {*words} - {"false", "none", "auto_wrap"}:
        return None
    strategies = [word for word in words if "shard" in word]
    found = fsdp_settings(draft)
    version = int(found.setdefault("version", 1 if strategies else 2))
    if not strategies or "auto_wrap" in words:
        found.setdefault("auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
    if strategies and version == 1:
        found.setdefault("sharding_strategy", strategies[0].upper())
    elif strategies:
        found.setdefault("reshard_after_forward", strategies[0] != "shard_grad_op")
    if "offload" in words:
        found["offload_params"] = True
    return found


def refused_trainings(trainings: Mapping[str, Collection[str]]) -> Mapping[str, Any]:
    """Settings that only trainings have that are not estimated, as a table of fates."""
    effects = {name: {"why": what} for what, names in trainings.items() for name in names}
    return {"read": {}, "without_effect": {}, "not_understood": effects}


def refuse_trainings(draft: Draft, trainings: Collection[str]) -> None:
    """Refuse a training that is not estimated, at the first setting that tells of it."""
    for setting in draft.of("not_understood"):
        if setting.why in trainings:
            raise not_estimated(draft, setting.entry.name, setting.why)


def with_shipped(entries: Sequence[Entry], files: Mapping[str, Mapping[str, Any]]) -> list[Entry]:
    """Settings with those of a DeepSpeed file that the tool ships in place of its path."""
    found: list[Entry] = []
    for entry in entries:
        path = entry.word
        ends = [name for name in files if entry.name == DEEPSPEED and isinstance(path, str) and path.endswith(name)]
        inner = files[ends[0]].items() if ends else ()
        found += [Entry(f"{DEEPSPEED}.{name}", value, entry.place) for name, value in inner] or [entry]
    return found


@dataclass(slots=True, kw_only=True)
class Adapters:
    """Adapters by the names of the modules that they stand beside."""

    rank: int
    targets: Iterable[str] = ()
    dropout_fraction: float = 0.0
    whole: Iterable[str] = ()
    """Modules that are trained whole."""
    quantization: str | None = None
    """Format of the frozen matrices; None for those of the model."""
    targets_setting: str = "lora_target_modules"
    whole_setting: str = "lora_modules_to_save"


def method_of(draft: Draft, adapters: Adapters) -> dict[str, Any]:
    """LoRA, or QLoRA where the frozen matrices are stored in few bits."""
    found: dict[str, Any] = {"name": "qlora" if adapters.quantization else "lora", "rank": adapters.rank}
    matrices: list[str] = []
    joint: list[str] = []
    for module in adapters.targets:
        parts = _MATRICES.get(module.rpartition(".")[2])
        if parts is None:
            draft.not_understood(adapters.targets_setting, "it names a module that no question has")
            continue
        matrices += parts
        joint += parts if len(parts) > 1 else ()
    wholes = [_WHOLE.get(module.rpartition(".")[2]) for module in adapters.whole]
    if None in wholes:
        draft.not_understood(adapters.whole_setting, "it names a part that no question has")
    lists = {"targets": matrices, "joint": joint, "whole": [part for part in wholes if part]}
    found |= {name: list(dict.fromkeys(items)) for name, items in lists.items() if items}
    found |= {"dropout_fraction": adapters.dropout_fraction} if adapters.dropout_fraction else {}
    return found | ({"quantization": adapters.quantization} if adapters.quantization else {})


def parted(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """A tool's own settings, those of a DeepSpeed file beside it, and those of an accelerate file."""
    found: dict[str, list[Entry]] = {"": [], DEEPSPEED: [], ACCELERATE: []}
    for entry in entries:
        tool, _, name = entry.name.partition(".")
        if name and tool in found:
            found[tool].append(replace(entry, name=name))
        else:
            found[""].append(replace(entry, name=entry.name.replace("fsdp_config.fsdp_", "fsdp_config.")))
    return found[""], found[DEEPSPEED], found[ACCELERATE]


def put_training(draft: Draft, training: Training, deepspeed: Sequence[Entry], accelerate: Sequence[Entry]) -> Draft:
    """Complete a draft with what Trainer, and DeepSpeed or FSDP under it, make of its arguments."""
    model = _put_model(draft, training)
    beside = _beside(training, deepspeed, accelerate, model)
    recipe, layout = draft.recipe, draft.layout
    layout |= beside.layout
    if training.sequence_length is not None:
        recipe["sequence_length"] = training.sequence_length
    recipe["micro_batch"] = training.micro_batch
    recipe["optimizer"] = beside.recipe.get("optimizer", training.optimizer)
    recipe["method"] = training.method if len(training.method) > 1 else training.method["name"]
    if training.attention is not None:
        recipe["attention"] = training.attention
    recipe["recompute"] = "full" if training.recomputes or beside.recipe["recompute"] == "full" else "none"
    stack = beside.recipe["stack"]
    half = beside.recipe.get("precision", "fp32").partition("-")[0]
    if training.autocast is None and stack["name"] == "deepspeed" and half != "fp32":
        training.autocast = half
    recipe["precision"] = _precision(training, stack["name"], layout["zero_stage"])
    if recipe["precision"].endswith("-mixed") and "master_dtype" in beside.recipe:
        recipe["master_dtype"] = beside.recipe["master_dtype"]
    recipe["stack"] = {**stack, **_operations(draft, training, stack)}
    _put_steps(draft, training)
    draft.shard_groups = beside.shard_groups
    draft.fates |= beside.fates if deepspeed or accelerate else {}
    draft.assumptions += beside.assumptions
    if not (deepspeed or accelerate or training.fsdp):
        note = "nothing here shards the model: every GPU has all of it, unless a launcher's own file says otherwise"
        draft.assumptions.append(note)
    return draft


def _put_steps(draft: Draft, training: Training) -> None:
    """The batch and the tokens of the run, as far as the number of replicas is there."""
    recipe, replicas = draft.recipe, draft.layout.get("data")
    if replicas is None:
        draft.accumulation_steps, draft.training_steps = training.accumulation, training.steps
        return
    recipe["global_batch"] = training.micro_batch * training.accumulation * replicas
    if training.steps is not None and training.sequence_length is None:
        draft.training_steps = training.steps
    elif training.steps is not None:
        recipe["training_tokens"] = training.steps * recipe["global_batch"] * training.sequence_length


_STORED = re.compile(r"(?i)gptq|awq|aqlm|hqq|[48]-?bit|int[48]\b|fp8|mxfp4|nvfp4|[24]-bit")
"""Parts of names of models whose weights are stored in few bits."""


def _put_model(draft: Draft, training: Training) -> NamedModel | None:
    if not isinstance(training.model, str):
        return None
    stored = _STORED.search(training.model)
    if stored and training.method["name"] == "lora" and stored[0].lower() in ("gptq", "4bit", "4-bit"):
        kind = "gptq" if stored[0].lower() == "gptq" else "nf4-double"
        training.method |= {"name": "qlora", "quantization": kind}
        draft.assumptions.append(f"the model's name says that it is stored in 4 bits, taken as {kind}")
    elif stored and training.method["name"] != "qlora":
        draft.not_understood(training.model_setting, "the model's name says that its weights are stored in few bits")
    named = named_model(training.model)
    draft.model = named.name
    if named.assumption:
        draft.assumptions.append(named.assumption)
    return named


_CHECKPOINTS = "activation_checkpointing."
_IDLE = "models of transformers recompute by torch's function, and never by DeepSpeed's"


def _beside(
    training: Training, deepspeed: Sequence[Entry], accelerate: Sequence[Entry], model: NamedModel | None
) -> Draft:
    """The draft of what distributes the training: DeepSpeed, or accelerate with FSDP or whole replicas."""
    launched = accelerate_draft(accelerate) if accelerate else None
    if launched is not None and training.autocast is None:
        half = launched.recipe.get("precision", "fp32").partition("-")[0]
        training.autocast = half if half in ("bf16", "fp16") else None
    deepspeed = deepspeed or deepspeed_entries(accelerate)
    if deepspeed:
        idle = {
            one.name: Setting(one, "without_effect", _IDLE) for one in deepspeed if one.name.startswith(_CHECKPOINTS)
        }
        found = deepspeed_draft(resolved([one for one in deepspeed if one.name not in idle], training, model))
        fates = under(DEEPSPEED, found.fates | idle)
        if launched is not None:
            put_ranks(launched, found.layout)
            own = {name: one for name, one in launched.fates.items() if not name.startswith(FILE_OF_DEEPSPEED)}
            fates |= under(ACCELERATE, own)
        return replace(found, fates=fates)
    settings = [entry for entry in accelerate if training.fsdp is None or not _is_fsdp(entry)]
    found = accelerate_draft([*settings, *_distributed_entries(training)])
    return replace(found, fates=under(ACCELERATE, found.fates))


def _is_fsdp(entry: Entry) -> bool:
    return entry.name == "distributed_type" or entry.name.startswith("fsdp_config")


def _distributed_entries(training: Training) -> list[Entry]:
    """FSDP and degrees in the spelling of accelerate's file."""
    start = Place(1, 1)
    found: dict[str, Any] = {
        f"parallelism_config.parallelism_config_{name}": value for name, value in training.parallel.items()
    }
    if training.fsdp is not None:
        found["distributed_type"] = "FSDP"
        found |= {f"fsdp_config.fsdp_{name}": value for name, value in training.fsdp.items()}
    return [Entry(name, value, start) for name, value in found.items()]


def resolved(entries: Sequence[Entry], training: Training, model: NamedModel | None) -> list[Entry]:
    """A DeepSpeed file with what Trainer writes in place of auto; the batch of all processes stays open."""
    width = model.model.hidden_size if model and model.model else None
    known: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": training.micro_batch,
        "gradient_accumulation_steps": training.accumulation,
        "bf16.enabled": training.autocast == "bf16",
        "fp16.enabled": training.autocast == "fp16",
    }
    if width is not None:
        known["zero_optimization.reduce_bucket_size"] = width * width
        known["zero_optimization.stage3_prefetch_bucket_size"] = int(0.9 * width * width)
    written = {*known, *FROM_ARGUMENTS}
    return [
        replace(one, value=known.get(one.name)) if one.value == AUTO and one.name in written else one for one in entries
    ]


def _precision(training: Training, stack: str, zero_stage: int) -> str:
    """The precision of a question.

    DeepSpeed and FSDP keep an fp32 copy of what is trained under mixed precision, whatever the weights were loaded in;
    adapters are fp32 beside frozen weights of any format; else the loaded weights themselves are trained.
    """
    half = training.autocast
    if half is None:
        return "fp32" if training.weights == "fp32" else f"{training.weights}-pure"
    is_sharded = stack == "deepspeed" or zero_stage > 0
    if is_sharded or training.method["name"] != "full" or training.weights == "fp32":
        return f"{half}-mixed"
    return f"{half}-pure"


def _operations(draft: Draft, training: Training, beside: Mapping[str, Any]) -> dict[str, Any]:
    """Whose operations run, as far as the stack has them."""
    found: dict[str, Any] = {}
    stack = beside["name"]
    if training.liger:
        if stack == "fsdp1":
            draft.not_understood(training.liger_setting, "Liger's kernels are not estimated under FSDP1")
        else:
            found["implementation"] = "liger"
            found["cross_entropy"] = "liger" if training.liger_loss else "eager"
    elif training.chunked_loss and stack != "fsdp1":
        found["cross_entropy"] = "chunked"
    if training.compiled:
        draft.not_understood("torch_compile", "operations are compiled, and the estimate runs them one by one")
    if stack == "transformers" and training.is_fused:
        found["fused_update"] = True
    return found


def missing_file(draft: Draft, setting: str) -> Exception:
    """The refusal of a file that another one names and that was not sent."""
    path = draft.fates[setting].entry.word
    named = shortened(path) if isinstance(path, str) else "a file"
    message = f"names {named}, which was not sent, and how the training is sharded is in it"
    fix = "send that file too, under its name in files, or write it inside the script"
    return draft.wrong(setting, "missing_file", message, fix)


def not_estimated(draft: Draft, setting: str, what: str) -> Exception:
    """The refusal of a kind of training that the estimator does not have."""
    fix = "ask for the supervised training of the same model, and add the other models' memory yourself"
    return draft.wrong(setting, "not_estimated", f"tells of {what}, which is not estimated yet", fix)
