"""What is a tool that a question can be written for, and what does writing for it give?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from service.estimator.question import Question
from service.exports.said import Rules, Unsaid


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
