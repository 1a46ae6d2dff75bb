"""Batches of questions, each answered like its own route."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from traceback import format_exception
from typing import Any

from service.answers.checks import BatchKind, Check
from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, Grounds, MemoryAnswer
from service.catalogue import Catalogue
from service.errors import TraincostError
from service.features.batch.schemas import BODY, read_one
from service.features.checks.check import StoreQuestion, check
from service.features.estimates.answers import answer_of
from service.store.scenarios import CheckedQuestion
from service.validation.json_text import as_object, refuse_faults
from service.validation.serialization import to_bytes


def _estimated(kind: type[Grounds], body: Mapping[str, Any], catalogue: Catalogue, _: StoreQuestion) -> Grounds:
    return answer_of(kind, body, catalogue)


ANSWERERS: Mapping[BatchKind, Callable[[Mapping[str, Any], Catalogue, StoreQuestion], Any]] = {
    "estimate": partial(_estimated, Answer),
    "memory": partial(_estimated, MemoryAnswer),
    "flops": partial(_estimated, FlopAnswer),
    "gpu-hours": partial(_estimated, GpuHoursAnswer),
    "check": check,
}
"""Answerer of each kind; the question of a check is stored."""


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """Answer to one question, or the error."""

    content: bytes
    """JSON of the answer; empty for an error."""
    error: Exception | None
    """Error of the question."""
    verdict: str | None
    """Verdict of a check."""
    checked_questions: tuple[CheckedQuestion, ...]
    """Question of a check, so that its estimate can be read again."""


def answer_all(questions: Sequence[object], catalogue: Catalogue) -> list[AnsweredQuestion]:
    """Answer some questions of a batch, each on its own."""
    return [answer_one(question, catalogue) for question in questions]


def answer_one(question: object, catalogue: Catalogue) -> AnsweredQuestion:
    """Answer one question of a batch."""
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
