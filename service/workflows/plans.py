"""Which layouts are best for this job? The plans that keep to the limits, ranked, with what was left out and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator import estimate
from service.estimator.interval import Interval
from service.estimator.memory_parts import Verdict
from service.estimator.noun import SPOKEN
from service.estimator.question import Cluster, Layout, Question, Recipe
from service.planner.best import question_of
from service.planner.plans import Bounds, Objective, Plan, Plans, limit_missed, plans_of, slower_because
from service.workflows.comparison_row import RowProblem, mended
from service.workflows.estimates import Versions, versions_of
from service.workflows.plan_body import PlanAsked, read_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One plan; its recipe, layout and cluster are a question that an estimate answers with the same numbers."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    rank: int
    """From 1; that of the front is by time."""
    recipe: Recipe
    """The recipe, micro-batch and recompute chosen."""
    layout: Layout
    """The layout, every field filled."""
    cluster: Cluster
    """What it runs on."""
    verdict: Verdict
    """fits, but for the nearest of layouts of which none does."""
    step_seconds: Interval
    """Wall time of one optimizer step."""
    mfu_fraction: Interval
    """Model FLOP over what the GPUs could do."""
    device_peak_bytes: Interval
    """Memory of the fullest GPU."""
    headroom_bytes: float
    """Memory left on it; negative where bytes are missing."""
    days: Interval | None
    """Wall time of the run; null without training_tokens."""
    gpu_hours: Interval | None
    """The run's; null without training_tokens."""
    cost_usd: Interval | None
    """The run's; null without training_tokens or a price."""
    energy_kwh: Interval | None
    """The run's; null without training_tokens."""
    reason: str | None
    """Why its step takes longer than that of the first plan; null where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts:
    """How many layouts were looked at, and what became of them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    generated: int
    """Layouts of the space; those that are refused and those that are scored."""
    refused: dict[str, int]
    """Those that break a rule, by the first one that they break."""
    scored: int
    """Legal ones, whose memory and time were worked out."""
    fitting: int
    """Those of them that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawback:
    """What keeps a layout from being the best plan."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    reason: str
    """In one sentence."""
    errors: tuple[RowProblem, ...]
    """Rules that it breaks; empty where it is legal."""
    plan: PlanRow | None
    """What it takes; null where it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """The best layouts for a job."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    objective: Objective
    """What the plans have least of."""
    plans: tuple[PlanRow, ...]
    """The best that keep to all limits, best first."""
    pareto: tuple[PlanRow, ...]
    """Plans of which none is faster, cheaper and leaves more memory at once, fastest first."""
    nearest: PlanRow | None
    """The layout that takes least memory, where none fits; else null."""
    counts: PlanCounts
    """What was looked at, on all clusters."""
    why_not: Drawback | None
    """What keeps the layout that was asked after from being the best; null where none was."""
    assumptions: tuple[str, ...]
    """What was assumed."""
    warnings: tuple[str, ...]
    """What to look at."""
    versions: Versions
    """What the answer rests on."""


def planning(body: Mapping[str, Any], catalogue: Catalogue) -> Iterator[PlanCounts | PlanAnswer]:
    """The best layouts for a job, found piece by piece.

    Args:
        body: the JSON object of the request
        catalogue: the facts

    Yields:
        how far the search is, after every piece; last of all the answer

    Raises:
        Refused: the request is wrong, or no layout at all could be answered
    """
    asked = read_plan(body, catalogue)
    machines, found = [one.question for one in asked.machines], Plans()
    for found in plans_of(machines, asked.freedom, asked.manner.objective, _bounds(asked), asked.manner.top):
        yield _counts(found)
    yield _answer(asked, found, catalogue)


def _bounds(asked: PlanAsked) -> Bounds:
    limits = asked.manner.limits
    return Bounds(days=limits.days, cost_usd=limits.cost_usd, headroom_fraction=limits.headroom_fraction)


def _answer(asked: PlanAsked, found: Plans, catalogue: Catalogue) -> PlanAnswer:
    best = found.best[0] if found.best else None
    first = asked.machines[0]
    said = best.answer if best else None
    return PlanAnswer(
        objective=asked.manner.objective,
        plans=tuple(_row(plan, rank, best) for rank, plan in enumerate(found.best, start=1)),
        pareto=tuple(_row(plan, rank, best) for rank, plan in enumerate(found.front, start=1)),
        nearest=_nearest(first.question, found),
        counts=_counts(found),
        why_not=None if asked.why_not is None else _why_not(asked.why_not, best, _bounds(asked)),
        assumptions=(*first.assumptions, *(said.assumptions if said else ())),
        warnings=(*first.warnings, *(said.warnings if said else ()), *_unmet(found)),
        versions=versions_of(catalogue),
    )


def _unmet(found: Plans) -> list[str]:
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
