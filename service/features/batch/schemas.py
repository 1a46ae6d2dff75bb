"""Requests for a batch: questions, each with the kind of its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len

from service.answers.checks import MOST_QUESTIONS, BatchKind
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.question import STRICT
from service.features.checks.schemas import CheckRequest
from service.validation.forms import DescribedAs, requiring
from service.validation.problems import not_an_object, unknown_field
from service.validation.question_parts import QuestionRequest
from service.validation.reading import read_spec

QUESTIONS, KIND, BODY = "questions", "kind", "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLabel:
    """What is beside the body of a question."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    kind: BatchKind
    """Requested answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQuestion:
    """A question."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring(KIND, BODY)

    kind: Literal["estimate", "memory", "flops", "gpu-hours"]
    """Requested answer."""
    body: Annotated[Any, DescribedAs(QuestionRequest)]
    """What the route of that kind takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCheck:
    """A job that wants to start."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring(KIND, BODY)

    kind: Literal["check"]
    """Requested answer."""
    body: Annotated[Any, DescribedAs(CheckRequest)]
    """What the route of that kind takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """Questions that are asked together."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring(QUESTIONS)

    questions: Annotated[tuple[BatchQuestion | BatchCheck, ...], Len(0, MOST_QUESTIONS)]
    """The questions."""


def read_batch(body: Mapping[str, Any]) -> Sequence[object]:
    """Parse the list of questions, not the questions."""
    unknown = [name for name in body if name != QUESTIONS][:MOST_PROBLEMS]
    if unknown:
        raise Refused(*(unknown_field("", name, {QUESTIONS}, "the body") for name in unknown))
    questions = body.get(QUESTIONS)
    if not isinstance(questions, list):
        message = "questions is not a list of questions"
        fix = f'give questions, e.g. [{{"{KIND}": "memory", "{BODY}": {{...}}}}]'
        raise Refused(Problem(field=QUESTIONS, code="not_a_list", message=message, fix=fix))
    if len(questions) > MOST_QUESTIONS:
        message = f"there are {len(questions)} questions, and one request takes {MOST_QUESTIONS}"
        raise Refused(Problem(field=QUESTIONS, code="too_many", message=message, fix="ask in several requests"))
    return questions


def read_one(question: object) -> tuple[BatchKind, object]:
    """Parse the kind of a question, not its body."""
    if not isinstance(question, Mapping):
        raise Refused(not_an_object("", [KIND, BODY]))
    if BODY not in question:
        message, fix = "body is missing; it says what is asked", "give what the route of its kind takes"
        raise Refused(Problem(field=BODY, code="required", message=message, fix=fix))
    label = {name: value for name, value in question.items() if name != BODY}
    return read_spec(BatchLabel, label, "", beside=(BODY,)).kind, question[BODY]
