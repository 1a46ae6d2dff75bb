"""Batches: the answers to up to a thousand questions."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len

from service.answers.checks import Check
from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, MemoryAnswer
from service.answers.names import Published
from service.estimator.question import DESCRIBED

BatchKind = Literal["estimate", "memory", "flops", "gpu-hours", "check"]
"""Kind of the answers, by the name of the route that gives one alone."""

MOST_QUESTIONS = 1_000
"""Most questions of one request. Source: a choice; they take some seconds of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswer:
    """The answer to one question."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    status: Literal[200]
    """Status of an answer."""
    body: Answer | MemoryAnswer | FlopAnswer | GpuHoursAnswer | Check
    """Answer of the route of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProblem:
    """The problem of a refused question."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    status: Literal[400, 422, 500]
    """Status of the refusal."""
    body: Annotated[Any, Published("Problem")]
    """Reason of the refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswers:
    """The answers, in the order of the questions."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    answers: Annotated[tuple[BatchAnswer | BatchProblem, ...], Len(0, MOST_QUESTIONS)]
    """One answer for each question."""
