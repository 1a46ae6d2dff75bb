"""What does a field of a question become in a tool's file: settings, nothing for a reason, or words why not?

A tool is a table of rules, one for each field that `fields.py` lists. So a field that nobody thought of is a missing
row, which a test finds, and never one that is silently dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import Any, Literal

from service.estimator.model.training import method_of, trains_everything
from service.estimator.names import StackName
from service.estimator.question import Layout, Model, Question, Recipe, Software
from service.estimator.software.stacks import software_of
from service.estimator.workload import recompute_of

Settings = tuple[tuple[str, Any], ...]
"""Names of a tool's settings with their values, in the order in which they are written."""


@dataclass(frozen=True, slots=True)
class Unsaid:
    """Something of the question that a file does not hold."""

    field: str
    """Dotted path of the field, e.g. `recipe.optimizer`."""
    message: str
    """Why the file does not hold it."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one field becomes."""

    settings: Settings = ()
    """What is written."""
    lacks: tuple[tuple[str, str], ...] = ()
    """What cannot be written: why, and what to do."""
    assumptions: tuple[str, ...] = ()
    """What whoever uses the file has to know."""


Rule = Callable[[Any, Question], Said]
"""What becomes of the value of one field, in a question with every default filled."""

Rules = Mapping[str, Rule]
"""A rule for every field."""

Reader = Callable[[Any, Question], Any]
"""What a value becomes on its way into a setting; None where nothing is to be written."""

NOTHING = Said()


@dataclass(frozen=True, slots=True)
class Silent:
    """The rule of a field that no file needs to hold."""

    reason: str
    """Why not."""

    def __call__(self, value: Any, question: Question) -> Said:  # noqa: ARG002 - every rule is called so
        """Nothing, whatever the value is."""
        return NOTHING


def said_of(rules: Rules, values: Mapping[str, Any], question: Question) -> tuple[Said, tuple[Unsaid, ...]]:
    """What a tool says of a question."""
    settings: list[tuple[str, Any]] = []
    unsaid: list[Unsaid] = []
    assumptions: list[str] = []
    for path, rule in rules.items():
        found = rule(values[path], question)
        settings += found.settings
        unsaid += (Unsaid(path, message, fix) for message, fix in found.lacks)
        assumptions += found.assumptions
    return Said(tuple(dict(settings).items()), assumptions=tuple(dict.fromkeys(assumptions))), tuple(unsaid)


def writes(name: str, read: Reader | None = None) -> Rule:
    """The rule of a field that has a setting of its own."""

    def rule(value: Any, question: Question) -> Said:
        found = value if read is None else read(value, question)
        return NOTHING if found is None else Said(((name, found),))

    return rule


def chooses(choices: Mapping[Any, Mapping[str, Any]], why: str, fix: str) -> Rule:
    """The rule of a field with a few values, each of which has settings of its own."""

    def rule(value: Any, question: Question) -> Said:
        if value in choices:
            return Said(tuple(choices[value].items()))
        return lacking(why, fix, value)

    return rule


def takes_only(plain: Sequence[Any], why: str, fix: str) -> Rule:
    """The rule of a field that the tool cannot be told."""
    return chooses({value: {} for value in plain}, why, fix)


def lacking(why: str, fix: str, value: Any = None) -> Said:
    """That something cannot be written."""
    return Said(lacks=((why.replace("{value}", shown(value)), fix),))


def shown(value: Any) -> str:
    """A value of a question as words name it.

    >>> shown("lion"), shown(True), shown((1, 2))
    ('lion', 'true', 'what the question says')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else "what the question says"


def both(first: Said, second: Said) -> Said:
    """What two rules say together."""
    return Said(
        (*first.settings, *second.settings), (*first.lacks, *second.lacks), (*first.assumptions, *second.assumptions)
    )


MODEL = "model"
"""The model as a whole."""

STACK = tuple(f"recipe.stack.{field.name}" for field in fields(Software))
RECIPE = (*(f"recipe.{field.name}" for field in fields(Recipe) if field.name != "stack"), *STACK)
LAYOUT = tuple(f"layout.{field.name}" for field in fields(Layout))
MODEL_FIELDS = tuple(f"model.{field.name}" for field in fields(Model))


def values_of(question: Question) -> Mapping[str, Any]:
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
class Written:
    """A file, and what of the question it does not hold."""

    content: str
    """The file."""
    not_expressible: tuple[Unsaid, ...]
    """What of the recipe, the layout and the model the tool cannot be told by such a file."""
    assumptions: tuple[str, ...]
    """What whoever uses the file has to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be written."""

    question: Question
    """The question, every default filled."""
    version: str
    """The version of the tool, one of the target's."""
    command: str | None = None
    """The caller's own command, which a launcher is to start; that of the question's stack where None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One form of a tool's file, and the releases that read it."""

    covers: str
    """The releases or the commit."""
    file_name: str
    """What to call the file."""
    media_type: str = "text/plain"
    """What kind of text it is."""
    rules: Rules = field(default_factory=dict)
    """Rules of every field; none for a launcher, whose command carries recipe and layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One tool."""

    name: str
    """Its name in the path of a request."""
    tool: str
    """What the tool is called."""
    kind: Literal["training", "launcher"]
    """Whether the file says how to train, or starts what does."""
    versions: Mapping[str, Version]
    """Versions between which the file's form changed; the first holds where none is named."""
    write: Callable[[Job], Written]
    """How it is written."""
    source: str
    """Tool and version or commit where its fields were read."""


def usually(field: str, why: str, fix: str) -> Rule:
    """The rule of a choice of the software that has no setting: only the stack's usual way can be had."""

    def rule(value: Any, question: Question) -> Said:
        plain = replace(question.recipe, stack=software_of(question.recipe).name)
        return NOTHING if value == getattr(software_of(plain), field) else lacking(why, fix, value)

    return rule


def only_stack(tool: str, *names: StackName) -> Rule:
    """The rule of the training software in the file of a tool that runs a certain one."""
    return takes_only(
        names,
        f"the question is about {{value}}, and the file starts {tool}: numbers of the estimate are not this file's",
        f"ask with recipe.stack {' or '.join(names)} to see what this file takes",
    )


def _full_only(value: Any, question: Question) -> Said:
    if trains_everything(value):
        return NOTHING
    return lacking(
        "the file trains every parameter; frozen parts and adapters are made in code",
        "freeze parameters or add the adapters in the training script",
    )


def steps_of(question: Question) -> int | None:
    """Optimizer steps of the whole run, its stages not counted apart."""
    recipe = question.recipe
    if recipe.training_tokens is None:
        return None
    return ceil(recipe.training_tokens / (recipe.sequence_length * (recipe.global_batch or 1)))


def _environment(value: Any, question: Question) -> Said:
    if not value:
        return NOTHING
    return lacking(
        "how the allocator grows is set in the environment, not in this file",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; a launcher's file does",
    )


COMMON: Rules = {
    "recipe.global_batch_tokens": Silent("global_batch says the same in sequences"),
    "recipe.document_lengths": Silent("they describe the data, which the file only names"),
    "recipe.batching": takes_only(
        ("packed",), "padding each document to a sequence is the data loader's choice", "pad in the data loader"
    ),
    "recipe.stages": takes_only(
        ((),),
        "the file has one batch and one length for the whole run",
        "write a file for each stage, and start each from the checkpoint of the one before",
    ),
    "recipe.method": _full_only,
    "recipe.ema": takes_only((False,), "the tool keeps no moving average of the weights", "keep it in the script"),
    "recipe.expert_imbalance": Silent("it is what the router does, not what it is told"),
    "recipe.checkpoint": takes_only(
        (None,),
        "checkpoints are taken every so many steps, and the question says every so many seconds",
        "divide the time between checkpoints that the estimate gives by step_seconds",
    ),
    "recipe.stack.versions": takes_only(
        (None,),
        "versions of libraries are those that are installed",
        "install the versions of the question where the job runs",
    ),
    "recipe.stack.expandable_segments": _environment,
    "layout.rank_order": takes_only(
        ("tp-cp-ep-dp-pp",), "the tool numbers replicas before stages, and not as {value}", "leave rank_order out"
    ),
}
"""Rules that hold for most tools."""


SCRIPT = "set it in the training script"


def left_to_script(what: str) -> Rule:
    """The rule of something that only the script says."""
    return lambda value, _: NOTHING if value is None else lacking(f"{what} is the script's, not this file's", SCRIPT)


def _padding(value: Any, question: Question) -> Said:
    return NOTHING if value == 1 else lacking("the vocabulary is padded by the script or not at all", SCRIPT)


LEFT: Rules = {
    "model": left_to_script("the model"),
    **COMMON,
    "recipe.sequence_length": left_to_script("the length of sequences"),
    "recipe.training_tokens": left_to_script("the length of the run"),
    "recipe.attention": takes_only(("flash",), "the kernel {value} is chosen by the script", SCRIPT),
    "recipe.dropout_fraction": takes_only((0.0,), "dropout is the model's", SCRIPT),
    "recipe.fp8_weights": takes_only((False,), "weights in fp8 are made by the script", SCRIPT),
    "recipe.expert_capacity_factor": takes_only((None,), "what an expert takes is the model's", SCRIPT),
    "recipe.vocabulary_multiple": _padding,
    **{
        f"recipe.stack.{name}": usually(name, "it is chosen by the script", SCRIPT)
        for name in (
            "implementation", "cross_entropy", "gradient_fusion", "fused_update", "deterministic", "grouped_experts",
            "tensor_overlap", "cuda_graphs", "expert_overlap", "dispatcher", "attention_mask",
        )
    },
    "layout.embedding_in_split": takes_only((False,), "layers are dealt by the script", SCRIPT),
    "layout.loss_in_split": takes_only((False,), "layers are dealt by the script", SCRIPT),
    "layout.virtual_pipeline": takes_only((1,), "a stage is one chunk", "set virtual_pipeline to 1"),
    "layout.virtual_group": lambda value, q: (
        NOTHING if value == q.layout.pipeline else lacking("a stage is one chunk", "leave virtual_group out")
    ),
    "layout.stage_layers": takes_only((None,), "layers are dealt by the script", SCRIPT),
}  # fmt: skip
"""Rules of what the script says."""
