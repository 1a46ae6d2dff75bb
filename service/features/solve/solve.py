"""Solve for one open field: the value that holds, the next one that fails, and why."""

from collections.abc import Callable, Mapping
from typing import Any

from service.answers.solutions import Solution
from service.catalogue import Catalogue
from service.errors import Refused
from service.features.solve.clusters import choosing_cluster
from service.features.solve.requests import SolveRequest, in_question, read_asked, read_request
from service.features.solve.sizes import choosing_size
from service.features.solve.thresholds import solution_of
from service.planner.batch import planning_batch
from service.planner.solve import Solved, solve_steps
from service.planner.steps import Steps, outcome
from service.validation.serialization import to_bytes


def solve(body: Mapping[str, Any], catalogue: Catalogue) -> Solution:
    """The value of the open field."""
    return outcome(solving_body(body, catalogue))


def solving_body(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Solution]:
    """The same, attempt by attempt."""
    wanted = read_request(body)
    special = SPECIAL.get(wanted.wish.unknown)
    try:
        return (yield from (special or _solving_field)(wanted, catalogue))
    except Refused as refused:
        raise Refused(*map(in_question, refused.problems)) from None


def solution_sent(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[bytes]:
    """The value of the open field, as it is sent."""
    return to_bytes((yield from solving_body(body, catalogue)))


def _solving_field(wanted: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    name = wanted.wish.unknown
    asked = read_asked(wanted, catalogue)
    found = yield from solve_steps(asked.question, name, wanted.limits, wanted.wish.multiple_of)
    value = None if found.found is None else found.found.value
    return solution_of(wanted, asked, found, value, catalogue)


def _solving_batch(wanted: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    asked = read_asked(wanted, catalogue)
    found = yield from planning_batch(asked.question, wanted.limits)
    border = Solved(found=found.chosen, beyond=found.beyond, tried=found.tried)
    return solution_of(wanted, asked, border, found.plan, catalogue, found.warnings)


SPECIAL: Mapping[str, Callable[[SolveRequest, Catalogue], Steps[Solution]]] = {
    "recipe.global_batch": _solving_batch,
    "model": choosing_size,
    "cluster": choosing_cluster,
}
"""What is not one number that is searched for."""
