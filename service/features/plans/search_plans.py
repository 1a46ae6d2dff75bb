"""Search for plans: the layouts that keep to the limits, ranked, with the reasons for the others."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from service.answers.plans import Drawback, PlanAnswer, PlanCounts, PlanRow
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator import estimate
from service.estimator.constants import calibration_id
from service.estimator.question import Layout, Question
from service.features.compare.compare import mended
from service.features.estimates.answers import versions_of
from service.features.plans.requests import PlanLimits, PlanRequest, read_plan
from service.planner.plans import Bounds, Plan, Plans, limit_missed, plans_of, slower_because
from service.planner.search import question_of
from service.validation.serialization import to_bytes

BETWEEN_PROGRESS_SECONDS = 0.25
"""Time between two words of progress. Source: a choice; often enough for a bar that moves."""


def planning(body: Mapping[str, Any], catalogue: Catalogue) -> Iterator[PlanCounts | PlanAnswer]:
    """The best layouts for a job, found piece by piece."""
    asked = read_plan(body, catalogue)
    machines, found = [one.question for one in asked.machines], Plans()
    for found in plans_of(
        machines, asked.freedom, asked.manner.objective, bounds_of(asked.manner.limits), asked.manner.top
    ):
        yield _counts(found)
    yield _answer(asked, found, catalogue)


def plans_on_the_wire(body: Mapping[str, Any], catalogue: Catalogue) -> Generator[PlanCounts, None, bytes]:
    """The same as JSON, with progress now and then."""
    told = None
    for found in planning(body, catalogue):
        if isinstance(found, PlanAnswer):
            return to_bytes(found)
        if told is None or monotonic() - told >= BETWEEN_PROGRESS_SECONDS:
            told = monotonic()
            yield found
    raise AssertionError("a search ends with its answer")


def bounds_of(limits: PlanLimits) -> Bounds:
    """What plans are held to."""
    return Bounds(days=limits.days, cost_usd=limits.cost_usd, headroom_fraction=limits.headroom_fraction)


def _answer(asked: PlanRequest, found: Plans, catalogue: Catalogue) -> PlanAnswer:
    best = found.best[0] if found.best else None
    first = asked.machines[0]
    said = best.answer if best else None
    return PlanAnswer(
        objective=asked.manner.objective,
        plans=tuple(_row(plan, rank, best) for rank, plan in enumerate(found.best, start=1)),
        pareto=tuple(_row(plan, rank, best) for rank, plan in enumerate(found.front, start=1)),
        nearest=_nearest(first.question, found),
        counts=_counts(found),
        why_not=None if asked.why_not is None else _why_not(asked.why_not, best, bounds_of(asked.manner.limits)),
        assumptions=(*first.assumptions, *(said.assumptions if said else ())),
        warnings=(*first.warnings, *(said.warnings if said else ()), *unmet(found)),
        versions=versions_of(catalogue, [calibration_id(one.question.gpu) for one in asked.machines]),
    )


def unmet(found: Plans) -> list[str]:
    """Why there is no plan."""
    if found.best:
        return []
    if found.fitting:
        return ["layouts fit, but none of the fastest of them keeps to the limits"]
    return ["no layout fits: nearest is the one that takes least memory"]


def _nearest(question: Question, found: Plans) -> PlanRow | None:
    if found.fitting or found.smallest is None:
        return None
    asked = question_of(replace(question, cluster=replace(question.cluster, gpus=_gpus(found))), found.smallest)
    return _row(Plan(question=asked, answer=estimate(asked)), 1, None)


def _gpus(found: Plans) -> int:
    """GPUs of the smallest layout."""
    layout = found.smallest.layout if found.smallest else Layout()
    return (layout.data or 1) * layout.tensor * layout.context * layout.pipeline


def _counts(found: Plans) -> PlanCounts:
    refused = dict(sorted(found.refused.items(), key=lambda item: (-item[1], item[0])))
    return PlanCounts(generated=found.generated, refused=refused, scored=found.scored, fitting=found.fitting)


def _row(plan: Plan, rank: int, best: Plan | None) -> PlanRow:
    answer = plan.answer
    totals, step, memory = answer.totals, answer.step, answer.memory
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
        days=None if totals is None else totals.days,
        gpu_hours=None if totals is None else totals.gpu_hours,
        cost_usd=None if totals is None else totals.cost_usd,
        energy_kwh=None if totals is None else totals.energy_kwh,
        reason=None if best is None else slower_because(plan, best),
    )


def _why_not(asked: Question, best: Plan | None, bounds: Bounds) -> Drawback:
    try:
        plan = Plan(question=asked, answer=estimate(asked))
    except Refused as refused:
        problems = tuple(mended(problem) for problem in refused.problems)
        return Drawback(reason=problems[0].message, errors=problems, plan=None)
    slower = None if best is None else slower_because(plan, best)
    if plan.answer.verdict != "fits":
        missing = -plan.headroom_bytes / 2**30
        reason = f"its verdict is {plan.answer.verdict}: the fullest GPU has {-missing:.1f} GiB to spare"
        reason = reason if missing < 0 else f"it does not fit: {missing:.1f} GiB are missing on the fullest GPU"
    else:
        reason = limit_missed(plan, bounds) or slower or "it is as fast as the best plan, or faster"
    return Drawback(reason=reason, errors=(), plan=_row(plan, 1, best))
