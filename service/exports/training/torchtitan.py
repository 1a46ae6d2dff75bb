"""How does torchtitan want a question written? As TOML up to 0.2, as flags in 0.3, as a Python function on main.

Source: torchtitan 0.2.2 config/job_config.py, torchtitan 0.3.0 and pytorch/torchtitan@b5bcd76 config/configs.py.
"""

import json
from typing import Any

from service.estimator.question import Question
from service.exports.emitted import command_text, nested, toml_text, words_of
from service.exports.fields import values_of
from service.exports.said import NOTHING, Rules, Said, Settings, both, chooses, lacking, said_of, writes
from service.exports.target import Job, Target, Version, Written
from service.exports.training.torchtitan_fields import NEW, OLD, OWN, SHARED
from service.exports.training.torchtitan_models import registered
from service.exports.training.torchtitan_stages import is_listed, listed_modules

_UNKNOWN_MODEL = "torchtitan takes its model from a registry, and none there has these sizes"
_REGISTER = "register the model in torchtitan, and name it in the file"

FULL, SELECTIVE, NONE = "FullAC.Config()", "SelectiveAC.Config()", "None"
"""Activation checkpointing as a Python configuration has it."""


def _named(value: Any, question: Question) -> Said:
    found = registered(value)
    if found is None:
        return lacking(_UNKNOWN_MODEL, _REGISTER)
    return Said((("model.name", found.module), ("model.flavor", found.flavor)))


def _configured(value: Any, question: Question) -> Said:
    found = registered(value)
    if found is None or not found.config:
        base = Said((("module", "llama3"), ("config", "llama3_debugmodel")))
        return both(base, lacking(f"{_UNKNOWN_MODEL}; the file starts from llama3_debugmodel", _REGISTER))
    return Said((("module", found.module), ("config", found.config)))


def _local_batch(value: Any, question: Question) -> Said:
    """Sequences of a rank at once; in a pipeline all of a step, which it cuts into micro-batches itself."""
    layout, recipe = question.layout, question.recipe
    if layout.pipeline == 1:
        return Said((("training.local_batch_size", value),))
    whole = (recipe.global_batch or value) // (layout.data or 1)
    cut = ("parallelism.pipeline_parallel_microbatch_size", value)
    return Said((("training.local_batch_size", whole), cut))


def _local_tokens(value: Any, question: Question) -> Said:
    layout, recipe = question.layout, question.recipe
    settings: Settings = (("training.num_tokens_per_microbatch_per_dp_rank", value * recipe.sequence_length),)
    if layout.pipeline > 1:
        count = (recipe.global_batch or value) // (value * (layout.data or 1))
        settings = (*settings, ("parallelism.num_pp_microbatches", count))
    return Said(settings)


def _recompute(value: Any, question: Question) -> Said:
    mode = Said((("activation_checkpoint.mode", value.granularity),))
    if value.granularity == "selective":
        mode = both(mode, Said((("activation_checkpoint.selective_ac_option", "op"),)))
    return both(mode, _recompute_lacks(value))


def _recompute_lacks(value: Any) -> Said:
    if value.granularity == "selective" and value.modules not in ((), ("op",)):
        return lacking("selective recompute is by operation, and modules cannot be named", "set modules to op")
    if value.granularity == "full" and (value.method == "block" or (value.layers or 1) > 1):
        return lacking("every layer recomputes by itself", "leave method and layers out")
    return NOTHING


def _recompute_fixed(value: Any, question: Question) -> Said:
    if value.granularity != "selective":
        return lacking(
            f"recompute {value.granularity} is a class in the configuration's function, not a flag; the named "
            "configuration recomputes selectively",
            "use version main, which writes such a function",
        )
    return _recompute_lacks(value)


def _recompute_class(value: Any, question: Question) -> Said:
    classes = {"none": NONE, "full": FULL, "selective": SELECTIVE}
    return both(Said((("activation_checkpoint", classes[value.granularity]),)), _recompute_lacks(value))


def _unlisted(value: Any, question: Question) -> Said:
    if not is_listed(question):
        return NOTHING
    return lacking("modules of each stage are a list of lists, which is no flag", "use version main")


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
    "recipe.optimizer": chooses({"adamw": {}}, "the optimizer {value} is a class in the configuration's function", OWN),
    "recipe.stack.fused_update": chooses({True: {}}, "the optimizer's kernel is chosen in code", OWN),
}

RULES: dict[str, Rules] = {
    "0.2": {
        "model": _named,
        **SHARED,
        **OLD,
        **_BATCH,
        "recipe.recompute": _recompute,
        "recipe.optimizer": chooses(_NAMES, "torchtitan has no optimizer {value}", OWN),
        "recipe.stack.fused_update": chooses(
            {True: {"optimizer.implementation": "fused"}, False: {"optimizer.implementation": "for-loop"}}, "", ""
        ),
    },
    "0.3": {
        "model": _configured,
        **SHARED,
        **NEW,
        **_BATCH,
        **_OPTIMIZER_IN_CODE,
        "recipe.recompute": _recompute_fixed,
        "layout.stage_layers": _unlisted,
    },
    "main": {
        "model": _configured,
        **SHARED,
        **NEW,
        **_TOKENS,
        **_OPTIMIZER_IN_CODE,
        "recipe.recompute": _recompute_class,
        "layout.stage_layers": listed_modules("lm_head"),
    },
}
"""Rules of each version."""


def flag_words(settings: Settings) -> list[str]:
    """Settings as flags of 0.3, where a list is one word with commas.

    Args:
        settings: names with dots, and module and config without

    Returns:
        words of a command line

    >>> flag_words((("parallelism.enable_sequence_parallel", False), ("training.seq_len", 8)))
    ['--parallelism.no-enable-sequence-parallel', '--training.seq_len', '8']
    >>> flag_words((("compile.components", ["model", "loss"]),))
    ['--compile.components', 'model,loss']
    """
    flags = []
    for name, value in settings:
        section, _, key = name.rpartition(".")
        said = ",".join(value) if isinstance(value, list) else value
        flags.append((f"--{section}.no-{key.replace('_', '-')}", True) if value is False else (f"--{name}", said))
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


def _write(job: Job) -> Written:
    said, unsaid = said_of(RULES[job.version], values_of(job.question), job.question)
    if job.version == "0.2":
        content = toml_text(nested(said.settings))
    elif job.version == "0.3":
        content = command_text(flag_words(said.settings)) + "\n"
    else:
        content = _as_function(said.settings)
    told = "data, tokenizer, checkpoints and learning rate are those of the configuration or of the defaults"
    return Written(content=content, not_expressible=unsaid, assumptions=(*said.assumptions, told))


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
"""A configuration of torchtitan."""
