"""Megatron-LM's file for --yaml-cfg: sections language_model and model_parallel, and arguments beside them.

Source: NVIDIA/Megatron-LM@d98e8a64 megatron/training/yaml_arguments.py (the command line's arguments are ignored; what
the file leaves out is no error here, and has the argument's default).
"""

from collections.abc import Sequence
from dataclasses import replace

from service.formats import drafts, rules
from service.formats.frameworks.megatron_core import megatron, megatron_deepspeed
from service.formats.frameworks.megatron_core.megatron_fields import field_draft, field_fates, put_activation
from service.formats.text import Entry

YAML_CFG = "yaml-cfg"
"""Option that names the file."""

_TABLE = rules.framework_table("megatron_core/megatron_yaml", *drafts.FATES)

_ABOVE = ("swiglu", "squared_relu", "openai_gelu", "quick_geglu", "group_query_attention", "bias_gelu_fusion")
"""Arguments that language_model decides."""

FATES = field_fates(
    [_TABLE], ("language_model.", "model_parallel.", ""), {name: f"arguments.{name}" for name in _ABOVE}
)


def read_megatron_yaml(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a file for --yaml-cfg."""
    draft = field_draft(entries, FATES)
    put_activation(draft)
    fused = "no-bias-gelu-fusion"
    if draft.get("swiglu"):
        draft.without_effect(fused, "bias_swiglu_fusion decides")
    elif not draft.get("disable-bias-linear"):
        draft.not_understood(fused, "bias and activation keep more, one by one")
    if draft.get("bf16"):
        draft.settings.pop("grad-reduce-in-bf16", None)
        draft.without_effect("grad-reduce-in-bf16", "gradients add up in fp32, which bf16 sets")
    return megatron.complete(draft)


def read_arguments(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of Megatron-LM's arguments, or that of the file for --yaml-cfg beside them, which stands alone."""
    inside = f"{YAML_CFG}."
    named = [replace(one, name=one.name.removeprefix(inside)) for one in entries if one.name.startswith(inside)]
    if not named:
        return megatron_deepspeed.read_megatron(entries)
    draft = read_megatron_yaml(named)
    ignored = (one for one in entries if not one.name.startswith(inside))
    draft.fates |= {one.name: drafts.Setting(one, "without_effect", "--yaml-cfg stands alone") for one in ignored}
    return draft
