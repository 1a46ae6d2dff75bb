"""One field of a question is open: which value of it will do, which is the next that will not, and why?"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator.question import Question
from service.planner.attempt import Attempt
from service.planner.batch_plan import planning_batch
from service.planner.optimal_size import optimal_size
from service.planner.solve import Solved, solving
from service.planner.solve_limits import RUN_LIMITS, limits_given
from service.planner.steps import Steps, outcome
from service.planner.unknowns import UNKNOWNS
from service.planner.why_not import WhyNot
from service.workflows.estimates import Answer, answer, versions_of
from service.workflows.questions import Asked
from service.workflows.solution import Evidence, KeyNumbers, NextValue, Solution, key_numbers
from service.workflows.solve_body import Wanted, in_question, read_asked, read_wanted
from service.workflows.solve_cluster import choosing_cluster
from service.workflows.wire import to_wire

CHANGING = ("model", "recipe", "layout", "cluster")
"""Nouns of a question that a value may change."""

SIX_FLOP = "a run takes 6 FLOP for each parameter and token; attention is left out"


def solve(body: Mapping[str, Any], catalogue: Catalogue) -> Solution:
    """The value of the open field.

    Args:
        body: the JSON object of the request
        catalogue: the facts

    Returns:
        the value and its proof; nothing fitting is an answer, too

    Raises:
        Refused: the request is wrong, or no value is legal
    """
    return outcome(solving_body(body, catalogue))


def solving_body(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Solution]:
    """The same, attempt by attempt.

    Args:
        body: the JSON object of the request
        catalogue: the facts

    Yields:
        nothing, between one estimate and the next, so that others may be answered meanwhile

    Returns:
        the value and its proof

    Raises:
        Refused: the request is wrong, or no value is legal
    """
    wanted = read_wanted(body)
    special = SPECIAL.get(wanted.wish.unknown)
    try:
        return (yield from (special or _solving_field)(wanted, catalogue))
    except Refused as refused:
        raise Refused(*map(in_question, refused.problems)) from None


def _solving_field(wanted: Wanted, catalogue: Catalogue) -> Steps[Solution]:
    name = wanted.wish.unknown
    asked = read_asked(wanted, catalogue)
    found = yield from solving(asked.question, name, wanted.limits, wanted.wish.multiple_of)
    value = None if found.found is None else found.found.value
    return _solution(wanted, asked, found, value, catalogue)


def _solving_batch(wanted: Wanted, catalogue: Catalogue) -> Steps[Solution]:
    asked = read_asked(wanted, catalogue)
    found = yield from planning_batch(asked.question, wanted.limits)
    chosen = None
    if found.question is not None and found.plan is not None:
        chosen = Attempt(value=found.plan.micro_batch, question=found.question, refused=None, why_not=None)
    border = Solved(found=chosen, beyond=found.border.beyond, tried=found.tried)
    return _solution(wanted, asked, border, found.plan, catalogue, found.warnings)


def _solving_size(wanted: Wanted, catalogue: Catalogue) -> Steps[Solution]:
    """The best size for so many FLOP, or for as many as the question's own model does within time and money."""
    limits, tokens = wanted.limits, "recipe.training_tokens"
    _refuse_two_budgets(wanted)
    cap = limits.inference_per_token_flop
    if limits.total_flop is not None:
        size = optimal_size(limits.total_flop, cap)
        return _of_size(size, optimal_size(limits.total_flop), _nothing(wanted, catalogue))
    asked = read_asked(wanted, catalogue)
    run = replace(limits, inference_per_token_flop=None)
    border = yield from solving(asked.question, tokens, run)
    solution = _solution(wanted, asked, border, None, catalogue)
    if border.found is None:
        return solution
    flop = answer(replace(asked, question=border.found.question), catalogue, advise=False).flop.total_flop or 0
    told = (
        f"the budget buys {float(flop):.3g} FLOP at the speed of the question's own model and layout; another size may "
        "be faster or slower",
        SIX_FLOP,
    )
    bare = replace(solution, next=None, changes={}, assumptions=(*solution.assumptions, *told))
    return _of_size(optimal_size(float(flop), cap), optimal_size(float(flop)), bare)


SPECIAL: Mapping[str, Callable[[Wanted, Catalogue], Steps[Solution]]] = {
    "recipe.global_batch": _solving_batch,
    "model": _solving_size,
    "cluster": choosing_cluster,
}
"""What is not one number that is searched for."""


def _solution(
    wanted: Wanted, asked: Asked, border: Solved, value: Any, catalogue: Catalogue, warnings: tuple[str, ...] = ()
) -> Solution:
    """A border with its numbers."""
    found, beyond = border.found, border.beyond
    of_value = None if found is None else _answered(asked, found.question, catalogue)
    of_next = _answered(asked, beyond.question, catalogue) if beyond is not None and beyond.is_legal else None
    said = of_value or of_next
    unknown = UNKNOWNS.get(wanted.wish.unknown)
    why_not = None if beyond is None else beyond.why_not
    return Solution(
        unknown=wanted.wish.unknown,
        value=value,
        next=None if beyond is None or why_not is None else NextValue(value=beyond.value, why_not=why_not),
        changes={} if found is None else changed_fields(asked.question, found.question),
        evidence=Evidence(value=_numbers(of_value), next=_numbers(of_next), tried=border.tried),
        assumptions=(*(unknown.assumptions if unknown else ()), *(said.assumptions if said else asked.assumptions)),
        warnings=(*warnings, *_told_gap(border), *(said.warnings if said else asked.warnings)),
        versions=versions_of(catalogue),
    )


def _told_gap(border: Solved) -> tuple[str, ...]:
    gap = border.gap
    if gap is None or gap.why_not is None:
        return ()
    return (
        f"not every smaller value will do ({gap.value}: {gap.why_not.message}); the allocator gives back what it "
        "caches only where memory ends",
    )


def changed_fields(before: Question, after: Question) -> dict[str, Any]:
    """The fields that a question does not have as another one has them.

    Args:
        before: one question
        after: the other

    Returns:
        values of the other by dotted path
    """
    nouns = [(part, getattr(before, part), getattr(after, part)) for part in CHANGING]
    return {
        f"{part}.{field.name}": to_wire(getattr(new, field.name))
        for part, old, new in nouns
        for field in fields(new)
        if getattr(old, field.name) != getattr(new, field.name)
    }


def _answered(asked: Asked, question: Question, catalogue: Catalogue) -> Answer:
    return answer(replace(asked, question=question), catalogue, advise=False)


def _numbers(found: Answer | None) -> KeyNumbers | None:
    return None if found is None else key_numbers(found)


def _nothing(wanted: Wanted, catalogue: Catalogue) -> Solution:
    """A solution that no question stands behind."""
    return Solution(
        unknown=wanted.wish.unknown,
        value=None,
        next=None,
        changes={},
        evidence=Evidence(value=None, next=None, tried=0),
        assumptions=(SIX_FLOP,),
        warnings=(),
        versions=versions_of(catalogue),
    )


def _of_size(size: Any, free: Any, solution: Solution) -> Solution:
    """A size in place of a value; where the cost of use caps it, the free size is the next one."""
    beyond = None
    if size.is_capped:
        message = (
            f"{free.parameters:.4g} parameters take {free.inference_per_token_flop:.4g} FLOP a token in use, and "
            f"{size.inference_per_token_flop:.4g} are allowed"
        )
        beyond = NextValue(value=free.parameters, why_not=WhyNot(code="inference_limit_exceeded", message=message))
    cautions = tuple(f"{fit.fit}: {fit.caution}" for fit in size.fits if fit.caution)
    return replace(solution, value=size, next=beyond, warnings=(*solution.warnings, *cautions))


def _refuse_two_budgets(wanted: Wanted) -> None:
    limits, problems = wanted.limits, []
    told = [f"limits.{name}" for name in limits_given(limits)]
    if limits.total_flop is not None:
        told += ["question"] if wanted.question is not None else []
        message = "limits.total_flop is the whole budget, and what stands beside it would change nothing"
        problems = [
            Problem(field=name, code="told_twice", message=message, fix="leave one of them out") for name in told
        ]
    elif not told:
        message = "no budget is given, and a larger model is always better"
        fix = f"give limits.total_flop, or a question and one of {', '.join(f'limits.{name}' for name in RUN_LIMITS)}"
        problems = [Problem(field="limits", code="required", message=message, fix=fix)]
    if problems:
        raise Refused(*problems)
