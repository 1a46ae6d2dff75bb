"""Plans under limits: the best layouts of each machine, answered in full and ranked."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from service.answers.plans import Objective
from service.estimator.answer import Estimate
from service.estimator.estimate import estimate
from service.estimator.question import Question
from service.planner.search import Candidate, SearchResult, question_of, search
from service.planner.space import Constraints
from service.units import BYTES, in_units, readable

MOST_FRONT = 24
"""Points of the front of one machine that are answered in full. Source: a choice; more than a chart shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a plan has to keep to."""

    days: float | None = None
    cost_usd: float | None = None
    headroom_fraction: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One layout that fits and keeps to the limits, answered in full."""

    question: Question
    """It, as an estimate would be asked."""
    answer: Estimate
    """What it takes."""

    @property
    def seconds(self) -> float:
        """Seconds of one step [s]."""
        return self.answer.step.step_seconds.value

    @property
    def headroom_bytes(self) -> float:
        """Memory left on the fullest GPU [byte]."""
        return self.answer.memory.headroom_bytes


@dataclass(slots=True, kw_only=True)
class Plans:
    """What was found on all machines."""

    best: tuple[Plan, ...] = ()
    """The best that keep to all limits, best first."""
    front: tuple[Plan, ...] = ()
    """Those of which none is faster, cheaper and smaller at once, fastest first."""
    generated: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    scored: int = 0
    fitting: int = 0
    smallest: Candidate | None = None
    """The layout that takes least memory of all, where none fits."""


def plans_of(
    machines: Sequence[Question],
    constraints: Constraints,
    objective: Objective,
    bounds: Bounds,
    top: int,
) -> Iterator[Plans]:
    """The best plans of a question on some machines.

    Each machine's layouts are ranked by their step, which everything else of a run on it goes by; the best of each are
    answered in full, so no plan says anything that an estimate would not.
    """
    plans = Plans()
    every: list[Plan] = []
    front: list[Plan] = []
    for question in machines:
        result = SearchResult()
        for result in search(question, constraints, top, bounds.headroom_fraction):
            yield _with_counts(plans, result)
        plans = _with_counts(plans, result)
        answered: dict[Candidate, Plan] = {}
        for candidate in (*result.best, *result.front[:: max(1, -(-len(result.front) // MOST_FRONT))]):
            if candidate not in answered:
                asked = question_of(question, candidate)
                answered[candidate] = Plan(question=asked, answer=estimate(asked))
        every.extend(answered[candidate] for candidate in result.best)
        front.extend(answered.values())
    headroom = [plan for plan in every if _keeps_to(plan, bounds)]
    plans.best = tuple(sorted(headroom, key=lambda plan: _rank(plan, objective))[:top])
    plans.front = _front([plan for plan in front if _keeps_to(plan, bounds)])
    yield plans


def _with_counts(plans: Plans, result: SearchResult) -> Plans:
    """What is told of earlier machines with what is found on one more."""
    sizes = [one for one in (plans.smallest, result.smallest) if one is not None]
    return Plans(
        generated=plans.generated + result.generated,
        refused=plans.refused + result.refused,
        scored=plans.scored + result.scored,
        fitting=plans.fitting + result.fitting,
        smallest=min(sizes, key=lambda one: one.reserved_bytes, default=None),
    )


def _keeps_to(plan: Plan, bounds: Bounds) -> bool:
    in_time = bounds.days is None or _duration(plan) <= bounds.days
    return in_time and (bounds.cost_usd is None or _spent(plan) <= bounds.cost_usd)


def limit_missed(plan: Plan, bounds: Bounds) -> str | None:
    """Which limit a plan that fits does not keep to."""
    kept_bytes = bounds.headroom_fraction * plan.answer.memory.usable_bytes
    if plan.headroom_bytes < kept_bytes:
        left, headroom = in_units(plan.headroom_bytes, BYTES), in_units(kept_bytes, BYTES)
        return f"it leaves {left} free on the fullest GPU, and limits.headroom_fraction asks for {headroom}"
    if bounds.days is not None and _duration(plan) > bounds.days:
        return f"it takes {readable(_duration(plan))} days, and limits.days allows {readable(bounds.days)}"
    if bounds.cost_usd is not None and _spent(plan) > bounds.cost_usd:
        return f"it costs {readable(_spent(plan))} USD, and limits.cost_usd allows {readable(bounds.cost_usd)}"
    return None


def _duration(plan: Plan) -> float:
    """Days of the run, else seconds of a step."""
    return plan.seconds if plan.answer.totals is None else plan.answer.totals.days.value


def _spent(plan: Plan) -> float:
    """Dollars of the run, else seconds of a step on all its GPUs, which dollars go by."""
    totals = plan.answer.totals
    known = None if totals is None else totals.cost_usd
    return plan.seconds * plan.question.cluster.gpus if known is None else known.value


def _rank(plan: Plan, objective: Objective) -> tuple[float, ...]:
    totals, gpus = plan.answer.totals, plan.question.cluster.gpus
    energy = plan.seconds * gpus if totals is None else totals.energy_kwh.value
    first = {"time": _duration(plan), "cost": _spent(plan), "gpus": float(gpus), "energy": energy}[objective]
    return (first, _duration(plan), _spent(plan), -plan.headroom_bytes)


def _front(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Plans of which no other is as fast, as cheap and as small; equal ones once."""
    results: list[Plan] = []
    for plan in sorted(plans, key=lambda one: (_duration(one), _spent(one), -one.headroom_bytes)):
        if not any(_spent(one) <= _spent(plan) and one.headroom_bytes >= plan.headroom_bytes for one in results):
            results.append(plan)
    return tuple(results)


def slower_because(plan: Plan, best: Plan) -> str | None:
    """Why a plan's step takes longer than that of the best one."""
    later = plan.seconds - best.seconds
    if later <= 0:
        return None
    before = {part.kind: part.seconds for part in best.answer.step.parts}
    grown = {part.kind: part.seconds - before.get(part.kind, 0.0) for part in plan.answer.step.parts}
    kind = max(grown, key=lambda name: grown[name])
    return (
        f"a step takes {later:.3g} s ({later / best.seconds:.1%}) longer, most of it in {kind} ({grown[kind]:+.3g} s)"
    )
