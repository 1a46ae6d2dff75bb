"""Megatron-Core's configuration by the names of its fields, for tools that set these instead of Megatron-LM's options.

Source: NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/transformer_config.py, model_parallel_config.py,
megatron/training/arguments.py (the field of each option), megatron/training/yaml_arguments.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.formats import drafts, rules
from service.formats.frameworks import megatron
from service.formats.text import Entry
from service.text_bounds import refusal

_TABLE = rules.framework_table("megatron_fields", *drafts.FATES, "renamed", "opposite")

_OPTIONS: Mapping[str, str] = {**_TABLE["renamed"], **_TABLE["opposite"]}

_AS_TEXT = ("window-size", "moe-layer-freq")
"""Options that are a number or a list where they are a field, and a text on the command line."""

ACTIVATIONS = {"swiglu": "swiglu", "squaredrelu": "plain", "gelu": "plain"}


@dataclass(frozen=True, slots=True)
class FieldFates(drafts.Fates):
    """Fates of fields, which are those of the options that set them."""

    sections: tuple[str, ...] = ()
    """Names before a field's own, longer ones first; other settings keep their names."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Options of settings by their whole names."""

    def today(self, name: str) -> str:
        """The option of a field."""
        if name in self.own:
            return self.own[name]
        for section in self.sections:
            if name.startswith(section) and "." not in name[len(section) :]:
                return option_of(name[len(section) :])
        return name


def option_of(name: str) -> str:
    """The option that sets a field.

    >>> option_of("num_moe_experts"), option_of("add_bias_linear"), option_of("hidden_size")
    ('num-experts', 'disable-bias-linear', 'hidden-size')
    """
    return str(_OPTIONS.get(name, name.replace("_", "-")))


def field_fates(table: Mapping[str, Any], *sections: str, own: Mapping[str, str] | None = None) -> FieldFates:
    """The fates of a tool's settings, most of which are fields of Megatron-Core's configuration."""
    found = drafts.fates_of(megatron.RULES, megatron.TABLE, _TABLE, table)
    return FieldFates(found.types, found.without_effect, found.not_understood, {}, sections, own or {})


def field_draft(entries: Iterable[Entry], fates: FieldFates) -> drafts.Draft:
    """A draft of fields as the options that set them."""
    found: dict[str, Entry] = {}
    for entry in entries:
        name = fates.today(entry.name)
        if name in found:
            raise refusal(
                entry.place, "duplicate_key", "another setting before sets the same field", "give one of them"
            )
        found[name] = replace(entry, value=_as_option(entry, name))
    draft = drafts.draft_of([*found.values()], fates)
    if "num-query-groups" in draft.settings:
        draft.settings["group-query-attention"] = True
    return draft


def _as_option(entry: Entry, option: str) -> Any:
    """A field's value as its option takes it: a switch that is off is left out."""
    value = entry.value
    if option in _OPPOSITES and entry.name.rpartition(".")[2] in _TABLE["opposite"]:
        return None if value in (True, None) else True
    if value is False:
        return None
    if option in _AS_TEXT and isinstance(value, Sequence | int) and not isinstance(value, str):
        return _written(value)
    return value


_OPPOSITES = frozenset(_TABLE["opposite"].values())


def _written(value: Any) -> str:
    """A list of fields as its option is written.

    >>> _written((4095, 0)), _written(2), _written((0, 1, 1, 1))
    ('4095,0', '2', '([0]*1+[1]*3)')
    """
    if isinstance(value, int):
        return str(value)
    if len(value) > 2 and {*value} <= {0, 1}:
        return megatron.layer_list(list(value))
    return ",".join(map(str, value))


def put_activation(draft: drafts.Draft) -> None:
    """The MLP's gate, from the name of its activation and the switch beside it."""
    is_gated = draft.get("gated-linear-unit", False)
    if draft.chosen("activation-func", ACTIVATIONS, "gelu") == "swiglu":
        draft.settings["swiglu"] = True
    elif is_gated:
        draft.settings["quick-geglu"] = True
