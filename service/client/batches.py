"""Batches of any number of questions, split into requests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from service.answers.batch import MOST_QUESTIONS, BatchKind
from service.answers.checks import Check
from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, MemoryAnswer
from service.client.errors import Problem, Unreadable
from service.client.reading import encoded, from_json

BatchAnswer = Answer | MemoryAnswer | FlopAnswer | GpuHoursAnswer | Check | Problem
"""What one of many questions is answered; a problem is given, not raised."""

ANSWERS: Mapping[BatchKind, type[Any]] = {
    "estimate": Answer,
    "memory": MemoryAnswer,
    "flops": FlopAnswer,
    "gpu-hours": GpuHoursAnswer,
    "check": Check,
}
"""What each kind of question is answered."""

MOST_BYTES = 1 << 20
"""Questions of one request, as JSON; the service takes some times as many bytes, and as many values as fill these."""

ANSWERED = 200


def requests_of(questions: Iterable[tuple[BatchKind, Any]]) -> Iterator[tuple[list[BatchKind], bytes]]:
    """Questions, as many to a request as the service takes.

    Args:
        questions: kinds and bodies

    Yields:
        the kinds of a request's questions, and its body
    """
    kinds: list[BatchKind] = []
    contents: list[bytes] = []
    size = 0
    for kind, body in questions:
        content = encoded({"kind": kind, "body": body})
        if kinds and (len(kinds) == MOST_QUESTIONS or size + len(content) > MOST_BYTES):
            yield kinds, _body(contents)
            kinds, contents, size = [], [], 0
        kinds.append(kind)
        contents.append(content)
        size += len(content)
    if kinds:
        yield kinds, _body(contents)


def answers_of(kinds: list[BatchKind], document: Any) -> Iterator[BatchAnswer]:
    """The answers to a request, in order.

    Args:
        kinds: the kinds of its questions
        document: the JSON that came back

    Yields:
        an answer or a problem for each question

    Raises:
        Unreadable: there are not as many answers as questions
    """
    answers = document.get("answers", ()) if isinstance(document, dict) else ()
    if len(answers) != len(kinds):
        raise Unreadable(f"{len(kinds)} questions have {len(answers)} answers")
    for kind, answer in zip(kinds, answers, strict=True):
        status, body = answer["status"], answer["body"]
        yield from_json(ANSWERS[kind], body) if status == ANSWERED else Problem(status, body)


def _body(contents: list[bytes]) -> bytes:
    return b'{"questions":[' + b",".join(contents) + b"]}"
