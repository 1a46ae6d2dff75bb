"""Batches of questions: their requests, and the answers, each like that of its own route."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from traceback import format_exception
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len

from service.answers.checks import MOST_QUESTIONS, BatchKind, Check
from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, Grounds, MemoryAnswer
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused, TraincostError
from service.estimator.question import Strict
from service.features.checks.check import StoreQuestion, check
from service.features.checks.schemas import CheckRequest
from service.features.estimates.answers import answer_of
from service.store.scenarios import CheckedQuestion
from service.validation.forms import DescribedAs, requiring
from service.validation.json_text import as_object, refuse_faults
from service.validation.problems import not_an_object, unknown_field
from service.validation.question_parts import QuestionRequest
from service.validation.reading import read_spec, to_bytes

QUESTIONS, KIND, BODY = "questions", "kind", "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLabel(Strict):
    """What is beside the body of a question."""

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


def _estimated(kind: type[Grounds], body: Mapping[str, Any], catalogue: Catalogue, _: StoreQuestion) -> Grounds:
    return answer_of(kind, body, catalogue)


ANSWERERS: Mapping[BatchKind, Callable[[Mapping[str, Any], Catalogue, StoreQuestion], Any]] = {
    "estimate": partial(_estimated, Answer),
    "memory": partial(_estimated, MemoryAnswer),
    "flops": partial(_estimated, FlopAnswer),
    "gpu-hours": partial(_estimated, GpuHoursAnswer),
    "check": check,
}


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    content: bytes
    """JSON of the answer; empty for an error."""
    error: Exception | None
    verdict: str | None
    checked_questions: tuple[CheckedQuestion, ...]
    """Question of a check, so that its estimate can be read again."""


def answer_all(questions: Sequence[object], catalogue: Catalogue) -> list[AnsweredQuestion]:
    """Answer some questions of a batch, each on its own."""
    return [answer_one(question, catalogue) for question in questions]


def answer_one(question: object, catalogue: Catalogue) -> AnsweredQuestion:
    checked_questions: list[CheckedQuestion] = []
    try:
        if isinstance(question, dict):
            refuse_faults({**question, BODY: None})
        kind, body = read_one(question)
        refuse_faults(body)
        found = ANSWERERS[kind](as_object(body), catalogue, checked_questions.append)
        content = to_bytes(found)
    except TraincostError as error:
        return AnsweredQuestion(b"", error, None, tuple(checked_questions))
    except Exception as error:  # a defect; the other questions have their answers
        defect = RuntimeError(repr(error))
        defect.add_note("".join(format_exception(error)))
        return AnsweredQuestion(b"", defect, None, tuple(checked_questions))
    return AnsweredQuestion(
        content, None, found.verdict if isinstance(found, Check) else None, tuple(checked_questions)
    )
