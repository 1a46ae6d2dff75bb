"""Rules between the fields of a question and the settings of a tool, in both directions."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib.resources import files
from math import ceil
from typing import Any, Literal

from service.answers.exports import NotExpressed
from service.estimator.complete import CompleteQuestion
from service.estimator.model.build import method_of, trains_everything
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import Layout, Model, Recipe, Software
from service.estimator.software.stacks import STACKS, software_of
from service.estimator.workload import recompute_of
from service.formats.text import Settings, single

LARGEST = 1 << 40
"""Largest whole number of a setting."""

Converter = Callable[[Any], Any]


class WrongType(Exception):
    """A value of another type than its setting takes."""


def integer(value: Any) -> int:
    word = _single(value)
    number = int(word) if isinstance(word, str) and len(word) < 14 else word
    if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number <= LARGEST:
        raise WrongType
    return number


def number(value: Any) -> Any:
    word = _single(value)
    if isinstance(word, bool) or not isinstance(word, int | float | str) or len(str(word)) > 64:
        raise WrongType
    found = float(word)
    if not abs(found) <= LARGEST:
        raise WrongType
    return found


def size(value: Any) -> int | None:
    """A whole number, written as 5e8 too; None for auto, which the program works out."""
    if _single(value) == "auto":
        return None
    found = number(value)
    if found != int(found):
        raise WrongType
    return int(found)


def boolean(value: Any) -> bool:
    """A truth value; an option without words is true."""
    if value == ():
        return True
    if not isinstance(value, bool):
        raise WrongType
    return value


_SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "t", "y", "1"), True), **dict.fromkeys(("false", "no", "f", "n", "0"), False)
}  # fmt: skip


def flag(value: Any) -> bool:
    """A truth value, or a word for one as Hugging Face's parser takes it; an option without words is true."""
    word = value if value == () or isinstance(value, bool) else str(_single(value)).lower()
    if not isinstance(word, str):
        return boolean(word)
    if word not in _SWITCHES:
        raise WrongType
    return _SWITCHES[word]


def words(value: Any) -> tuple[str, ...]:
    """A list of words, or a text with commas or blanks between them.

    >>> words("q_proj,v_proj"), words(("full_shard auto_wrap",)), words(("a", "b"))
    (('q_proj', 'v_proj'), ('full_shard', 'auto_wrap'), ('a', 'b'))
    """
    listed = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(one, str) for one in listed):
        raise WrongType
    return tuple(word for one in listed for word in one.replace(",", " ").split())


def anything(value: Any) -> Any:
    """A value of any type, which its reader takes apart; one word of an option alone."""
    return single(value)


def text(value: Any) -> str:
    word = _single(value)
    if not isinstance(word, str):
        raise WrongType
    return word


def name(value: Any) -> str:
    """A choice by its name or number, in one case.

    >>> name("No_Shard"), name(3), name(False)
    ('NO_SHARD', '3', 'NO')
    """
    word = _single(value)
    if not isinstance(word, str | int):
        raise WrongType
    return "NO" if word is False else str(word).upper()


def items(value: Any) -> tuple[Any, ...]:
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
    size: ("not_a_size", "a whole number, or auto"),
    boolean: ("not_true_or_false", "true or false; an option of a command line takes no word"),
    flag: ("not_true_or_false", "true or false"),
    words: ("not_words", "words, or a list of them"),
    anything: ("not_a_value", "a value"),
    text: ("not_text", "a text, alone"),
    name: ("not_a_name", "the name or number of a choice"),
    items: ("not_a_list", "a list"),
}


AS_READ: Any = object()
"""What a file trains with in place of a value that it cannot express: what it is read back as."""

LEFT_OPEN: Any = object()
"""The same where the file leaves the field to the script, the environment or the operator: the value holds."""


@dataclass(frozen=True, slots=True)
class Gap:
    """What a file cannot express."""

    why: str
    fix: str
    instead: Any = AS_READ
    """What it trains with."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Part of a file that one field becomes."""

    settings: Settings = ()
    gaps: tuple[Gap, ...] = ()
    """What the file cannot express."""
    assumptions: tuple[str, ...] = ()
    """What you have to know to use the file."""


Written = Fragment | Mapping[str, Any] | None
"""What a field becomes: settings alone, with gaps and assumptions, or nothing."""

Rule = Callable[[Any, CompleteQuestion], Written]
"""Conversion of one field of a resolved question."""

Rules = Mapping[str, Rule]

Writer = Callable[[Any, CompleteQuestion], Any]


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


def apply_rules(rules: Rules, question: CompleteQuestion) -> tuple[Fragment, tuple[tuple[str, Gap], ...]]:
    """Settings and assumptions of a question, and what a tool cannot express of it, by field."""
    values = values_of(question)
    settings: list[tuple[str, Any]] = []
    missing: list[tuple[str, Gap]] = []
    assumptions: list[str] = []
    for path, rule in rules.items():
        fragment = fragment_of(rule(values[path], question))
        settings += fragment.settings
        missing += ((path, gap) for gap in fragment.gaps)
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
    form: Converter
    default: Any = OPEN
    """Value of the field where the setting is absent."""
    choices: Mapping[Any, Any] = field(default_factory=dict)
    """Values of the field by those of the setting; the first of equal ones is written. All others are wrong."""
    write: Writer | None = None
    """Conversion of a value for the setting; None to omit it."""
    gap: tuple[str, str] = ("", "")
    """Why a value has no choice, and what to do."""

    def __call__(self, value: Any, question: CompleteQuestion) -> Written:
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


def not_expressible(why: str, fix: str, value: Any = None, instead: Any = AS_READ) -> Fragment:
    """A gap: a value that cannot be written."""
    return Fragment(gaps=(Gap(why.replace("{value}", display(value)), fix, instead),))


def left_open(rule: Rule) -> Rule:
    """A rule whose gaps the script, the environment or the operator fills."""

    def write(value: Any, question: CompleteQuestion) -> Written:
        written = fragment_of(rule(value, question))
        return replace(written, gaps=tuple(replace(gap, instead=LEFT_OPEN) for gap in written.gaps))

    return write


def fully_sharded(why: str) -> Rule:
    """The rule of ZeRO stages in files that shard all of stage 3 or nothing."""

    def rule(value: Any, question: CompleteQuestion) -> Written:
        if value == 0 and question.layout.context > 1:
            return not_expressible("context ranks always shard weights", "use zero_stage 3")
        return None if value in (0, 3) else not_expressible(why, "use zero_stage 3 or 0", value)

    return rule


def display(value: Any) -> str:
    """A value in words.

    >>> display("lion"), display(True), display((1, 2))
    ('lion', 'true', 'what the question says')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else "what the question says"


def combined(*written: Written) -> Fragment:
    parts = [fragment_of(one) for one in written]
    return Fragment(
        tuple(setting for part in parts for setting in part.settings),
        tuple(gap for part in parts for gap in part.gaps),
        tuple(note for part in parts for note in part.assumptions),
    )


MODEL = "model"

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
    instead: Mapping[str, Any] = field(default_factory=dict)
    """What the file trains with in place of fields that it does not express, where reading it back does not show it."""
    trains: str | None = None
    """The target whose file or arguments a launcher starts; None for a training file and a caller's own command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """A question to write as a file."""

    question: CompleteQuestion
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
    name: str
    tool: str
    kind: Literal["training", "launcher"]
    """Whether the file configures training, or starts it."""
    versions: Mapping[str, Version]
    """Versions between which the file's form changed; the first is the default."""
    write: Callable[[ExportRequest], ExportedFile]
    source: str
    """Tool and version or commit that its fields come from."""
    notes: Sequence[str] = ()
    """What you have to know to use any of its files."""
    rank: str = ""
    """Shell word for the number of a node; of launchers alone."""
    address: str = ""
    """Shell word for the address of the first node; of launchers alone."""


TARGETS_TABLE: Mapping[str, Any] = tomllib.loads(files("service.formats").joinpath("targets.toml").read_text("utf-8"))


def target_of(
    name: str, write: Callable[[Target, ExportRequest], ExportedFile], rules: Mapping[str, Rules] | None = None
) -> Target:
    """A row of `targets.toml` with its writer, and the rules of each version where its file configures training."""
    row = TARGETS_TABLE["targets"][name]
    if rules is not None and rules.keys() != row["versions"].keys():
        raise ValueError(f"targets.toml and the module of {name} differ in its versions")
    versions = {key: Version(**facts, rules=(rules or {}).get(key, {})) for key, facts in row["versions"].items()}
    target = Target(**{**row, "name": name, "versions": versions, "write": None})
    return replace(target, write=partial(write, target))


def training_target(
    name: str,
    rules: Mapping[str, Rules],
    text: Callable[[Settings, ExportRequest], str],
    notes: Callable[[CompleteQuestion], Sequence[str]] = lambda _: (),
) -> Target:
    """A target that configures training, from the rules of its versions and the function that makes its text."""

    def write(target: Target, request: ExportRequest) -> ExportedFile:
        fragment, gaps = apply_rules(rules[request.version], request.question)
        return ExportedFile(
            content=text(fragment.settings, request),
            not_expressible=tuple(
                NotExpressed(field=path, message=gap.why, fix=gap.fix, left_open=gap.instead is LEFT_OPEN)
                for path, gap in gaps
            ),
            assumptions=(*fragment.assumptions, *target.notes, *notes(request.question)),
            instead={path: gap.instead for path, gap in gaps if gap.instead not in (AS_READ, LEFT_OPEN)},
        )

    return target_of(name, write, rules)


def default_only(path: str, why: str, fix: str) -> Rule:
    """Rule of a field without a setting: the default alone is expressible, of a model or of the training software."""
    part, _, name = path.rpartition(".")
    if part == "model":
        return only(tuple(field.default for field in fields(Model) if field.name == name), why, fix)

    def rule(value: Any, question: CompleteQuestion) -> Written:
        full = software_of(question.recipe)
        plain = Software(name=full.name, implementation=None if name == "implementation" else full.implementation)
        usual = getattr(software_of(replace(question.recipe, stack=plain)), name)
        return None if value == usual else not_expressible(why, fix, value)

    return rule


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


def counted(name: str, tokens: float, each: int) -> Fragment:
    """A run as a whole number of steps or samples of so many tokens each; what it rounds up is a gap."""
    count = ceil(tokens / each)
    setting = Fragment(((name, count),))
    if count * each == tokens:
        return setting
    why = f"the run is counted in {count:,} x {each:,} tokens, {count * each - tokens:,.0f} more than the question's"
    return combined(setting, not_expressible(why, f"set training_tokens to {count * each}"))


def steps(name: str) -> Writer:
    """Writer of a run in optimizer steps; batch stages are not counted apart."""

    def write(value: Any, question: CompleteQuestion) -> Written:
        recipe = question.recipe
        return None if value is None else counted(name, value, recipe.sequence_length * recipe.global_batch)

    return write


DATA_FROM_PROCESSES: Rule = lambda value, question: Fragment(  # noqa: E731 - a rule like any other
    assumptions=(f"start it as {question.cluster.gpus} processes: the data degree {value} follows from their number",)
)
"""Rule of a data degree that the tool derives."""


FORMS: Mapping[str, Converter] = {
    "integer": integer, "number": number, "size": size, "boolean": boolean, "switch": boolean, "text": text,
    "name": name, "items": items, "flag": flag, "words": words, "any": anything,
}  # fmt: skip

_KEYS: Mapping[str, Converter] = {"integer": int, "boolean": {"true": True, "false": False}.__getitem__}
"""Conversions of the keys of choices, which are texts in a table."""


def framework_table(name: str, *sections: str) -> Mapping[str, Any]:
    """The table of a framework's rules and settings; every section that its module reads must be there."""
    file = files("service.formats.frameworks").joinpath(f"{name}.toml")
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    if table.keys() != {*sections}:
        named = ", ".join(sorted(table.keys() ^ {*sections}))
        raise ValueError(f"frameworks/{name}.toml and its module differ in the sections {named}")
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A rule as data; with a setting, an `Option`."""

    omitted: str = ""
    """Why no file needs the field."""
    setting: str = ""
    form: str = "text"
    default: Any = OPEN
    combined: bool = False
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Values of the field by those of the setting."""
    code: bool = False
    """Whether code converts the value for the setting."""
    condition: bool = False
    """Whether code decides which values the tool supports without a setting."""
    values: Mapping[str, Mapping[str, Any]] | None = None
    """Settings by the field's value."""
    supports: Literal["default"] | Sequence[Any] = ()
    """Values that the tool supports without a setting."""
    unset: bool = False
    """Whether it supports the absent value."""
    left_open: bool = False
    """Whether the file leaves other values to the script, the environment or the operator."""
    why: str = ""
    fix: str = ""


def rules_of(rows: Mapping[str, Mapping[str, Any]], in_code: Mapping[str, Writer]) -> Rules:
    """Rules in the order of a table; the rule of an empty row, or its `code` or `condition`, is in code."""
    expected = {path for path, row in rows.items() if not row or {"code", "condition"} & row.keys()}
    if differing := expected ^ in_code.keys():
        raise ValueError(f"the table and its module differ in rules in code: {', '.join(sorted(differing))}")
    return {path: _rule(path, _Row(**row), in_code.get(path)) if row else in_code[path] for path, row in rows.items()}


def _rule(path: str, row: _Row, write: Writer | None) -> Rule:
    if row.omitted:
        return Omitted(row.omitted)
    if row.values is not None:
        write = chooses(row.values, row.why, row.fix)
        write = left_open(write) if row.left_open else write
    if row.setting:
        choices: dict[Any, Any] = {_KEYS.get(row.form, str)(name): value for name, value in row.choices.items()}
        if row.form == "switch":
            choices = {True: not row.default}
        default = COMBINED if row.combined else row.default
        return Option(row.setting, FORMS[row.form], default, choices, write, (row.why, row.fix))
    rule = _rule_without_setting(path, row, write)
    return left_open(rule) if row.left_open else rule


def _rule_without_setting(path: str, row: _Row, write: Writer | None) -> Rule:
    if write is not None:
        return needs(write, row.why, row.fix) if row.condition else write
    if row.supports == "default":
        return default_only(path, row.why, row.fix)
    plain = [tuple(value) if isinstance(value, list) else value for value in row.supports]
    return only((*plain, None) if row.unset else plain, row.why, row.fix)


_TABLE = framework_table("common", "common", "script")

COMMON_RULES = rules_of(
    _TABLE["common"],
    {
        "recipe.method": lambda value, _: trains_everything(value),
        "recipe.stack.expandable_segments": lambda value, q: (
            not value and not STACKS[software_of(q.recipe).name].grows_segments
        ),
    },
)
"""Rules of most tools; a tool's own table is merged over this one."""

IN_SCRIPT = "set it in the training script"

_IN_SCRIPT = rules_of(
    _TABLE["script"],
    {
        "recipe.method": lambda value, _: trains_everything(value),
        "layout.virtual_group": lambda value, q: value == q.layout.pipeline,
    },
)

SCRIPT_RULES: Rules = {"model": _IN_SCRIPT["model"], **COMMON_RULES, **_IN_SCRIPT}
"""Rules of DeepSpeed and accelerate, whose files distribute and store a script's model; the script sets the rest."""
