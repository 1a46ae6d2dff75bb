"""How is a question written for a launcher or a training framework, and what does that file not hold?"""

from collections.abc import Mapping
from typing import Any

from service.answers.exports import Export, ExportTarget, NotExpressed, TargetVersion
from service.catalogue import Catalogue
from service.errors import NotFound, Problem, Refused
from service.estimator.resolve import resolve
from service.exports.said import Unsaid
from service.exports.table import TARGETS
from service.exports.target import Job, Target
from service.workflows.questions import read_question


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
