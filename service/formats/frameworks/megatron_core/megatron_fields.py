"""Megatron-Core's configuration by the names of its fields, for tools that set these instead of Megatron-LM's options.

Source: NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/transformer_config.py, model_parallel_config.py,
megatron/training/arguments.py (the field of each option), megatron/training/yaml_arguments.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.formats import drafts, rules
from service.formats.frameworks.megatron_core import megatron
from service.formats.text import Entry
from service.text_bounds import refusal

_TABLE = rules.framework_table("megatron_core/megatron_fields", *drafts.FATES, "renamed", "opposite")

_OPTIONS: Mapping[str, str] = {**_TABLE["renamed"], **_TABLE["opposite"]}

_AS_TEXT = ("window-size", "moe-layer-freq")
"""Options that are a number or a list where they are a field, and a text on the command line."""

ACTIVATIONS = {"swiglu": "swiglu", "squaredrelu": "plain", "gelu": "plain"}


@dataclass(frozen=True, slots=True)
class FieldFates(drafts.Fates):
    """Fates of fields, which are those of the options that set them."""

    sections: tuple[str, ...] = ()
    """Names before a field's own, the more particular ones first; other settings keep their names."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Options of settings by their whole names, or by their fields."""
    repeats: bool = False
    """Whether several sections may have a field; the first section then decides."""

    def today(self, name: str) -> str:
        """The option of a field."""
        if name in self.own:
            return self.own[name]
        section = self.sections[self.rank(name)] if self.rank(name) < len(self.sections) else None
        if section is None:
            return name
        one = name[len(section) :]
        return self.own.get(one, option_of(one))

    def rank(self, name: str) -> int:
        """The place of a setting's section; their number for a setting of none."""
        found = (n for n, section in enumerate(self.sections) if name.startswith(section))
        return next((n for n in found if "." not in name[len(self.sections[n]) :]), len(self.sections))


def option_of(name: str) -> str:
    """The option that sets a field.

    >>> option_of("num_moe_experts"), option_of("add_bias_linear"), option_of("hidden_size")
    ('num-experts', 'disable-bias-linear', 'hidden-size')
    """
    return str(_OPTIONS.get(name, name.replace("_", "-")))


def field_fates(
    tables: Sequence[Mapping[str, Any]], sections: Sequence[str], own: Mapping[str, str], *, repeats: bool = False
) -> FieldFates:
    """The fates of a tool's settings, most of which are fields of Megatron-Core's configuration."""
    found = drafts.fates_of(megatron.RULES, megatron.TABLE, _TABLE, *tables)
    return FieldFates(found.types, found.without_effect, found.not_understood, {}, tuple(sections), own, repeats)


def field_draft(entries: Iterable[Entry], fates: FieldFates) -> drafts.Draft:
    """A draft of fields as the options that set them."""
    found: dict[str, Entry] = {}
    passed: list[Entry] = []
    for entry in entries:
        name, before = fates.today(entry.name), found.get(fates.today(entry.name))
        if before and not fates.repeats:
            raise refusal(
                entry.place, "duplicate_key", "another setting before sets the same field", "give one of them"
            )
        if before and fates.rank(before.name) <= fates.rank(entry.name):
            passed.append(entry)
            continue
        passed += [before] if before else []
        found[name] = replace(entry, value=_as_option(entry, name))
    draft = drafts.draft_of([*found.values()], fates)
    why = "another part of the configuration decides"
    draft.fates |= {entry.name: drafts.Setting(entry, "without_effect", why) for entry in passed}
    if "num-query-groups" in draft.settings:
        draft.settings["group-query-attention"] = True
    return draft


_WORDS = {"true": True, "false": False}


def _is_word(value: Any) -> bool:
    """Whether a value is one word of a command."""
    return isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], str)


def _as_option(entry: Entry, option: str) -> Any:
    """A field's value as its option takes it: a switch that is off is left out."""
    value = _WORDS.get(str(entry.value[0]).lower(), entry.value) if _is_word(entry.value) else entry.value
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
