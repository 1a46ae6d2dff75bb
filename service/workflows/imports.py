"""What does the file of a training framework ask? The way back: its text becomes a recipe, a layout and a model."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from service.errors import NotFound, Problem, Refused
from service.estimator.model import Model
from service.estimator.noun import SPOKEN
from service.estimator.question import Layout, Recipe
from service.exports.back.draft import Draft
from service.exports.back.entries import FIELD, LONGEST_FILE_BYTES
from service.exports.back.formats import FORMATS, Format
from service.workflows.nouns import read_noun

MOST_UNKNOWN = 200
"""Settings not understood that an answer names."""

LONGEST_NAME = 80
"""Characters of such a setting's name that are repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownSetting:
    """A setting of the file that nobody understood."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    name: str
    """Its name in the file, its beginning where it is long."""
    line: int
    """Line on which its value stands."""
    column: int
    """Column in which its value begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a file says, as the parts of a question."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    format: str
    """The kind of file."""
    model: Any
    """The model as a question takes it: a name or an object; null where the file does not say it."""
    recipe: Mapping[str, Any]
    """Fields of the recipe that the file says, or that its tool does without being told."""
    layout: Mapping[str, Any]
    """The same of the layout."""
    unknown: tuple[UnknownSetting, ...]
    """Settings that were not understood, at most 200; those about data, files and learning rates are passed over."""
    assumptions: tuple[str, ...]
    """What the file leaves open, and what was assumed."""
    source: str
    """Tool and version or commit whose fields and defaults were read."""


def format_named(name: str) -> Format:
    """The kind of file of a name.

    Args:
        name: its name in the path

    Returns:
        the kind

    Raises:
        NotFound: there is none of that name
    """
    if name not in FORMATS:
        raise NotFound(f"files of that kind are not read; {', '.join(FORMATS)} are")
    return FORMATS[name]


def import_file(kind: Format, text: str) -> Imported:
    """What a file says, as the parts of a question.

    Args:
        kind: which kind of file it is
        text: the file

    Returns:
        model, recipe and layout, as far as it says them

    Raises:
        Refused: it is not of that kind, or a value is none that a field takes; the message names line and column
    """
    if len(text.encode()) > LONGEST_FILE_BYTES:
        message = f"the file has more than {LONGEST_FILE_BYTES // 1024} KiB, and none that says how to train is so long"
        raise Refused(Problem(field=FIELD, code="too_long", message=message, fix="send that file alone"))
    draft = kind.read(kind.entries(text))
    _judge(draft)
    unknown = tuple(
        UnknownSetting(name=entry.name[:LONGEST_NAME], line=entry.place.line, column=entry.place.column)
        for entry in draft.unknown[:MOST_UNKNOWN]
    )
    return Imported(
        format=kind.name,
        model=draft.model,
        recipe=draft.recipe,
        layout=draft.layout,
        unknown=unknown,
        assumptions=tuple(draft.assumptions),
        source=kind.source,
    )


def _judge(draft: Draft) -> None:
    """Refuse values that no field takes; what the file leaves open is not asked for."""
    problems: list[Problem] = []
    for noun, path, values in ((Recipe, "recipe", draft.recipe), (Layout, "layout", draft.layout)):
        problems += _problems(noun, path, values)
    if isinstance(draft.model, Mapping):
        problems += _problems(Model, "model", draft.model)
    if problems:
        raise Refused(*(_retold(problem) for problem in problems))


def _problems(noun: type, path: str, values: Mapping[str, Any]) -> tuple[Problem, ...]:
    needed = {f.name for f in fields(noun) if f.default is MISSING and f.default_factory is MISSING}
    try:
        read_noun(noun, {**dict.fromkeys(needed, 1), **values}, path)
    except Refused as refused:
        return refused.problems
    return ()


def _retold(problem: Problem) -> Problem:
    message = f"the file gives {problem.field} a value that it cannot have: {problem.message}"
    return Problem(field=FIELD, code=problem.code, message=message, fix=problem.fix)
