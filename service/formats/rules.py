"""Rules that convert each field of a question to a tool's settings, to nothing for a reason, or to a gap.

A tool is a table of rules, one for each field: recipe, layout and software field by field; the model as one field for a
tool whose file has none, else field by field. A forgotten field is a missing row, which a test finds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import Any, Literal

from service.answers.exports import NotExpressed
from service.estimator.complete import CompleteQuestion
from service.estimator.model.training import method_of, trains_everything
from service.estimator.question import Layout, Model, Recipe, Software, StackName
from service.estimator.software.stacks import software_of
from service.estimator.workload import recompute_of

Settings = tuple[tuple[str, Any], ...]
"""Names of a tool's settings with their values, in file order."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Part of a file that one field becomes."""

    settings: Settings = ()
    gaps: tuple[tuple[str, str], ...] = ()
    """What the file cannot express: why, and what to do."""
    assumptions: tuple[str, ...] = ()
    """What you have to know to use the file."""


Rule = Callable[[Any, CompleteQuestion], Fragment]
"""Conversion of one field of a resolved question."""

Rules = Mapping[str, Rule]
"""A rule for every field."""

Reader = Callable[[Any, CompleteQuestion], Any]
"""Conversion of a value for a setting; None to omit it."""

NOTHING = Fragment()


@dataclass(frozen=True, slots=True)
class Omitted:
    """The rule of a field that no file needs."""

    reason: str
    """Why not."""

    def __call__(self, value: Any, question: CompleteQuestion) -> Fragment:  # noqa: ARG002 - every rule is called so
        """Nothing, whatever the value."""
        return NOTHING


def apply_rules(
    rules: Rules, values: Mapping[str, Any], question: CompleteQuestion
) -> tuple[Fragment, tuple[NotExpressed, ...]]:
    """Settings and assumptions of a question, and what a tool cannot express of it."""
    settings: list[tuple[str, Any]] = []
    missing: list[NotExpressed] = []
    assumptions: list[str] = []
    for path, rule in rules.items():
        fragment = rule(values[path], question)
        settings += fragment.settings
        missing += (NotExpressed(field=path, message=message, fix=fix) for message, fix in fragment.gaps)
        assumptions += fragment.assumptions
    return Fragment(tuple(dict(settings).items()), assumptions=tuple(dict.fromkeys(assumptions))), tuple(missing)


def writes(name: str, read: Reader | None = None) -> Rule:
    """Rule of a field that has a setting of its own."""

    def rule(value: Any, question: CompleteQuestion) -> Fragment:
        fragment = value if read is None else read(value, question)
        return NOTHING if fragment is None else Fragment(((name, fragment),))

    return rule


def chooses(choices: Mapping[Any, Mapping[str, Any]], why: str, fix: str) -> Rule:
    """Rule of a field with a few values, each with settings of its own."""

    def rule(value: Any, question: CompleteQuestion) -> Fragment:
        if value in choices:
            return Fragment(tuple(choices[value].items()))
        return not_expressible(why, fix, value)

    return rule


def only(plain: Sequence[Any], why: str, fix: str) -> Rule:
    """Rule of a field without a setting: the tool supports these values alone."""
    return chooses({value: {} for value in plain}, why, fix)


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


def combined(first: Fragment, second: Fragment) -> Fragment:
    """Two fragments joined."""
    return Fragment(
        (*first.settings, *second.settings), (*first.gaps, *second.gaps), (*first.assumptions, *second.assumptions)
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

    def rule(value: Any, question: CompleteQuestion) -> Fragment:
        plain = replace(question.recipe, stack=software_of(question.recipe).name)
        return NOTHING if value == getattr(software_of(plain), field) else not_expressible(why, fix, value)

    return rule


def only_stack(tool: str, *names: StackName) -> Rule:
    """Rule of the training software in the file of a tool that runs a certain one."""
    return only(
        names,
        f"the question is about {{value}}, and the file starts {tool}: numbers of the estimate are not this file's",
        f"ask with recipe.stack {' or '.join(names)} to see what this file takes",
    )


def _full_training_only(value: Any, question: CompleteQuestion) -> Fragment:
    if trains_everything(value):
        return NOTHING
    return not_expressible(
        "the file trains every parameter; frozen parts and adapters are made in code",
        "freeze parameters or add the adapters in the training script",
    )


def steps_of(question: CompleteQuestion) -> int | None:
    """Optimizer steps of the whole run; batch stages are not counted apart."""
    recipe = question.recipe
    if recipe.training_tokens is None:
        return None
    return ceil(recipe.training_tokens / (recipe.sequence_length * (recipe.global_batch or 1)))


def _environment(value: Any, question: CompleteQuestion) -> Fragment:
    if not value:
        return NOTHING
    return not_expressible(
        "how the allocator grows is set in the environment, not in this file",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; a launcher's file does",
    )


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
    "recipe.method": _full_training_only,
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
    "recipe.stack.expandable_segments": _environment,
    "layout.rank_order": only(
        ("tp-cp-ep-dp-pp",), "the tool numbers replicas before stages, and not as {value}", "leave rank_order out"
    ),
}
"""Rules of most tools; a tool's own table is merged over this one."""


IN_SCRIPT = "set it in the training script"


def left_to_script(what: str) -> Rule:
    """Rule of a field that the script sets."""
    return lambda value, _: (
        NOTHING if value is None else not_expressible(f"{what} is the script's, not this file's", IN_SCRIPT)
    )


def _padding(value: Any, question: CompleteQuestion) -> Fragment:
    return NOTHING if value == 1 else not_expressible("the vocabulary is padded by the script or not at all", IN_SCRIPT)


SCRIPT_RULES: Rules = {
    "model": left_to_script("the model"),
    **COMMON_RULES,
    "recipe.sequence_length": left_to_script("the length of sequences"),
    "recipe.training_tokens": left_to_script("the length of the run"),
    "recipe.attention": only(("flash",), "the kernel {value} is chosen by the script", IN_SCRIPT),
    "recipe.dropout_fraction": only((0.0,), "dropout is the model's", IN_SCRIPT),
    "recipe.fp8_weights": only((False,), "weights in fp8 are made by the script", IN_SCRIPT),
    "recipe.expert_capacity_factor": only((None,), "what an expert takes is the model's", IN_SCRIPT),
    "recipe.vocabulary_multiple": _padding,
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
    "layout.virtual_group": lambda value, q: (
        NOTHING if value == q.layout.pipeline else not_expressible("a stage is one chunk", "leave virtual_group out")
    ),
    "layout.stage_layers": only((None,), "layers are dealt by the script", IN_SCRIPT),
}  # fmt: skip
"""Rules that DeepSpeed and accelerate share: their files distribute and store a script's model, and the script sets
what it trains."""
