"""Drafts: what a file says of a question, and the fate of each of its settings."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from service.formats.rules import COMBINED, CONVERTERS, FORMS, OPEN, Converter, Rules, WrongType, options_of
from service.formats.text import NAMELESS, Entry, Unknown, unknown_in
from service.text_bounds import Place, refusal

Fate = Literal["understood", "without_effect", "not_understood", "unknown"]
"""Read; without effect here, for a reason; changing the answer in a way that is not understood; unknown."""

FAMILY = "*"
"""End of a name in a table that stands for every setting whose name begins so."""


FROM_GPUS = "data follows from the cluster's gpus"
GIVE_MODEL = "give model"
BY_DIMENSIONS = "whose dimensions it has"
CERTAIN = (FROM_GPUS, BY_DIMENSIONS)
"""Ends of assumptions that hold wherever the number of GPUs is given."""

_TELLING = re.compile(
    r"expert|moe|shard|fsdp|zero|parallel|recompute|activations?.?checkpoint|checkpoint.?activation|grad\w*.?(?:checkpoint|ckpt)"
    r"|fp8|fp4|float8|float16|int8|quant|4.?bit|8.?bit|low.?rank|lora|peft|adapter|offload|precision|dtype|bf16|fp16|batch|seq.?len|stage|accumulat"
    r"|glu.?activation|heads|hidden|intermediate|vocab.?size|embed|cpu.?optim|distributed.?optim|deepspeed|partition|attention",
    re.IGNORECASE,
)
"""Names of settings that change memory or time, whatever tool has them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a file with its fate."""

    entry: Entry
    fate: Fate
    why: str = ""
    """Why it is without effect, or what it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """A setting that changes the answer in a way that is not understood."""

    why: str
    """What it changes."""
    harmless: Sequence[Any] = ()
    """Values at which it changes nothing."""


@dataclass(frozen=True, slots=True)
class Fates:
    """The fate of each setting of a tool."""

    types: Mapping[str, Converter]
    """Settings that are understood, by name, with their types."""
    without_effect: Mapping[str, str]
    """Reasons by name or family."""
    not_understood: Mapping[str, _Effect]
    """Effects by name or family."""
    earlier: Mapping[str, str] = field(default_factory=dict)
    """Names of today by those of earlier releases."""

    def today(self, name: str) -> str:
        """The name that a setting has today."""
        return self.earlier.get(name, name)

    def of(self, entry: Entry) -> Setting:
        """A setting with its fate; a whole name comes before a family, and a longer family before a shorter."""
        today = self.today(entry.name)
        if today in self.types:
            return Setting(entry, "understood")
        for name in self._names(today):
            if name in self.without_effect:
                return Setting(entry, "without_effect", self.without_effect[name])
            if name in self.not_understood:
                return _with_effect(entry, self.not_understood[name])
        if entry.value is not None and _TELLING.search(entry.name):
            return Setting(entry, "not_understood", "no known release has it, and its name is about memory or time")
        return Setting(entry, "unknown")

    def _names(self, name: str) -> Iterator[str]:
        yield name
        for end in range(len(name), 0, -1):
            yield f"{name[:end]}{FAMILY}"


def _with_effect(entry: Entry, effect: _Effect) -> Setting:
    if entry.value is None or _plain(entry.value) in map(_plain, effect.harmless):
        return Setting(entry, "without_effect", "at this value it changes nothing")
    return Setting(entry, "not_understood", effect.why)


def _plain(value: Any) -> Any:
    """A value as all syntaxes write it alike.

    >>> _plain(("0",)) == _plain(0) == _plain(0.0), _plain(False) == _plain("False"), _plain([]) == _plain(())
    (True, True, True)
    """
    if isinstance(value, list | tuple):
        return _plain(value[0]) if len(value) == 1 else tuple(value)
    if isinstance(value, Unknown):
        return value
    try:
        return float(value) if not isinstance(value, bool) else str(value).lower()
    except ValueError:
        return value.lower() if isinstance(value, str) else value


@dataclass(slots=True)
class Draft:
    """Parts of a question that a file states."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Converted values of the settings that are read, by name."""
    fates: dict[str, Setting] = field(default_factory=dict)
    """Each setting of the file with its fate, by the name that it has today."""
    assumptions: list[str] = field(default_factory=list)
    model: dict[str, Any] | str | None = None
    """The model as a question spells it; None if the file does not state it."""
    recipe: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    accumulation_steps: int | None = None
    """Micro-batches in one optimizer step, where the file leaves the replicas open and with them a batch."""
    training_steps: int | None = None
    """Optimizer steps of the run, where the file counts no tokens."""
    shard_groups: int | None = None
    """Groups of replicas that each shard by themselves, where the file leaves the replicas open."""

    def get(self, name: str, default: Any = None) -> Any:
        return self.settings.get(name, default)

    def of(self, fate: Fate) -> list[Setting]:
        """The settings with one fate, in the order of the file."""
        return [one for one in self.fates.values() if one.fate == fate]

    def not_understood(self, name: str, why: str) -> None:
        """Mark a setting as not understood at its value, or at its default where the file leaves it out."""
        entry = self.fates[name].entry if name in self.fates else Entry(name, None, Place(1, 1))
        self.fates[name] = Setting(entry, "not_understood", why)

    def without_effect(self, name: str, why: str) -> None:
        """Mark a setting as without effect beside the others, if the file gives it."""
        if name in self.fates:
            self.fates[name] = Setting(self.fates[name].entry, "without_effect", why)

    def chosen(self, name: str, choices: Mapping[Any, Any], default: Any) -> Any:
        """The field's value for the value of a setting."""
        value = self.settings.get(name, default)
        if value not in choices:
            named = ", ".join(str(choice) for choice in choices)
            raise self.wrong(name, "not_a_choice", "is none of the values that are understood", f"use {named}")
        return choices[value]

    def wrong(self, name: str, code: str, message: str, fix: str) -> Exception:
        """The refusal of a setting's value."""
        entry = self.fates[name].entry if name in self.fates else Entry(name, None, Place(1, 1))
        return refusal(entry.place, code, f"{entry.name} {message}", fix)

    def fields_of(self, rules: Rules, part: str) -> dict[str, Any]:
        """Fields of a part of the question that its options state, or that have a default."""
        found: dict[str, Any] = {}
        for path, option in options_of(rules).items():
            if path.rpartition(".")[0] != part or option.default is COMBINED:
                continue
            field_name = path.rpartition(".")[2]
            if option.name not in self.settings:
                found |= {} if option.default is OPEN else {field_name: option.default}
            elif option.choices:
                found[field_name] = self.chosen(option.name, option.choices, None)
            else:
                found[field_name] = self.settings[option.name]
        return found


def fates_of(rules: Rules, *tables: Mapping[str, Any]) -> Fates:
    """The fates of a tool's settings: those of its rules and of the tables' sections `read` are understood."""
    types = {option.name: option.form for option in options_of(rules).values()}
    types |= {name: FORMS[kind] for table in tables for kind, names in table["read"].items() for name in names}
    without_effect = [
        (name, why) for table in tables for why, names in table["without_effect"].items() for name in names
    ]
    effects = {name: _Effect(**row) for table in tables for name, row in table["not_understood"].items()}
    named = [*types, *(name for name, _ in without_effect), *effects]
    if twice := {name for name in named if named.count(name) > 1}:
        raise ValueError(f"settings with two fates: {', '.join(sorted(twice))}")
    earlier = {old: new for table in tables for old, new in table.get("earlier", {}).items()}
    return Fates(types, dict(without_effect), effects, earlier)


def under(setting: str, fates: Mapping[str, Setting]) -> dict[str, Setting]:
    """Settings of a file by their names under the setting that names the file."""
    named = {f"{setting}.{name}": one for name, one in fates.items()}
    return {name: replace(one, entry=replace(one.entry, name=name)) for name, one in named.items()}


FATES = ("read", "without_effect", "not_understood")
"""Sections of a tool's table that `fates_of` reads."""


def draft_of(entries: Sequence[Entry], fates: Fates) -> Draft:
    """A draft of the settings that are understood, converted, with the fate of each."""
    draft = Draft()
    for entry in entries:
        name = fates.today(entry.name)
        draft.fates[name] = setting = fates.of(entry)
        if (unknown := unknown_in(entry.value)) is not None and entry.name.startswith(NAMELESS):
            why = f"it may hold any setting: {unknown.explained}, has no value here"
            draft.fates[name] = Setting(entry, "not_understood", why)
        elif unknown is not None and setting.fate == "understood":
            _leave_open(draft, entry, unknown)
        elif setting.fate == "understood" and entry.value is not None:
            draft.settings[name] = _converted(entry, fates.types[name])
    return draft


_LENGTHS = re.compile(
    r"(?:max|num|train|training)?[-_.]*(?:train[-_.]*)?(?:steps|iters|samples|epochs)(?:[-_.]*\w+)?", re.IGNORECASE
)
"""Settings of the length of a run, which memory and the time of a step do not depend on."""


def _leave_open(draft: Draft, entry: Entry, unknown: Unknown) -> None:
    """Leave out a setting whose value is not known, if the question can do without it."""
    if not _LENGTHS.fullmatch(entry.name):
        message = f"{entry.name} depends on {unknown.explained}"
        fix = "write its value into the script, set the variable for the job, or state model, recipe and layout"
        raise refusal(entry.place, "unknown_value", message, fix)
    draft.assumptions.append(f"{entry.name} is left out: it depends on {unknown.explained}")


_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>\x00-\x1f]{0,200}>|\{\{[^{}\x00-\x1f]{1,200}\}\}")
LONGEST_PLACEHOLDER = 80


def _converted(entry: Entry, form: Converter) -> Any:
    try:
        return form(entry.value)
    except (WrongType, ValueError):
        if isinstance(entry.word, str) and _PLACEHOLDER.fullmatch(entry.word):
            message = (
                f"{entry.name} is {entry.word[:LONGEST_PLACEHOLDER]}, which stands where a value is to be filled in"
            )
            raise refusal(entry.place, "not_filled_in", message, "write the value there") from None
        code, wanted = CONVERTERS[form]
        message = f"{entry.name} is not {wanted}"
        raise refusal(entry.place, code, message, f"give {wanted}") from None
