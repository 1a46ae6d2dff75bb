"""Megatron-Bridge: a Python function that fills in a recipe's configuration.

Source: NVIDIA-NeMo/Megatron-Bridge@067f987 src/megatron/bridge/training/config.py, training/mixed_precision.py,
models/gpt_provider.py; NVIDIA/Megatron-LM@d98e8a64 for the fields that these inherit.
"""

import json
from collections.abc import Mapping
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.formats.frameworks.megatron_core.megatron import RULES as MEGATRON_RULES
from service.formats.frameworks.megatron_core.megatron import decoupling, environment_notes
from service.formats.rules import (
    ExportRequest,
    Rules,
    Written,
    chooses,
    framework_table,
    not_expressible,
    training_target,
)
from service.formats.text import Settings

_TABLE = framework_table(
    "megatron_core/megatron_bridge", "precisions", "dtypes", "own_names", "renamed", "parts", "unasked"
)


def _python(option: str, value: Any) -> str:
    if option.endswith("-dtype"):
        return str(_TABLE["dtypes"][value])
    if option == "attention-backend":
        return f"AttnBackend.{value}"
    if option in ("window-size", "moe-layer-freq"):
        return f"({value})" if option == "window-size" else str(value)
    if isinstance(value, list | tuple):
        return json.dumps(list(value))
    return repr(value) if isinstance(value, bool) else json.dumps(value)


def attributes_of(settings: Settings) -> dict[str, str]:
    """Megatron-LM's options as attributes of Bridge's configuration.

    >>> attributes_of((("swiglu", True), ("micro-batch-size", 2)))["train.micro_batch_size"]
    '2'
    """
    found: dict[str, str] = {}
    for option, value in settings:
        if option in _TABLE["own_names"]:
            found |= _TABLE["own_names"][option]
        elif option == "seq-length":
            found |= {"model.seq_length": str(value), "dataset.seq_length": str(value)}
        elif option == "mixed_precision":
            found[option] = "None" if value is None else f"get_mixed_precision_config({json.dumps(value)})"
        else:
            name = option.replace("-", "_")
            renamed = _TABLE["renamed"].get(option, f"{_TABLE['parts'].get(name, 'model')}.{name}")
            found[renamed] = _python(option, value)
    return found


_SWITCHED_OFF: Mapping[str, Mapping[str, bool]] = {
    "fp8-tensorwise": {"first-last-layers-bf16": False},
    "mxfp8": {"reuse-grad-buf-for-mxfp8-param-ag": False},
}
"""What precision recipes turn on beside the formats. Source: training/mixed_precision.py."""


def _weights(value: Any, question: CompleteQuestion) -> Written:
    if "fp8" in question.recipe.precision:
        return {"fp8-param-gather": value}
    return not_expressible("weights are in fp8 under a recipe of fp8 alone", "leave it out") if value else None


def _positions(value: Any, question: CompleteQuestion) -> Written:
    if value in (0, question.recipe.sequence_length):
        return MEGATRON_RULES["model.position_embedding_rows"](value, question)
    why = "models of Megatron-Bridge have a learned position for each token of a sequence"
    return not_expressible(why, "set position_embedding_rows to sequence_length")


RULES: Rules = {
    **MEGATRON_RULES,
    "model.position_embedding_rows": _positions,
    "recipe.precision": chooses(
        {
            "fp32": {"mixed_precision": None},
            **{name: {"mixed_precision": recipe} for name, recipe in _TABLE["precisions"].items()},
            **{name: {"mixed_precision": _TABLE["precisions"][name], **off} for name, off in _SWITCHED_OFF.items()},
        },
        "Megatron-Bridge has no precision recipe for {value}",
        "choose one that it has",
    ),
    "recipe.gradient_dtype": lambda value, q: (
        None  # as fp16_mixed reduces them
        if value == "fp16"
        else {"ddp-grad-reduce-in-fp32" if q.recipe.precision == "fp32" else "grad-reduce-in-fp32": value == "fp32"}
    ),
    "recipe.stack.decoupled_gradients": decoupling("tensorwise"),
    "recipe.fp8_weights": _weights,
    "recipe.vocabulary_multiple": lambda value, _: {"make-vocab-size-divisible-by": value},
}


def _function(settings: Settings, request: ExportRequest) -> str:
    attributes = _TABLE["unasked"] | attributes_of(settings)
    imports = ["import torch"] if any("torch." in value for value in attributes.values()) else []
    imports.append("from megatron.bridge.training.config import ConfigContainer")
    if attributes["mixed_precision"] != "None":
        imports.append("from megatron.bridge.training.mixed_precision import get_mixed_precision_config")
    if "AttnBackend" in attributes.get("model.attention_backend", ""):
        imports.append("from megatron.core.transformer.enums import AttnBackend")
    lines = [f"    cfg.{name} = {value}" for name, value in attributes.items()]
    head = '"""Settings for Megatron-Bridge: pass a recipe\'s configuration through configure()."""\n'
    body = ["def configure(cfg: ConfigContainer) -> ConfigContainer:", *lines, "    return cfg"]
    return "\n".join((head, *imports, "", "", *body)) + "\n"


MEGATRON_BRIDGE = training_target("megatron-bridge", {"0.7": RULES}, _function, environment_notes)
