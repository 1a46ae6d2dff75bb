"""What does a launch check ask? A question or the id of a stored estimate, probes, time, and where it may run."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, get_args

from annotated_types import Interval, Len

from service.answers.estimates import Answer
from service.answers.launch_checks import Where
from service.calibration.records import ProbeName
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, NotFound, Problem, Refused
from service.estimator.noun import STRICT, Name
from service.workflows.check_body import Problems
from service.workflows.estimates import answer
from service.workflows.findings import not_an_object
from service.workflows.nouns import read_noun
from service.workflows.question_parts import PARTS
from service.workflows.questions import Asked, read_question

QUESTION, ESTIMATE = "question", "estimate_id"
ALL_PROBES: tuple[ProbeName, ...] = get_args(ProbeName)
PROBES_OF_ONE: tuple[ProbeName, ...] = tuple(probe for probe in ALL_PROBES if probe != "collective")
"""What is measured for a job of one GPU, unless its asker names probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checking:
    """How a launch check is carried out."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    estimate_id: Name | None = None
    """Id of an estimate that a scenario, a check or a launch check stored, in the place of the question."""
    probes: Annotated[tuple[ProbeName, ...], Len(0, 8)] = ()
    """What to measure; where empty everything, but collective where the job has one GPU, which sends nothing."""
    time_budget_seconds: Annotated[float, Interval(ge=5, le=3600)] = 120.0
    """Time that all probes should keep within together."""
    on: Where | None = None
    """matching: on a worker with the cluster's GPU alone; any: on what there is, and then the verdict is at most
    caution; matching where a live worker has that GPU, else any, where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A launch check as it was asked for."""

    question: Mapping[str, Any]
    """The question as it was sent, or as the stored estimate has it."""
    asked: Asked
    """The same, understood."""
    estimate: Answer
    """What it is answered."""
    checking: Checking
    """How it is carried out."""

    @property
    def probes(self) -> tuple[ProbeName, ...]:
        """Probes in the order in which they run."""
        named = self.checking.probes or (ALL_PROBES if self.asked.question.cluster.gpus > 1 else PROBES_OF_ONE)
        return tuple(probe for probe in ALL_PROBES if probe in named)


def read_launch_check(body: Mapping[str, Any], catalogue: Catalogue, stored: Callable[[str], bytes]) -> Wanted:
    """The launch check that a request body asks for.

    Args:
        body: the JSON object of the request
        catalogue: the facts
        stored: the stored answer of an id

    Returns:
        the launch check

    Raises:
        Refused: a wrong value, an unknown field, no question or two; what is wrong with a question under `question.`
    """
    problems = Problems()
    said = {name: value for name, value in body.items() if name != QUESTION}
    checking = problems.read(lambda: read_noun(Checking, said, "", beside=(QUESTION,)))
    question = problems.read(lambda: _question(body.get(QUESTION), body.get(ESTIMATE), stored))
    understood = None if question is None else problems.read(lambda: _answered(question, catalogue))
    if checking is None or question is None or understood is None or problems.found:
        raise Refused(*problems.found[:MOST_PROBLEMS])
    asked, estimate = understood
    return Wanted(question=question, asked=asked, estimate=estimate, checking=checking)


def _question(question: object, estimate_id: object, stored: Callable[[str], bytes]) -> Mapping[str, Any]:
    """The question as it was sent, or the one that a stored estimate answers, every default filled."""
    if (question is None) == (estimate_id is None):
        message = "a launch check is about one question: the question itself, or the estimate_id of a stored one"
        raise Refused(
            Problem(field=QUESTION, code="one_of", message=message, fix="give either question or estimate_id")
        )
    if question is not None:
        if not isinstance(question, Mapping):
            raise Refused(not_an_object(QUESTION, PARTS))
        return question
    try:
        resolved = json.loads(stored(str(estimate_id)))["resolved"]
    except NotFound as missing:
        raise Refused(
            Problem(field=ESTIMATE, code="not_found", message=str(missing), fix="send the question itself")
        ) from None
    return {name: value for name, value in resolved.items() if name in PARTS and value is not None}


def _answered(question: Mapping[str, Any], catalogue: Catalogue) -> tuple[Asked, Answer]:
    try:
        asked = read_question(question, catalogue)
        return asked, answer(asked, catalogue)
    except Refused as refused:
        raise Refused(*(_placed(problem) for problem in refused.problems)) from None


def _placed(problem: Problem) -> Problem:
    return replace(problem, field=f"{QUESTION}.{problem.field}".rstrip("."))
