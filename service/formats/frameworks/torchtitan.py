"""torchtitan: TOML up to 0.2, flags in 0.3, a Python function on main; TOML is read back.

Source: torchtitan 0.2.2 config/job_config.py, its defaults included, torchtitan 0.3.0 and pytorch/torchtitan@b5bcd76
config/configs.py.
"""

import json
from collections.abc import Sequence
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.formats.draft import Converter, Draft, boolean, draft_from, integer, items, text
from service.formats.frameworks.torchtitan_fields import (
    NEW_RULES,
    NO_SETTING,
    OLD_RULES,
    SCHEDULES,
    SHARED_RULES,
    RegisteredModel,
    has_custom_split,
    model_named,
    registered_model,
    stage_modules,
)
from service.formats.rules import (
    NOTHING,
    ExportedFile,
    ExportRequest,
    Fragment,
    Rules,
    Settings,
    Target,
    Version,
    apply_rules,
    chooses,
    combined,
    not_expressible,
    values_of,
    writes,
)
from service.formats.text import Entry, command_text, nested, toml_text, words_of

_UNKNOWN_MODEL = "torchtitan takes its model from a registry, and none there has these sizes"
_REGISTER = "register the model in torchtitan, and name it in the file"

FULL, SELECTIVE, NONE = "FullAC.Config()", "SelectiveAC.Config()", "None"
"""Activation checkpointing as a Python configuration has it."""


def _named(value: Any, question: CompleteQuestion) -> Fragment:
    found = registered_model(value)
    if found is None:
        return not_expressible(_UNKNOWN_MODEL, _REGISTER)
    return Fragment((("model.name", found.module), ("model.flavor", found.flavor)))


def _configured(value: Any, question: CompleteQuestion) -> Fragment:
    found = registered_model(value)
    if found is None or not found.config:
        base = Fragment((("module", "llama3"), ("config", "llama3_debugmodel")))
        return combined(base, not_expressible(f"{_UNKNOWN_MODEL}; the file starts from llama3_debugmodel", _REGISTER))
    return Fragment((("module", found.module), ("config", found.config)))


def _local_batch(value: Any, question: CompleteQuestion) -> Fragment:
    """Sequences of a rank at once; in a pipeline all of a step, which it cuts into micro-batches itself."""
    layout, recipe = question.layout, question.recipe
    if layout.pipeline == 1:
        return Fragment((("training.local_batch_size", value),))
    batch = (recipe.global_batch or value) // (layout.data or 1)
    cut = ("parallelism.pipeline_parallel_microbatch_size", value)
    return Fragment((("training.local_batch_size", batch), cut))


def _local_tokens(value: Any, question: CompleteQuestion) -> Fragment:
    layout, recipe = question.layout, question.recipe
    settings: Settings = (("training.num_tokens_per_microbatch_per_dp_rank", value * recipe.sequence_length),)
    if layout.pipeline > 1:
        count = (recipe.global_batch or value) // (value * (layout.data or 1))
        settings = (*settings, ("parallelism.num_pp_microbatches", count))
    return Fragment(settings)


def _recompute(value: Any, question: CompleteQuestion) -> Fragment:
    mode = Fragment((("activation_checkpoint.mode", value.granularity),))
    if value.granularity == "selective":
        mode = combined(mode, Fragment((("activation_checkpoint.selective_ac_option", "op"),)))
    return combined(mode, _recompute_lacks(value))


def _recompute_lacks(value: Any) -> Fragment:
    if value.granularity == "selective" and value.modules not in ((), ("op",)):
        return not_expressible("selective recompute is by operation, and modules cannot be named", "set modules to op")
    if value.granularity == "full" and (value.method == "block" or (value.layers or 1) > 1):
        return not_expressible("every layer recomputes by itself", "leave method and layers out")
    return NOTHING


def _recompute_fixed(value: Any, question: CompleteQuestion) -> Fragment:
    if value.granularity != "selective":
        return not_expressible(
            f"recompute {value.granularity} is a class in the configuration's function, not a flag; the named "
            "configuration recomputes selectively",
            "use version main, which writes such a function",
        )
    return _recompute_lacks(value)


def _recompute_class(value: Any, question: CompleteQuestion) -> Fragment:
    classes = {"none": NONE, "full": FULL, "selective": SELECTIVE}
    return combined(Fragment((("activation_checkpoint", classes[value.granularity]),)), _recompute_lacks(value))


def _unlisted(value: Any, question: CompleteQuestion) -> Fragment:
    if not has_custom_split(question):
        return NOTHING
    return not_expressible("modules of each stage are a list of lists, which is no flag", "use version main")


_NAMES = {"adamw": {"optimizer.name": "AdamW"}}

_BATCH: Rules = {
    "recipe.sequence_length": writes("training.seq_len"),
    "recipe.micro_batch": _local_batch,
    "recipe.global_batch": writes("training.global_batch_size"),
}
_TOKENS: Rules = {
    "recipe.sequence_length": writes("training.max_context_length"),
    "recipe.micro_batch": _local_tokens,
    "recipe.global_batch": writes("training.num_tokens_per_train_step", lambda v, q: v * q.recipe.sequence_length),
}
_OPTIMIZER_IN_CODE: Rules = {
    "recipe.optimizer": chooses(
        {"adamw": {}}, "the optimizer {value} is a class in the configuration's function", NO_SETTING
    ),
    "recipe.stack.fused_update": chooses({True: {}}, "the optimizer's kernel is chosen in code", NO_SETTING),
}

RULES: dict[str, Rules] = {
    "0.2": {
        "model": _named,
        **SHARED_RULES,
        **OLD_RULES,
        **_BATCH,
        "recipe.recompute": _recompute,
        "recipe.optimizer": chooses(_NAMES, "torchtitan has no optimizer {value}", NO_SETTING),
        "recipe.stack.fused_update": chooses(
            {True: {"optimizer.implementation": "fused"}, False: {"optimizer.implementation": "for-loop"}}, "", ""
        ),
    },
    "0.3": {
        "model": _configured,
        **SHARED_RULES,
        **NEW_RULES,
        **_BATCH,
        **_OPTIMIZER_IN_CODE,
        "recipe.recompute": _recompute_fixed,
        "layout.stage_layers": _unlisted,
    },
    "main": {
        "model": _configured,
        **SHARED_RULES,
        **NEW_RULES,
        **_TOKENS,
        **_OPTIMIZER_IN_CODE,
        "recipe.recompute": _recompute_class,
        "layout.stage_layers": stage_modules("lm_head"),
    },
}
"""Rules by version."""


def flag_words(settings: Settings) -> list[str]:
    """Settings as flags of 0.3, where a list is one word with commas.

    >>> flag_words((("parallelism.enable_sequence_parallel", False), ("training.seq_len", 8)))
    ['--parallelism.no-enable-sequence-parallel', '--training.seq_len', '8']
    >>> flag_words((("compile.components", ["model", "loss"]),))
    ['--compile.components', 'model,loss']
    """
    flags = []
    for name, value in settings:
        section, _, key = name.rpartition(".")
        fragment = ",".join(value) if isinstance(value, list) else value
        flags.append((f"--{section}.no-{key.replace('_', '-')}", True) if value is False else (f"--{name}", fragment))
    return words_of(tuple(flags))


def _python(name: str, value: Any) -> str:
    if name == "activation_checkpoint":
        return str(value)
    return repr(value) if isinstance(value, bool) else json.dumps(value)


def _as_function(settings: Settings) -> str:
    named = dict(settings)
    module, config = named.pop("module"), named.pop("config")
    classes = [name for name in ("FullAC", "SelectiveAC") if str(named["activation_checkpoint"]).startswith(name)]
    imports = [
        f"from torchtitan.models.{module}.config_registry import {config}",
        "from torchtitan.trainer import Trainer",
    ]
    imports += [f"from torchtitan.distributed.activation_checkpoint import {name}" for name in classes]
    lines = [
        f"    config.{name} = {value if name == 'activation_checkpoint' else repr(value)}"
        for name, value in named.items()
    ]
    head = '"""Configuration for torchtitan: --module train_config --config train."""\n'
    body = ["def train() -> Trainer.Config:", f"    config = {config}()", *lines, "    return config"]
    return "\n".join((head, *sorted(imports), "", "", *body)) + "\n"


def _write(request: ExportRequest) -> ExportedFile:
    fragment, gaps = apply_rules(RULES[request.version], values_of(request.question), request.question)
    if request.version == "0.2":
        content = toml_text(nested(fragment.settings))
    elif request.version == "0.3":
        content = command_text(flag_words(fragment.settings)) + "\n"
    else:
        content = _as_function(fragment.settings)
    note = "data, tokenizer, checkpoints and learning rate are those of the configuration or of the defaults"
    return ExportedFile(content=content, not_expressible=gaps, assumptions=(*fragment.assumptions, note))


TORCHTITAN = Target(
    name="torchtitan",
    tool="torchtitan",
    kind="training",
    versions={
        "0.2": Version(
            covers="up to 0.2.2: a file for --job.config_file",
            file_name="train.toml",
            media_type="application/toml",
            rules=RULES["0.2"],
        ),
        "0.3": Version(covers="0.3.0: flags of torchtitan.train", file_name="train.flags", rules=RULES["0.3"]),
        "main": Version(
            covers="main at b5bcd76: a module for --module train_config --config train",
            file_name="train_config.py",
            media_type="text/x-python",
            rules=RULES["main"],
        ),
    },
    write=_write,
    source="torchtitan 0.2.2 config/job_config.py; torchtitan 0.3.0 and pytorch/torchtitan@b5bcd76 config/configs.py",
)


_AT = "parallelism."
_DEGREES = {
    "tensor": "tensor_parallel_degree",
    "context": "context_parallel_degree",
    "pipeline": "pipeline_parallel_degree",
    "expert": "expert_parallel_degree",
}

SETTINGS: dict[str, Converter] = {
    **dict.fromkeys((f"{_AT}{name}" for name in _DEGREES.values()), integer),
    **dict.fromkeys((f"{_AT}data_parallel_replicate_degree", f"{_AT}data_parallel_shard_degree"), integer),
    f"{_AT}expert_tensor_parallel_degree": integer,
    f"{_AT}pipeline_parallel_microbatch_size": integer,
    f"{_AT}pipeline_parallel_layers_per_stage": integer,
    f"{_AT}pipeline_parallel_first_stage_less_layers": integer,
    f"{_AT}pipeline_parallel_last_stage_less_layers": integer,
    f"{_AT}module_fqns_per_model_part": items,
    **dict.fromkeys((f"{_AT}pipeline_parallel_schedule", f"{_AT}fsdp_reshard_after_forward"), text),
    f"{_AT}context_parallel_rotate_method": text,
    f"{_AT}enable_async_tensor_parallel": boolean,
    **dict.fromkeys(("training.local_batch_size", "training.global_batch_size"), integer),
    **dict.fromkeys(("training.seq_len", "training.steps"), integer),
    **dict.fromkeys(("training.dtype", "training.mixed_precision_param"), text),
    "training.enable_cpu_offload": boolean,
    **dict.fromkeys(("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"), text),
    "compile.enable": boolean,
    "compile.components": items,
    "debug.deterministic": boolean,
    **dict.fromkeys(("optimizer.name", "optimizer.implementation"), text),
    **dict.fromkeys(("model.name", "model.flavor"), text),
}
"""Settings that are read."""

IGNORED = (
    "checkpoint.", "comm.", "debug.", "fault_tolerance.", "job.", "lr_scheduler.", "memory_estimation.", "metrics.",
    "model.hf_assets_path", "model.tokenizer_path", "optimizer.", "profiling.", "training.dataset", "training.gc",
    "training.max_norm", "training.mixed_precision_reduce", "training.dataloader", "validation.",
)  # fmt: skip
"""Prefixes of settings about neither recipe nor layout."""


def read_torchtitan(entries: Sequence[Entry]) -> Draft:
    """Draft of a torchtitan file."""
    draft = draft_from(entries, SETTINGS, IGNORED)
    draft.layout.update({field: draft.get(f"{_AT}{name}", 1) for field, name in _DEGREES.items()})
    _put_replicas(draft)
    known = model_named(draft.get("model.name", "llama3"), draft.get("model.flavor", "debugmodel"))
    _put_stages(draft, known)
    _put_batch(draft)
    _put_numbers(draft)
    draft.model = None if known is None else known.slug
    if known is None:
        draft.assumptions.append("no model: its sizes are in torchtitan's registry, under a name not known here")
    return draft


def _put_replicas(draft: Draft) -> None:
    layout = draft.layout
    replicas = draft.get(f"{_AT}data_parallel_replicate_degree", 1)
    shards = draft.get(f"{_AT}data_parallel_shard_degree", -1)
    layout["zero_stage"] = 0 if shards == 1 and layout["context"] == 1 else 3
    if shards > 0:
        layout["data"] = replicas * shards
        if layout["zero_stage"] == 3:
            layout["shard_group"] = shards * layout["context"]
    else:
        draft.assumptions.append("data_parallel_shard_degree is what is left: data follows from the cluster's gpus")
        if replicas > 1:
            draft.assumptions.append("weights are held by several groups of replicas: set shard_group")
    kinds = {"always": True, "never": False, "default": layout["pipeline"] == 1}
    reshard = draft.chosen(f"{_AT}fsdp_reshard_after_forward", kinds, "default")
    layout["reshard_after_forward"] = reshard and layout["zero_stage"] == 3
    if layout["context"] > 1:
        methods = {"allgather": "all-gather", "alltoall": "ring"}
        layout["context_method"] = draft.chosen(f"{_AT}context_parallel_rotate_method", methods, "allgather")
    if layout["expert"] > 1:
        layout["expert_tensor"] = draft.get(f"{_AT}expert_tensor_parallel_degree", 1)
    layout["offload"] = "model" if draft.get("training.enable_cpu_offload") else "none"


def _put_stages(draft: Draft, known: RegisteredModel | None) -> None:
    layout = draft.layout
    if layout["pipeline"] == 1:
        return
    names = {name: field for field, name in SCHEDULES.items()}
    layout["schedule"] = draft.chosen(f"{_AT}pipeline_parallel_schedule", names, "1F1B")
    layout["embedding_in_split"] = draft.get(f"{_AT}pipeline_parallel_first_stage_less_layers", 1) > 0
    layout["loss_in_split"] = draft.get(f"{_AT}pipeline_parallel_last_stage_less_layers", 1) > 0
    chunks = draft.get(f"{_AT}module_fqns_per_model_part")
    if chunks:
        layout["stage_layers"] = [_layers(chunk) for chunk in chunks]
        layout["embedding_in_split"] = layout["loss_in_split"] = False
        layout["virtual_pipeline"] = max(1, len(chunks) // layout["pipeline"])
    elif layout["schedule"] == "interleaved-1f1b":
        layout["virtual_pipeline"] = 2
        each = draft.get(f"{_AT}pipeline_parallel_layers_per_stage")
        if each and known:
            ends = layout["embedding_in_split"] + layout["loss_in_split"]
            layout["virtual_pipeline"] = max(1, (known.sizes[0] + ends) // (each * layout["pipeline"]))
        elif each:
            draft.assumptions.append("2 chunks a stage: more follow from the model's layers, which are not known here")


def _layers(chunk: Any) -> int:
    return sum(str(name).startswith("layers.") for name in chunk) if isinstance(chunk, list | tuple) else 0


def _put_batch(draft: Draft) -> None:
    recipe, layout = draft.recipe, draft.layout
    local = draft.get("training.local_batch_size", 8)
    cut = draft.get(f"{_AT}pipeline_parallel_microbatch_size", 1)
    recipe["micro_batch"] = cut if layout["pipeline"] > 1 else local
    whole_batch = draft.get("training.global_batch_size", -1)
    if whole_batch > 0:
        recipe["global_batch"] = whole_batch
    elif "data" in layout:
        recipe["global_batch"] = local * layout["data"]
    recipe["sequence_length"] = draft.get("training.seq_len", 2048)
    if "global_batch" in recipe and "training.steps" in draft.settings:
        tokens = draft.get("training.steps") * recipe["global_batch"] * recipe["sequence_length"]
        recipe["training_tokens"] = float(tokens)
    mode = draft.get("activation_checkpoint.mode", "selective")
    if mode == "selective":
        option = draft.get("activation_checkpoint.selective_ac_option", "2")
        if option != "op":
            draft.assumptions.append("selective_ac_option counts layers; recompute by operation is assumed")
        recipe["recompute"] = {"granularity": "selective", "modules": ["op"]}
    else:
        recipe["recompute"] = draft.chosen("activation_checkpoint.mode", {"full": "full", "none": "none"}, "none")


def _put_numbers(draft: Draft) -> None:
    recipe = draft.recipe
    dtypes = {"bfloat16": "bf16", "float32": "fp32"}
    mixed = "bf16-mixed" if draft.chosen("training.mixed_precision_param", dtypes, "bfloat16") == "bf16" else "fp32"
    recipe["precision"] = "bf16" if draft.chosen("training.dtype", dtypes, "float32") == "bf16" else mixed
    recipe["optimizer"] = draft.chosen("optimizer.name", {"AdamW": "adamw"}, "AdamW")
    parts = draft.get("compile.components", ("model", "loss")) if draft.get("compile.enable") else ()
    kernels = {"fused": True, "foreach": False, "for-loop": False}
    recipe["stack"] = {
        "name": "torchtitan",
        "implementation": "compiled" if "model" in parts else "eager",
        "cross_entropy": "compiled" if "loss" in parts else "eager",
        "fused_update": draft.chosen("optimizer.implementation", kernels, "fused"),
        "deterministic": draft.get("debug.deterministic", False),
        "tensor_overlap": draft.get(f"{_AT}enable_async_tensor_parallel", False),
    }
