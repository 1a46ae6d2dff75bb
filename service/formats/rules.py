"""Rules between the fields of a question and the settings of a tool, in both directions.

A tool is a table of rules, one for each field: recipe, layout and software field by field; the model as one field for a
tool whose file has none, else field by field. A forgotten field is a missing row, which a test finds. A rule writes
settings, nothing for a reason, or a gap. An `Option` also reads its setting back, so that a setting with a field of its
own is one row; a reader adds what several settings state together.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from math import ceil
from typing import Any, Literal

from service.answers.exports import NotExpressed
from service.estimator.complete import CompleteQuestion
from service.estimator.model.build import method_of, trains_everything
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import Layout, Model, Recipe, Software, StackName
from service.estimator.software.stacks import software_of
from service.estimator.workload import recompute_of
from service.formats.text import Entry, Settings
from service.text_bounds import Place, refusal

LARGEST = 1 << 40
"""Largest whole number of a setting."""


Converter = Callable[[Any], Any]
"""Conversion of a setting's value; raises WrongType."""


class WrongType(Exception):
    """A value of another type than its setting takes."""


def integer(value: Any) -> int:
    """A whole number."""
    word = _single(value)
    number = int(word) if isinstance(word, str) and len(word) < 14 else word
    if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number <= LARGEST:
        raise WrongType
    return number


def number(value: Any) -> Any:
    """A number."""
    word = _single(value)
    if isinstance(word, bool) or not isinstance(word, int | float | str) or len(str(word)) > 64:
        raise WrongType
    found = float(word)
    if not abs(found) <= LARGEST:
        raise WrongType
    return found


def boolean(value: Any) -> bool:
    """A truth value; an option without words is true."""
    if value == ():
        return True
    if not isinstance(value, bool):
        raise WrongType
    return value


def text(value: Any) -> str:
    """A text."""
    word = _single(value)
    if not isinstance(word, str):
        raise WrongType
    return word


def items(value: Any) -> tuple[Any, ...]:
    """A list."""
    if not isinstance(value, tuple):
        raise WrongType
    return value


def _single(value: Any) -> Any:
    if isinstance(value, tuple):
        if len(value) != 1:
            raise WrongType
        return value[0]
    return value


CONVERTERS: Mapping[Converter, tuple[str, str]] = {
    integer: ("not_a_whole_number", "a whole number"),
    number: ("not_a_number", "a number"),
    boolean: ("not_true_or_false", "true or false; an option of a command line takes no word"),
    text: ("not_text", "a text, alone"),
    items: ("not_a_list", "a list"),
}
"""Error code of a converter, and its type in words."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Part of a file that one field becomes."""

    settings: Settings = ()
    gaps: tuple[tuple[str, str], ...] = ()
    """What the file cannot express: why, and what to do."""
    assumptions: tuple[str, ...] = ()
    """What you have to know to use the file."""


Written = Fragment | Mapping[str, Any] | None
"""What a field becomes: settings alone, with gaps and assumptions, or nothing."""

Rule = Callable[[Any, CompleteQuestion], Written]
"""Conversion of one field of a resolved question."""

Rules = Mapping[str, Rule]
"""A rule for every field."""

Writer = Callable[[Any, CompleteQuestion], Any]
"""Conversion of a value for a setting, or to a fragment; None to omit it."""


def fragment_of(written: Written) -> Fragment:
    """What a field becomes, with its gaps and assumptions."""
    return written if isinstance(written, Fragment) else Fragment(tuple((written or {}).items()))


@dataclass(frozen=True, slots=True)
class Omitted:
    """The rule of a field that no file needs."""

    reason: str
    """Why not."""

    def __call__(self, value: Any, question: CompleteQuestion) -> None:
        """Nothing, whatever the value."""


def apply_rules(
    rules: Rules, values: Mapping[str, Any], question: CompleteQuestion
) -> tuple[Fragment, tuple[NotExpressed, ...]]:
    """Settings and assumptions of a question, and what a tool cannot express of it."""
    settings: list[tuple[str, Any]] = []
    missing: list[NotExpressed] = []
    assumptions: list[str] = []
    for path, rule in rules.items():
        fragment = fragment_of(rule(values[path], question))
        settings += fragment.settings
        missing += (NotExpressed(field=path, message=message, fix=fix) for message, fix in fragment.gaps)
        assumptions += fragment.assumptions
    return Fragment(tuple(dict(settings).items()), assumptions=tuple(dict.fromkeys(assumptions))), tuple(missing)


OPEN: Any = object()
"""Default of a field that an absent setting leaves open."""

COMBINED: Any = object()
"""Default of a field that a reader makes of several settings."""


@dataclass(frozen=True, slots=True)
class Option:
    """The rule of a field that has a setting of its own, which is read back."""

    name: str
    """Name of the setting."""
    form: Converter
    default: Any = OPEN
    """Value of the field where the setting is absent."""
    choices: Mapping[Any, Any] = field(default_factory=dict)
    """Values of the field by those of the setting; the first of equal ones is written. All others are wrong."""
    write: Writer | None = None
    """Conversion of a value for the setting; None to omit it."""
    gap: tuple[str, str] = ("", "")
    """Why a value has no choice, and what to do."""
    when: Callable[[CompleteQuestion], bool] | None = None
    """Questions that need the setting; all of them by default."""

    def __call__(self, value: Any, question: CompleteQuestion) -> Written:
        """The setting of a value."""
        if self.when is not None and not self.when(question):
            return None
        if self.write is not None:
            written = self.write(value, question)
        elif not self.choices:
            written = value
        else:
            names = [name for name, meaning in self.choices.items() if meaning == value]
            if not names and value != self.default:
                return not_expressible(*self.gap, value)
            written = names[0] if names else None
        return written if written is None or isinstance(written, Fragment | Mapping) else {self.name: written}


def switch(name: str, *, default: bool = False, write: Writer | None = None) -> Option:
    """Rule of a truth value that the mere presence of an option turns over."""
    return Option(name, boolean, default, {True: not default}, write)


def combined_option(name: str, form: Converter, write: Writer | None = None) -> Option:
    """Rule of a field that has a setting, which the reader combines with others."""
    return Option(name, form, COMBINED, write=write)


def writes(name: str, write: Writer | None = None) -> Rule:
    """Rule of a field that has a setting, in a file that is not read back."""
    return Option(name, text, COMBINED, write=write)


def options_of(rules: Rules) -> dict[str, Option]:
    """The rules that read their setting back, by field."""
    return {path: rule for path, rule in rules.items() if isinstance(rule, Option)}


def chooses(choices: Mapping[Any, Mapping[str, Any]], why: str, fix: str) -> Rule:
    """Rule of a field with a few values, each with settings of its own."""
    return lambda value, _: choices[value] if value in choices else not_expressible(why, fix, value)


def only(plain: Sequence[Any], why: str, fix: str) -> Rule:
    """Rule of a field without a setting: the tool supports these values alone."""
    return chooses({value: {} for value in plain}, why, fix)


def needs(is_met: Callable[[Any, CompleteQuestion], Any], why: str, fix: str) -> Rule:
    """Rule of a field without a setting: the tool supports the values that meet a condition."""
    return lambda value, question: None if is_met(value, question) else not_expressible(why, fix, value)


def not_expressible(why: str, fix: str, value: Any = None) -> Fragment:
    """A gap: a value that cannot be written."""
    return Fragment(gaps=((why.replace("{value}", display(value)), fix),))


def display(value: Any) -> str:
    """A value in words.

    >>> display("lion"), display(True), display((1, 2))
    ('lion', 'true', 'what the question says')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else "what the question says"


def combined(*written: Written) -> Fragment:
    """Fragments joined."""
    parts = [fragment_of(one) for one in written]
    return Fragment(
        tuple(setting for part in parts for setting in part.settings),
        tuple(gap for part in parts for gap in part.gaps),
        tuple(note for part in parts for note in part.assumptions),
    )


MODEL = "model"
"""The model as a whole."""

STACK = tuple(f"recipe.stack.{field.name}" for field in fields(Software))
RECIPE = (*(f"recipe.{field.name}" for field in fields(Recipe) if field.name != "stack"), *STACK)
LAYOUT = tuple(f"layout.{field.name}" for field in fields(Layout))
MODEL_FIELDS = tuple(f"model.{field.name}" for field in fields(Model))


def values_of(question: CompleteQuestion) -> Mapping[str, Any]:
    """The value of every field, as rules take it."""
    recipe, software = question.recipe, software_of(question.recipe)
    return {
        MODEL: question.model,
        **{f"model.{field.name}": getattr(question.model, field.name) for field in fields(Model)},
        **{f"recipe.{field.name}": getattr(recipe, field.name) for field in fields(Recipe)},
        **{f"recipe.stack.{field.name}": getattr(software, field.name) for field in fields(Software)},
        **{f"layout.{field.name}": getattr(question.layout, field.name) for field in fields(Layout)},
        "recipe.recompute": recompute_of(recipe),
        "recipe.method": method_of(recipe),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file, and what of the question it does not express."""

    content: str
    not_expressible: tuple[NotExpressed, ...]
    assumptions: tuple[str, ...]
    """What you have to know to use the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """A question to write as a file."""

    question: CompleteQuestion
    """The question, resolved."""
    version: str
    """The version of the tool, one of the target's."""
    command: str | None = None
    """The caller's own command for a launcher; None for that of the question's stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One form of a tool's file."""

    covers: str
    """The releases or the commit that read it."""
    file_name: str
    media_type: str = "text/plain"
    rules: Rules = field(default_factory=dict)
    """Rules of every field; none for a launcher, whose command carries recipe and layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One tool."""

    name: str
    """Its name in the path of a request."""
    tool: str
    """Display name."""
    kind: Literal["training", "launcher"]
    """Whether the file configures training, or starts it."""
    versions: Mapping[str, Version]
    """Versions between which the file's form changed; the first is the default."""
    write: Callable[[ExportRequest], ExportedFile]
    source: str
    """Tool and version or commit that its fields come from."""


def stack_default(field: str, why: str, fix: str) -> Rule:
    """Rule of a software choice without a setting: the stack's default alone is expressible."""

    def rule(value: Any, question: CompleteQuestion) -> Written:
        plain = replace(question.recipe, stack=software_of(question.recipe).name)
        return None if value == getattr(software_of(plain), field) else not_expressible(why, fix, value)

    return rule


def only_stack(tool: str, *names: StackName) -> Rule:
    """Rule of the training software in the file of a tool that runs a certain one."""
    return only(
        names,
        f"the question is about {{value}}, and the file starts {tool}: numbers of the estimate are not this file's",
        f"ask with recipe.stack {' or '.join(names)} to see what this file takes",
    )


def has_custom_split(question: CompleteQuestion) -> bool:
    """Whether the partition of the layers is neither even nor that of ends that count as layers."""
    layout = question.layout
    return layout.stage_layers is not None and partition_layers(layout, question.model) != layout.stage_layers


def shards_over_all(value: Any, question: CompleteQuestion) -> bool:
    """Whether one group of all replicas shards, or none."""
    layout = question.layout
    return layout.zero_stage == 0 or value == layout.data * layout.context


def has_usual_expert_tensor(value: Any, question: CompleteQuestion) -> bool:
    """Whether experts' matrices are split as those of other layers, or whole on ranks that share out experts."""
    usual = 1 if question.layout.expert > 1 else question.layout.tensor
    return not question.model.num_experts or value == usual


def steps_of(question: CompleteQuestion) -> int | None:
    """Optimizer steps of the whole run; batch stages are not counted apart."""
    recipe = question.recipe
    if recipe.training_tokens is None:
        return None
    return ceil(recipe.training_tokens / (recipe.sequence_length * (recipe.global_batch or 1)))


DATA_FROM_PROCESSES: Rule = lambda value, question: Fragment(  # noqa: E731 - a rule like any other
    assumptions=(f"start it as {question.cluster.gpus} processes: the data degree {value} follows from their number",)
)
"""Rule of a data degree that the tool derives."""

COMMON_RULES: Rules = {
    "recipe.global_batch_tokens": Omitted("global_batch says the same in sequences"),
    "recipe.document_lengths": Omitted("they describe the data, which the file only names"),
    "recipe.batching": only(
        ("packed",), "padding each document to a sequence is the data loader's choice", "pad in the data loader"
    ),
    "recipe.stages": only(
        ((),),
        "the file has one batch and one length for the whole run",
        "write a file for each stage, and start each from the checkpoint of the one before",
    ),
    "recipe.method": needs(
        lambda value, _: trains_everything(value),
        "the file trains every parameter; frozen parts and adapters are made in code",
        "freeze parameters or add the adapters in the training script",
    ),
    "recipe.ema": only((False,), "the tool keeps no moving average of the weights", "keep it in the script"),
    "recipe.expert_imbalance": Omitted("it is the router's behaviour, not a setting"),
    "recipe.checkpoint": only(
        (None,),
        "checkpoints are taken every so many steps, and the question says every so many seconds",
        "divide the time between checkpoints that the estimate gives by step_seconds",
    ),
    "recipe.stack.versions": only(
        (None,),
        "versions of libraries are those that are installed",
        "install the versions of the question where the job runs",
    ),
    "recipe.stack.expandable_segments": needs(
        lambda value, _: not value,
        "how the allocator grows is set in the environment, not in this file",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; a launcher's file does",
    ),
    "layout.rank_order": only(
        ("tp-cp-ep-dp-pp",), "the tool numbers replicas before stages, and not as {value}", "leave rank_order out"
    ),
}
"""Rules of most tools; a tool's own table is merged over this one."""


IN_SCRIPT = "set it in the training script"


def left_to_script(what: str) -> Rule:
    """Rule of a field that the script sets."""
    return needs(lambda value, _: value is None, f"{what} is the script's, not this file's", IN_SCRIPT)


SCRIPT_RULES: Rules = {
    "model": left_to_script("the model"),
    **COMMON_RULES,
    "recipe.sequence_length": left_to_script("the length of sequences"),
    "recipe.training_tokens": left_to_script("the length of the run"),
    "recipe.attention": only(("flash",), "the kernel {value} is chosen by the script", IN_SCRIPT),
    "recipe.dropout_fraction": only((0.0,), "dropout is the model's", IN_SCRIPT),
    "recipe.fp8_weights": only((False,), "weights in fp8 are made by the script", IN_SCRIPT),
    "recipe.expert_capacity_factor": only((None,), "what an expert takes is the model's", IN_SCRIPT),
    "recipe.vocabulary_multiple": only((1,), "the vocabulary is padded by the script or not at all", IN_SCRIPT),
    **{
        f"recipe.stack.{name}": stack_default(name, "it is chosen by the script", IN_SCRIPT)
        for name in (
            "implementation", "cross_entropy", "gradient_fusion", "fused_update", "deterministic", "grouped_experts",
            "tensor_overlap", "cuda_graphs", "expert_overlap", "dispatcher", "attention_mask",
        )
    },
    "layout.embedding_in_split": only((False,), "layers are dealt by the script", IN_SCRIPT),
    "layout.loss_in_split": only((False,), "layers are dealt by the script", IN_SCRIPT),
    "layout.virtual_pipeline": only((1,), "a stage is one chunk", "set virtual_pipeline to 1"),
    "layout.virtual_group": needs(
        lambda value, q: value == q.layout.pipeline, "a stage is one chunk", "leave virtual_group out"
    ),
    "layout.stage_layers": only((None,), "layers are dealt by the script", IN_SCRIPT),
}  # fmt: skip
"""Rules that DeepSpeed and accelerate share: their files distribute and store a script's model, and the script sets
what it trains."""


@dataclass(slots=True)
class Draft:
    """Parts of a question that a file states."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Converted values of the settings that are read, by name."""
    places: dict[str, Place] = field(default_factory=dict)
    """Place of each in the file."""
    unknown: list[Entry] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    model: dict[str, Any] | str | None = None
    """The model as a question spells it; None if the file does not state it."""
    recipe: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting."""
        return self.settings.get(name, default)

    def chosen(self, name: str, choices: Mapping[Any, Any], default: Any) -> Any:
        """The field's value for the value of a setting."""
        value = self.settings.get(name, default)
        if value not in choices:
            named = ", ".join(str(choice) for choice in choices)
            raise self.wrong(name, "not_a_choice", "is none of the values that are understood", f"use {named}")
        return choices[value]

    def wrong(self, name: str, code: str, message: str, fix: str) -> Exception:
        """The refusal of a setting's value."""
        return refusal(self.places.get(name, Place(1, 1)), code, f"{name} {message}", fix)

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


@cache
def _read_beside(name: str) -> tuple[Mapping[str, Converter], tuple[str, ...]]:
    """Settings that a reader combines, with their types, and prefixes of those that it ignores."""
    file = files("service.formats.frameworks").joinpath("settings.toml")
    settings = tomllib.loads(file.read_text(encoding="utf-8"))[name]
    kinds = {"integers": integer, "booleans": boolean, "numbers": number, "texts": text, "lists": items}
    return {one: form for kind, form in kinds.items() for one in settings.get(kind, ())}, tuple(settings["ignored"])


def draft_from(entries: Sequence[Entry], rules: Rules, name: str) -> Draft:
    """A draft with the settings of a file of one format, converted: those of the rules, and those beside them."""
    others, unread = _read_beside(name)
    forms = {option.name: option.form for option in options_of(rules).values()} | {**others}
    draft = Draft()
    for entry in entries:
        draft.places[entry.name] = entry.place
        if entry.name in forms:
            if entry.value is not None:
                draft.settings[entry.name] = _converted(entry, forms[entry.name])
        elif not entry.name.startswith(unread):
            draft.unknown.append(entry)
    return draft


def _converted(entry: Entry, form: Converter) -> Any:
    try:
        return form(entry.value)
    except (WrongType, ValueError):
        code, wanted = CONVERTERS[form]
        message = f"{entry.name} is not {wanted}"
        raise refusal(entry.place, code, message, f"give {wanted}") from None
