"""Requests for a difference: two questions, each as sent or by the id of a stored one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Len

from service.errors import NotFound, Problem, Refused, quoted
from service.estimator.question import Name
from service.validation.forms import DescribedAs, requiring
from service.validation.problems import Collector, not_an_object
from service.validation.question_parts import PARTS, QuestionRequest
from service.validation.reading import read_spec

BEFORE, AFTER = "before", "after"

Asked = Annotated[
    Any,
    DescribedAs(QuestionRequest | Annotated[str, Len(1, 64)]),
]
"""A question, or the id of a stored answer (est_...) or of a scenario (scn_...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRequest:
    """Two questions, and the numbers that are compared."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring(BEFORE, AFTER)

    before: Asked = None
    """The question that changes; or the id of a stored answer (est_...) or of a scenario (scn_...)."""
    after: Asked = None
    """What it changes to, likewise."""
    metrics: Annotated[tuple[Name, ...], Len(1, 40)] | None = None
    """Numbers of each row, by the names that cells give them; those that most callers want where absent."""


def read_difference(body: Mapping[str, Any]) -> DifferenceRequest:
    """Parse a request body, except for its questions."""
    problems = Collector()
    request = problems.read(lambda: read_spec(DifferenceRequest, body, "", whole="the body"))
    problems.add(*(not_an_object(end, PARTS) for end in (BEFORE, AFTER) if not isinstance(body.get(end), Mapping)))
    problems.refuse()
    if request is None:
        raise Refused
    return request


def with_stored_questions(body: Mapping[str, Any], stored_question: Callable[[str], Mapping[str, Any]]) -> Any:
    """The body with each id replaced by the question that is stored under it."""
    problems, found = Collector(), dict(body)
    for end in (BEFORE, AFTER):
        if isinstance(named := body.get(end), str):
            try:
                found[end] = stored_question(named)
            except NotFound as missing:
                message = f"{quoted(named)} is not stored: {missing}"
                problems.add(Problem(end, "not_found", message, "send the question itself"))
    problems.refuse()
    return found
