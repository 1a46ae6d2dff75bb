"""Solve for one open field: the value that holds, the next one that fails, and why."""

from collections.abc import Callable, Mapping
from typing import Any

from service.answers.plans import Solution
from service.catalogue import Catalogue
from service.errors import Refused
from service.features.solve.clusters import solve_cluster
from service.features.solve.schemas import SolveRequest, in_question, read_open_question, read_request
from service.features.solve.sizes import solve_size
from service.features.solve.thresholds import solution_of
from service.planner.solve import plan_batch, solve_steps
from service.planner.steps import Steps, outcome
from service.validation.serialization import to_bytes


def solve(body: Mapping[str, Any], catalogue: Catalogue) -> Solution:
    """The value of the open field."""
    return outcome(solution_steps(body, catalogue))


def solution_steps(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Solution]:
    """Solve, one attempt a step."""
    request = read_request(body)
    special = SPECIAL.get(request.unknown)
    try:
        return (yield from (special or _solve_field)(request, catalogue))
    except Refused as refused:
        raise Refused(*map(in_question, refused.problems)) from None


def solution_json(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[bytes]:
    """Solve and serialize the solution."""
    return to_bytes((yield from solution_steps(body, catalogue)))


def _solve_field(request: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    name = request.unknown
    parsed = read_open_question(request, catalogue)
    threshold = yield from solve_steps(parsed.question, name, request.limits, request.multiple_of)
    value = None if threshold.found is None else threshold.found.value
    return solution_of(request, parsed, threshold, value, catalogue)


def _solve_batch(request: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    parsed = read_open_question(request, catalogue)
    batch_plan = yield from plan_batch(parsed.question, request.limits)
    return solution_of(request, parsed, batch_plan.threshold, batch_plan.plan, catalogue, batch_plan.warnings)


SPECIAL: Mapping[str, Callable[[SolveRequest, Catalogue], Steps[Solution]]] = {
    "recipe.global_batch": _solve_batch,
    "model": solve_size,
    "cluster": solve_cluster,
}
"""Solvers of fields that are not one number."""
