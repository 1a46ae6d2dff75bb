"""Search for plans: the layouts that keep to the limits, ranked, with the reasons for the others."""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from math import exp
from time import monotonic
from typing import Any

from service.answers.plans import Drawback, PlanAnswer, PlanCounts, PlanRow
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator import estimate
from service.estimator.answer import Interval
from service.estimator.constants import calibration_id
from service.estimator.question import Layout, Question
from service.estimator.run.totals import PLAN_RESIDUALS, run_interval
from service.features.compare.compare import row_problem
from service.features.estimates.answers import versions_of
from service.features.plans.schemas import PlanLimits, PlanSearch, read_plan
from service.planner.feasibility import SolveLimits
from service.planner.plans import Plan, Plans, limit_missed, plans_of, question_of, slower_because
from service.validation.reading import to_bytes

BETWEEN_PROGRESS_SECONDS = 0.25
"""Time between two progress reports. Source: a choice; often enough for a bar that moves."""


def search(
    body: Mapping[str, Any], catalogue: Catalogue, report: Callable[[float], None] = lambda _: None
) -> Iterator[PlanCounts | PlanAnswer]:
    """Search the best layouts for a job, with progress; `report` gets the share that is done before each count."""
    parsed, result = read_plan(body, catalogue), Plans()
    machines, request = [one.question for one in parsed.machines], parsed.request
    for result in plans_of(machines, parsed.constraints, request.objective, bounds_of(request.limits), request.top):
        report(result.done_fraction)
        yield _counts(result)
    yield _answer(parsed, result, catalogue)


def plans_json(body: Mapping[str, Any], catalogue: Catalogue) -> Generator[PlanCounts, None, bytes]:
    """Search as JSON, with progress at intervals."""
    reported = None
    for item in search(body, catalogue):
        if isinstance(item, PlanAnswer):
            return to_bytes(item)
        if reported is None or monotonic() - reported >= BETWEEN_PROGRESS_SECONDS:
            reported = monotonic()
            yield item
    raise AssertionError("a search ends with its answer")


def bounds_of(limits: PlanLimits) -> SolveLimits:
    """Bounds of the search from the limits of a request."""
    return SolveLimits(days=limits.days, cost_usd=limits.cost_usd, headroom_fraction=limits.headroom_fraction)


def _answer(parsed: PlanSearch, result: Plans, catalogue: Catalogue) -> PlanAnswer:
    best = result.best[0] if result.best else None
    first, limits = parsed.machines[0], bounds_of(parsed.request.limits)
    best_answer = best.answer if best else None
    return PlanAnswer(
        objective=parsed.request.objective,
        plans=tuple(_row(plan, rank, best) for rank, plan in enumerate(result.best, start=1)),
        pareto=tuple(_row(plan, rank, best) for rank, plan in enumerate(result.front, start=1)),
        nearest=_nearest(first.question, result),
        counts=_counts(result),
        why_not=None if parsed.why_not is None else _why_not(parsed.why_not, best, limits),
        assumptions=(*first.assumptions, *(best_answer.assumptions if best_answer else ()), *_basis(first.question)),
        warnings=(*first.warnings, *(best_answer.warnings if best_answer else ()), *unmet(result)),
        versions=versions_of(catalogue, [calibration_id(one.question.gpu) for one in parsed.machines]),
    )


def _basis(question: Question) -> Iterator[str]:
    """What the intervals of planned runs rest on."""
    if question.recipe.training_tokens is not None:
        low, high = (exp(end) for end in PLAN_RESIDUALS)
        yield (
            "intervals of planned days, GPU-hours, cost and energy are analytic: 80 % of published runs took "
            f"{low:.2f} to {high:.2f} times what their best plan takes"
        )


def unmet(result: Plans) -> list[str]:
    """Warning that no plan was found, with the reason; empty where one was."""
    if result.best:
        return []
    if result.fitting:
        return ["layouts fit, but none of the fastest of them keeps to the limits"]
    return ["no layout fits: nearest is the one that takes least memory"]


def _nearest(question: Question, result: Plans) -> PlanRow | None:
    if result.fitting or result.smallest is None:
        return None
    smallest_question = question_of(
        replace(question, cluster=replace(question.cluster, gpus=_gpus(result))), result.smallest
    )
    return _row(Plan(question=smallest_question, answer=estimate(smallest_question)), 1, None)


def _gpus(result: Plans) -> int:
    layout = result.smallest.layout if result.smallest else Layout()
    return (layout.data or 1) * layout.tensor * layout.context * layout.pipeline


def _counts(result: Plans) -> PlanCounts:
    refused = dict(sorted(result.refused.items(), key=lambda item: (-item[1], item[0])))
    return PlanCounts(generated=result.generated, refused=refused, scored=result.scored, fitting=result.fitting)


def _row(plan: Plan, rank: int, best: Plan | None, *, is_given: bool = False) -> PlanRow:
    answer = plan.answer
    totals, step, memory = answer.totals, answer.step, answer.memory

    def taken(name: str) -> Interval | None:
        """What the run takes of one thing: a plan's as wide as published runs beside their best plans ask for."""
        predicted: Interval | None = getattr(totals, name, None)
        return predicted if is_given or predicted is None else run_interval(predicted, PLAN_RESIDUALS)

    return PlanRow(
        rank=rank,
        recipe=answer.resolved.recipe,
        layout=answer.resolved.layout,
        cluster=answer.resolved.cluster,
        verdict=answer.verdict,
        step_seconds=step.step_seconds,
        mfu_fraction=step.mfu_fraction,
        device_peak_bytes=memory.device_peak_bytes,
        headroom_bytes=memory.headroom_bytes,
        days=taken("days"),
        gpu_hours=taken("gpu_hours"),
        cost_usd=taken("cost_usd"),
        energy_kwh=taken("energy_kwh"),
        reason=None if best is None else slower_because(plan, best),
    )


def _why_not(question: Question, best: Plan | None, bounds: SolveLimits) -> Drawback:
    try:
        plan = Plan(question=question, answer=estimate(question))
    except Refused as refused:
        problems = tuple(row_problem(problem) for problem in refused.problems)
        return Drawback(reason=problems[0].message, errors=problems, plan=None)
    slower = None if best is None else slower_because(plan, best)
    if plan.answer.verdict != "fits":
        missing = -plan.headroom_bytes / 2**30
        reason = f"its verdict is {plan.answer.verdict}: the fullest GPU has {-missing:.1f} GiB to spare"
        reason = reason if missing < 0 else f"it does not fit: {missing:.1f} GiB are missing on the fullest GPU"
    else:
        reason = limit_missed(plan, bounds) or slower or "it is as fast as the best plan, or faster"
    return Drawback(reason=reason, errors=(), plan=_row(plan, 1, best, is_given=True))
