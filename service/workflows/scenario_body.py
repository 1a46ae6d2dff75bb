"""What does somebody want to keep: a question under a name, with a note? Read from a request body, all of it judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_json

from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.workflows.estimates import answer
from service.workflows.findings import not_an_object
from service.workflows.nouns import read_noun
from service.workflows.plain_text import composed, plain
from service.workflows.questions import read_question
from service.workflows.scenario_label import QUESTION, Label


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request body says of a scenario."""

    label: Label
    """Name and note, in Unicode's composed form."""
    question: Mapping[str, Any]
    """The question as it was sent."""
    found: Answer | None
    """Its answer; None where the question is as it was, so that the answer that is stored holds."""


def read_wanted(body: Mapping[str, Any], catalogue: Catalogue, *, answered: object = None) -> Wanted:
    """The scenario that a request body describes.

    Args:
        body: name, question, and a note
        catalogue: models, GPUs, clusters and prices that the question refers to
        answered: a question that was answered before and need not be again

    Returns:
        the scenario with its answer

    Raises:
        Refused: an unknown field, a wrong name, or a question that cannot be answered, its fields under `question.`
    """
    problems: list[Problem] = []
    label = _collected(lambda: _label(body), problems)
    question = body.get(QUESTION)
    is_known = question is not None and to_json(question) == to_json(answered)
    found = None if is_known else _collected(lambda: _answer(question, catalogue), problems)
    if label is None or problems or not isinstance(question, Mapping):
        raise Refused(*problems)
    return Wanted(label, question, found)


def _label(body: Mapping[str, Any]) -> Label:
    given = {name: value for name, value in body.items() if name != QUESTION}
    label = read_noun(Label, {name: composed(value) for name, value in given.items()}, "", beside=(QUESTION,))
    plain(given)
    if not label.name.strip():
        message = "name holds nothing but spaces, so nobody could find the scenario by it"
        raise Refused(Problem(field="name", code="empty", message=message, fix="give it a name"))
    return label


def _answer(question: object, catalogue: Catalogue) -> Answer:
    if question is None:
        message = "question is missing; a scenario keeps a question together with its answer"
        fix = "give what POST /v1/estimates takes"
        raise Refused(Problem(field=QUESTION, code="required", message=message, fix=fix))
    if not isinstance(question, Mapping):
        raise Refused(not_an_object(QUESTION, ["model", "recipe", "cluster"]))
    try:
        return answer(read_question(question, catalogue), catalogue)
    except Refused as refused:
        inside = [f"{QUESTION}.{problem.field}".rstrip(".") for problem in refused.problems]
        raise Refused(*map(_placed, refused.problems, inside)) from None


def _placed(problem: Problem, field: str) -> Problem:
    return replace(problem, field=field)


def _collected(part: Callable[[], Any], problems: list[Problem]) -> Any:
    try:
        return part()
    except Refused as refused:
        problems.extend(refused.problems)
        return None
