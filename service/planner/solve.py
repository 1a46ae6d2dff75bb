"""What is the largest, or the smallest, value of the open field with which the job fits and keeps its limits?"""

from dataclasses import dataclass

from service.errors import Problem, Refused
from service.estimator.question import Question
from service.planner.attempt import Attempt, Attempts
from service.planner.boundary import largest_that_will_do, smallest_that_will_do
from service.planner.solve_limits import SIZE_LIMITS, SolveLimits, limits_given
from service.planner.steps import Steps, outcome
from service.planner.unknowns import UNKNOWNS, Unknown, degrees_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """The border of one open field."""

    found: Attempt | None
    """The value that is asked for; None where none will do."""
    beyond: Attempt | None
    """The nearest value on the other side of the border; None where the field ends before it."""
    tried: int
    """Values that were tried."""
    gap: Attempt | None = None
    """The largest legal value below the one that is asked for that was tried and will not do either; None where none
    was found, as nearly always."""


def solved(question: Question, name: str, limits: SolveLimits, multiple: int = 1) -> Solved:
    """The border of one open field, found without stopping.

    Args:
        question: the question; what it says of the open field itself is not read
        name: the open field
        limits: what has to hold beside fitting
        multiple: what the value has to be a multiple of

    Returns:
        the border

    Raises:
        Refused: no value is legal, or a limit cannot be judged
    """
    return outcome(solving(question, name, limits, multiple))


def solving(question: Question, name: str, limits: SolveLimits, multiple: int = 1) -> Steps[Solved]:
    """The same, attempt by attempt.

    Args:
        question: the question
        name: the open field
        limits: what has to hold beside fitting
        multiple: what the value has to be a multiple of

    Yields:
        nothing, between one attempt and the next

    Returns:
        the border

    Raises:
        Refused: no value is legal, or a limit cannot be judged
    """
    unknown = UNKNOWNS[name]
    refuse_limits(name, unknown, question, limits)
    attempts = Attempts(lambda value: unknown.put(question, value), limits)
    values = unknown.values(question, multiple)
    if not len(values):
        raise Refused(_no_value(name, multiple))
    search = largest_that_will_do if unknown.is_largest else smallest_that_will_do
    border = yield from search(values, attempts, degrees_unit(question.layout))
    if border.found is None and border.beyond is None:
        raise attempts.refusal or Refused(_no_value(name, multiple))
    tried, beyond = attempts.count, border.beyond
    if beyond is None and border.found is not None:
        beyond = yield from _refused_neighbour(border.found, unknown, attempts, multiple)
    gap = _gap(border.found, attempts) if unknown.is_largest else None
    return Solved(found=border.found, beyond=beyond, tried=tried, gap=gap)


def _gap(found: Attempt | None, attempts: Attempts) -> Attempt | None:
    if found is None:
        return None
    below = (one for one in attempts.legal if one.value < found.value and not one.will_do)
    return max(below, key=lambda one: one.value, default=None)


def _refused_neighbour(found: Attempt, unknown: Unknown, attempts: Attempts, multiple: int) -> Steps[Attempt | None]:
    """What a rule says of the next value, where no legal one lies beyond; None where the field ends there."""
    least, most = unknown.bounds
    value = found.value + (multiple if unknown.is_largest else -multiple)
    if not least <= value <= most:
        return None
    attempt = yield from attempts.at(value)
    return None if attempt.will_do else attempt


def refuse_limits(name: str, unknown: Unknown, question: Question, limits: SolveLimits) -> None:
    """Refuse limits that would change nothing, and those that cannot be judged.

    Args:
        name: the open field
        unknown: what is known of it
        question: the question
        limits: what has to hold

    Raises:
        Refused: one problem for each
    """
    given = limits_given(limits)
    problems = [_idle(name, limit, unknown) for limit in given if limit not in unknown.limits]
    problems += [_idle(name, limit, unknown) for limit in SIZE_LIMITS if getattr(limits, limit) is not None]
    if unknown.needs_limit and not given:
        message = f"{name} has no end without a limit: every run fits as well as a longer one"
        fix = f"give one of {', '.join(f'limits.{limit}' for limit in unknown.limits)}"
        problems.append(Problem(field="limits", code="required", message=message, fix=fix))
    if given and question.recipe.training_tokens is None and name != "recipe.training_tokens":
        problems.append(_unjudged(next(iter(given)), "question.recipe.training_tokens"))
    if "cost_usd" in given and question.price is None:
        problems.append(_unjudged("cost_usd", "question.price"))
    if problems:
        raise Refused(*problems)


def _idle(name: str, limit: str, unknown: Unknown) -> Problem:
    taken = ", ".join(("headroom_fraction", *unknown.limits))
    message = f"{limit} is not what bounds {name}, so it would be ignored"
    return Problem(
        field=f"limits.{limit}", code="limit_not_read", message=message, fix=f"leave it out; it takes {taken}"
    )


def _unjudged(limit: str, wanted: str) -> Problem:
    message = f"limits.{limit} cannot be judged: it is not known without {wanted}"
    return Problem(field=f"limits.{limit}", code="not_known", message=message, fix=f"give {wanted}")


def _no_value(name: str, multiple: int) -> Problem:
    message = f"no value of {name} that is a multiple of {multiple} is legal beside the question's other fields"
    return Problem(field="multiple_of", code="no_legal_value", message=message, fix="leave multiple_of out")
