"""How is a question written for a launcher or a training framework, and what does that file not hold?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from service.catalogue import Catalogue
from service.errors import NotFound, Problem, Refused
from service.estimator.noun import SPOKEN
from service.estimator.resolve import resolve
from service.exports.said import Unsaid
from service.exports.table import TARGETS
from service.exports.target import Job, Target
from service.workflows.questions import read_question


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVersion:
    """One form of a tool's file."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    version: str
    """Its name, as the parameter version takes it."""
    covers: str
    """The releases or the commit that read it."""
    file_name: str
    """What to call the file."""
    media_type: str
    """What kind of text it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTarget:
    """A tool that a question can be written for."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    target: str
    """Its name in the path."""
    tool: str
    """What the tool is called."""
    kind: str
    """training: the file says how to train; launcher: it starts what does."""
    versions: tuple[TargetVersion, ...]
    """Versions between which the file's form changed; the first holds where none is named."""
    source: str
    """Tool and version or commit where its fields were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotExpressed:
    """Something of the question that the file does not hold."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    field: str
    """Dotted path of the field."""
    message: str
    """Why the file does not hold it."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A question as the file of one tool."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

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
    """What was assumed, and what whoever uses the file has to know."""
    warnings: tuple[str, ...]
    """What the caller should look at."""
    source: str
    """Tool and version or commit where its fields were read."""


def listed_targets() -> tuple[ExportTarget, ...]:
    """Every tool that a question can be written for.

    Returns:
        first what says how to train, then what starts it
    """
    return tuple(
        ExportTarget(
            target=target.name,
            tool=target.tool,
            kind=target.kind,
            versions=tuple(
                TargetVersion(version=name, covers=one.covers, file_name=one.file_name, media_type=one.media_type)
                for name, one in target.versions.items()
            ),
            source=target.source,
        )
        for target in TARGETS.values()
    )


def target_named(name: str) -> Target:
    """The tool of a name.

    Args:
        name: its name in the path

    Returns:
        the tool

    Raises:
        NotFound: there is none of that name
    """
    if name not in TARGETS:
        raise NotFound(f"nothing is written for that; a question can be written for {', '.join(TARGETS)}")
    return TARGETS[name]


def export(
    body: Mapping[str, Any], catalogue: Catalogue, target: Target, version: str, command: str | None = None
) -> Export:
    """A question as the file of one tool.

    Args:
        body: the JSON object of the request
        catalogue: the facts
        target: the tool
        version: the form of its file, one of the target's
        command: what a launcher is to start; the program of the question's software where None

    Returns:
        the file, and what it does not hold

    Raises:
        Refused: the question breaks a rule, or the command is none
    """
    if command is not None and target.kind != "launcher":
        message = f"{target.tool} starts no command: its file says how to train"
        raise Refused(Problem(field=COMMAND, code="no_launcher", message=message, fix="leave command out"))
    asked = read_question(body, catalogue)
    question = resolve(asked.question).question
    written = target.write(Job(question=question, version=version, command=command))
    form = target.versions[version]
    return Export(
        target=target.name,
        version=version,
        file_name=form.file_name,
        media_type=form.media_type,
        content=written.content,
        not_expressible=tuple(map(_told, written.not_expressible)),
        assumptions=(*asked.assumptions, *written.assumptions),
        warnings=asked.warnings,
        source=target.source,
    )


COMMAND = "command"
"""Field of what is wrong with a caller's own command."""


def _told(unsaid: Unsaid) -> NotExpressed:
    return NotExpressed(field=unsaid.field, message=unsaid.message, fix=unsaid.fix)
