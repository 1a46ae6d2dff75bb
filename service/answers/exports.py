"""Exported files, and files read back as parts of a question."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from service.answers.names import Published
from service.estimator.question import Documented, Name


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVersion(Documented):
    """One form of a tool's file."""

    version: str
    """Its name, as the parameter version takes it."""
    covers: str
    """The releases or the commit that read it."""
    file_name: str
    """What to call the file."""
    media_type: str
    """What kind of text it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTarget(Documented):
    """A tool that a question can be written for."""

    target: str
    """Its name in the path."""
    tool: str
    """What the tool is called."""
    kind: str
    """training: a training configuration; launcher: a file that starts the training."""
    versions: tuple[TargetVersion, ...]
    """Versions between which the file's form changed; the first holds where none is named."""
    source: str
    """Tool and version or commit where its fields were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTargets(Documented):
    """Tools that a question can be written for."""

    items: tuple[ExportTarget, ...]
    """The tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotExpressed(Documented):
    """Something of the question that the file does not hold."""

    field: str
    """Dotted path of the field."""
    message: str
    """Why the file does not hold it."""
    fix: str
    """What to do about it."""
    left_open: bool = False
    """Whether the file leaves it to the script, the environment or the operator; if not, the file trains otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFigures(Documented):
    """What a job takes."""

    device_peak_bytes: float
    """Memory of the fullest GPU."""
    step_seconds: float
    """Time of one optimizer step."""
    tokens_per_s_per_gpu: float
    """Tokens that a GPU trains on in a second, to which the cost of a token is inversely proportional."""
    cost_usd: float | None
    """Cost of the whole run; null without a price or a number of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackChange(Documented):
    """The effect of training software that is another in the file than in the question."""

    asked: str
    """Training software of the question."""
    written: str
    """Training software that reads the file."""
    before: ExportFigures
    """What the question takes."""
    after: ExportFigures | None
    """What the same takes with the other software; null where that does not run it."""
    why: str | None
    """Why the other software does not run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLoss(Documented):
    """What fields that the file does not express change, beside the software: those that it does not leave open."""

    fields: tuple[str, ...]
    """The fields."""
    before: ExportFigures
    """What the job takes with them."""
    after: ExportFigures | None
    """What the file's own job takes; null where it runs nowhere."""
    why: str | None
    """Why the file's job runs nowhere."""
    memory_fraction: float | None
    """Change of the memory."""
    cost_fraction: float | None
    """Change of the cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Documented):
    """A question as the file of one tool."""

    target: str
    """The tool's name in the path."""
    version: str
    """The form that was written."""
    file_name: str
    """What to call the file."""
    media_type: str
    """What kind of text it is."""
    content: str
    """The file."""
    not_expressible: tuple[NotExpressed, ...]
    """What of the recipe, the layout and the model it does not hold; what is not listed is in it, or needs no place."""
    assumptions: tuple[str, ...]
    """What was assumed, and what a user of the file has to know."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    source: str
    """Tool and version or commit where its fields were read."""
    stack_change: StackChange | None = None
    """The effect of other training software than the question's; null where it is the same."""
    loss: ExportLoss | None = None
    """What the file changes by what it does not express; null where it changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSettings(Documented):
    """How many settings of a format have each fate; a family of names that begin alike counts as one."""

    understood: int
    """Settings that model, recipe and layout are read from."""
    without_effect: int
    """Settings that change nothing here."""
    not_understood: int
    """Settings that change memory or time in a way that is not read, at some of their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFormat(Documented):
    """A kind of file that is read as parts of a question."""

    format: str
    """Its name in the path."""
    meaning: str
    """What the file is."""
    syntax: str
    """How it is written: arguments, json, toml or yaml; any for the one of these, or Python, that it looks like."""
    covers: str
    """The releases or the commit whose files are read."""
    source: str
    """Tool and version or commit whose settings and defaults were read."""
    settings: FormatSettings
    """How many of its settings have each fate; any other is listed as unknown, or as not understood by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFormats(Documented):
    """Kinds of files that are read."""

    items: tuple[ImportFormat, ...]
    """The kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownSetting(Documented):
    """A setting of the file that was not understood."""

    name: str
    """Its name in the file, its beginning where it is long."""
    line: int
    """Line of its value."""
    column: int
    """Column in which its value begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSetting(Documented):
    """A setting of the file, with what is known of its effect."""

    name: str
    """Its name in the file, its beginning where it is long."""
    line: int
    """Line of its value."""
    column: int
    """Column in which its value begins."""
    why: str
    """Why it changes nothing here, or what it would change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported(Documented):
    """A parsed file, as the parts of a question."""

    format: str
    """The kind of file."""
    recognised: str | None
    """Why the file was taken for one of that kind; null where the request names the kind."""
    model: Name | Annotated[Mapping[str, Any], Published("ModelFields")] | None
    """The model as a question takes it: a name or an object; null where the file does not set it."""
    recipe: Annotated[Mapping[str, Any], Published("RecipeFields")]
    """Fields of the recipe that the file sets, or that its tool does by default."""
    layout: Annotated[Mapping[str, Any], Published("Layout")]
    """The same of the layout."""
    unknown: tuple[UnknownSetting, ...]
    """Settings that are not known, at most 200."""
    accumulation_steps: int | None
    """Micro-batches in one optimizer step, where the file leaves the number of replicas open: global_batch is
    micro_batch x this x data."""
    training_steps: int | None
    """Optimizer steps of the run, where the file leaves its batch open: training_tokens is this x global_batch x
    sequence_length."""
    shard_groups: int | None
    """Groups of replicas that each shard by themselves, where the file leaves the number of replicas open: shard_group
    is data x context / this."""
    understood: tuple[str, ...]
    """Names of the settings that model, recipe and layout were read from, at most 200."""
    without_effect: tuple[ExplainedSetting, ...]
    """Settings that change nothing here, at most 200, each with the reason."""
    not_understood: tuple[ExplainedSetting, ...]
    """Settings that change memory or time in a way that is not read, at most 200: the parts are not this file's job."""
    assumptions: tuple[str, ...]
    """What the file leaves open, and what was assumed."""
    source: str
    """Tool and version or commit whose fields and defaults were read."""
