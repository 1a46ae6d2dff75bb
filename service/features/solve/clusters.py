"""The cheapest listed cluster and price within the limits."""

from collections.abc import Mapping
from typing import Any

from service.answers.plans import Evidence, KeyNumbers, NextValue, Solution, WhyNot
from service.answers.rows import ChosenCluster, ComparedRow
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator.answer import Interval
from service.features.compare.compare import ANSWERED, compare_steps
from service.features.compare.schemas import CLUSTERS, PRICES, QUESTION
from service.features.solve.schemas import SolveRequest
from service.features.solve.thresholds import NUMBERS
from service.planner.feasibility import RUN_LIMITS, SIZE_LIMITS, SolveLimits, limits_missed, memory_missing
from service.planner.steps import Steps
from service.validation.reading import field_names


def solve_cluster(request: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    """The cheapest of the listed clusters and prices."""
    _refuse_idle(request.limits)
    lists = {CLUSTERS: request.clusters, PRICES: request.prices}
    body = {QUESTION: request.question, **lists, "sort_by": "cost_usd", "columns": [*NUMBERS]}
    compared = (yield from compare_steps(body, catalogue)).answer
    priced = [row for row in compared.rows if row.status == ANSWERED and row.numbers["cost_usd"] is not None]
    if not priced:
        raise Refused(_no_cost(compared.rows))
    by_cost = sorted(priced, key=lambda row: row.numbers["cost_usd"]["value"])
    checked = [(row, _why_not(row, request.limits)) for row in by_cost]
    place = next((place for place, (_, why_not) in enumerate(checked) if why_not is None), None)
    best = None if place is None else checked[place][0]
    beyond = checked[_nearest(checked) if place is None else place - 1] if place != 0 else None
    return Solution(
        unknown=request.unknown,
        value=None if best is None else _chosen(best),
        next=None if beyond is None or beyond[1] is None else NextValue(value=_chosen(beyond[0]), why_not=beyond[1]),
        changes={},
        evidence=Evidence(
            value=None if best is None else _numbers(best),
            next=None if beyond is None else _numbers(beyond[0]),
            tried=len(compared.rows),
        ),
        assumptions=() if best is None else best.assumptions,
        warnings=_warnings(compared.rows, best),
        versions=compared.versions,
    )


def _why_not(row: ComparedRow, limits: SolveLimits) -> WhyNot | None:
    numbers = _numbers(row)
    if numbers.device_peak_bytes is None or numbers.usable_bytes is None or numbers.oom_probability_fraction is None:
        return None
    missing = memory_missing(numbers.device_peak_bytes, numbers.usable_bytes, numbers.oom_probability_fraction, limits)
    return missing or limits_missed({name: getattr(numbers, name) for name in RUN_LIMITS}, limits)


def _nearest(checked: list[tuple[ComparedRow, WhyNot | None]]) -> int:
    """Nearest row if none is within the limits: one that fits before one that does not, then the cheapest."""
    lacks = [0.0 if why_not is None else why_not.missing_bytes or 0.0 for _, why_not in checked]
    return lacks.index(min(lacks))


def _numbers(row: ComparedRow) -> KeyNumbers:
    values: dict[str, Any] = {
        name: Interval(**number) if isinstance(number, Mapping) else number for name, number in row.numbers.items()
    }
    return KeyNumbers(id=row.id, verdict=row.verdict, **values)


def _chosen(row: ComparedRow) -> ChosenCluster:
    return ChosenCluster(**{name: getattr(row, name) for name in field_names(ChosenCluster)})


def _warnings(rows: Any, found: ComparedRow | None) -> tuple[str, ...]:
    refused = sum(row.status != ANSWERED for row in rows)
    refusals = (f"{refused} of {len(rows)} rows are refused; POST /v1/compare says why",) if refused else ()
    return (*refusals, *(found.warnings if found is not None else ()))


def _refuse_idle(limits: SolveLimits) -> None:
    problems = [
        Problem(
            field=f"limits.{name}",
            code="limit_not_read",
            message=f"{name} is not what bounds a cluster, so it would be ignored",
            fix=f"leave it out; it takes {', '.join(('headroom_fraction', *RUN_LIMITS))}",
        )
        for name in SIZE_LIMITS
        if getattr(limits, name) is not None
    ]
    if problems:
        raise Refused(*problems)


def _no_cost(rows: Any) -> Problem:
    """Problem of rows without any cost: the first reason, or the missing input."""
    reasons = [row.reason for row in rows if row.reason]
    message = reasons[0] if len(reasons) == len(rows) and reasons else "no cost is known on any of the clusters"
    fix = "give question.recipe.training_tokens, and prices of the clusters' GPUs"
    return Problem(field=CLUSTERS, code="no_cost_known", message=message, fix=fix)
