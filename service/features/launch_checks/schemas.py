"""Requests for a launch check: a question, or the id of a stored estimate, and how to measure it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from annotated_types import Interval, Len

from service.answers.estimates import Answer
from service.answers.launch_checks import Where
from service.calibration.records import ProbeName
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, NotFound, Problem, Refused
from service.estimator.question import Name, Strict
from service.features.estimates.answers import answer
from service.features.estimates.store import question_of
from service.validation.forms import DescribedAs
from service.validation.problems import Collector, not_an_object, refused_at
from service.validation.question_parts import PARTS, QuestionRequest
from service.validation.questions import ParsedQuestion, read_question
from service.validation.reading import read_spec

ALL_PROBES: tuple[ProbeName, ...] = get_args(ProbeName)
PROBES_OF_ONE: tuple[ProbeName, ...] = tuple(probe for probe in ALL_PROBES if probe != "collective")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCheckRequest(Strict):
    """What to measure, and the job: a question, or the id of a stored estimate."""

    question: Annotated[Any, DescribedAs(QuestionRequest)] = None
    """A request body of POST /v1/estimates, stored as sent."""
    estimate_id: Name | None = None
    """Id of an estimate that a scenario, a check or a launch check stored, instead of the question."""
    probes: Annotated[tuple[ProbeName, ...], Len(0, 8)] = ()
    """What to measure; empty for everything, without collective if the job has one GPU."""
    time_budget_seconds: Annotated[float, Interval(ge=5, le=3600)] = 120.0
    """Time that all probes together should take at most."""
    on: Where | None = None
    """matching: only on a worker with the cluster's GPU; any: on any worker, and then the verdict is at most caution.
    Default: matching if a live worker has that GPU, else any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLaunchCheck:
    """A request whose question is looked up in the catalogue and answered."""

    question: Mapping[str, Any]
    """Question as sent, or from the stored estimate."""
    parsed: ParsedQuestion
    estimate: Answer
    request: LaunchCheckRequest

    @property
    def probes(self) -> tuple[ProbeName, ...]:
        """Probes in execution order."""
        named = self.request.probes or (ALL_PROBES if self.parsed.question.cluster.gpus > 1 else PROBES_OF_ONE)
        return tuple(probe for probe in ALL_PROBES if probe in named)


def read_launch_check(
    body: Mapping[str, Any], catalogue: Catalogue, stored: Callable[[str], bytes]
) -> ParsedLaunchCheck:
    """Parse a request body."""
    problems = Collector()
    request = problems.read(read_spec, LaunchCheckRequest, body, "")
    question = problems.read(_question, body.get("question"), body.get("estimate_id"), stored)
    answered = None if question is None else problems.read(_answered, question, catalogue)
    if request is None or question is None or answered is None or problems.problems:
        raise Refused(*[*problems.problems][:MOST_PROBLEMS])
    parsed, estimate = answered
    return ParsedLaunchCheck(question=question, parsed=parsed, estimate=estimate, request=request)


def _question(question: object, estimate_id: object, stored: Callable[[str], bytes]) -> Mapping[str, Any]:
    """Question as sent, or of the stored estimate with every default filled."""
    if (question is None) == (estimate_id is None):
        message = "a launch check is about one question: the question itself, or the estimate_id of a stored one"
        raise Refused(Problem("question", "one_of", message, "give either question or estimate_id"))
    if question is not None:
        if not isinstance(question, Mapping):
            raise Refused(not_an_object("question", PARTS))
        return question
    try:
        return question_of(stored(str(estimate_id)))
    except NotFound as missing:
        raise Refused(Problem("estimate_id", "not_found", str(missing), "send the question itself")) from None


def _answered(question: Mapping[str, Any], catalogue: Catalogue) -> tuple[ParsedQuestion, Answer]:
    try:
        parsed = read_question(question, catalogue)
        return parsed, answer(parsed, catalogue)
    except Refused as refused:
        raise refused_at("question", refused) from None
