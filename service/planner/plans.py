"""Search over every legal layout, and the best layouts of each machine answered in full and ranked."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import accumulate, groupby
from math import inf

import numpy as np

from service.answers.plans import Objective
from service.errors import Problem, Refused
from service.estimator.answer import Estimate
from service.estimator.complete import CompleteLayout
from service.estimator.degrees import ORDER_NUMBERS, Degrees
from service.estimator.estimate import estimate
from service.estimator.memory.memory import OFFLOADED_ACTIVATIONS
from service.estimator.question import Question, RankOrder, Recompute
from service.estimator.resolve import rules_of
from service.estimator.rule import LayoutRule
from service.estimator.time.step import MicroBatchSeconds, micro_batch_seconds
from service.estimator.workload import Workload
from service.planner.feasibility import SolveLimits
from service.planner.grid import (
    Block,
    Box,
    Grid,
    Mask,
    Numbers,
    StageColumn,
    apply_conditions,
    blocks_of,
    degrees_in,
    layout_at,
    legal_layouts,
    reordering_gains,
    reserved_on_peak,
    stage_columns,
    step_seconds_of,
    with_rank_order,
)
from service.planner.space import (
    Constraints,
    pipelines_of,
    plain_workload,
    search_space,
    variants_of,
)
from service.units import BYTES, in_units, readable


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """One layout that fits, as the search saw it."""

    step_seconds: float
    """Infinite where only its memory is known."""
    reserved_bytes: float
    """What the allocator holds on its fullest GPU."""
    place: tuple[int, ...]
    """Its place in the order of the search: block, choice of schedule, order of ranks, and place in the grid."""
    layout: CompleteLayout = field(compare=False)
    micro_batch: int = field(compare=False)
    recompute: str | Recompute = field(compare=False)


@dataclass(slots=True, kw_only=True)
class SearchCounts:
    """Counts of a search, and its smallest layout."""

    generated: int = 0
    """Layouts of the space, legal or not."""
    refused: Counter[str] = field(default_factory=Counter)
    """Layouts left out, by the first rule that they break."""
    scored: int = 0
    """Legal layouts, with their memory computed, and where that fits their step."""
    fitting: int = 0
    """Those of them that fit."""
    smallest: Candidate | None = None
    """The one that takes least memory, whether it fits or not."""
    done_fraction: float = 0.0
    """Share of the search that is done, by layouts of a variant and by machines."""

    def leave_out(self, refused: Counter[str]) -> None:
        """Count layouts that rules refuse before they are scored."""
        self.refused.update(refused)
        self.generated += refused.total()


@dataclass(slots=True, kw_only=True)
class SearchResult(SearchCounts):
    """Candidates found so far."""

    best: list[Candidate] = field(default_factory=list)
    """The fastest that fit, fastest first."""
    front: list[Candidate] = field(default_factory=list)
    """Those that fit of which none is both faster and smaller, fastest first."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a grid that is scored."""

    grid: Grid
    box: Box
    """Where in the whole grid it is."""
    legal: Mask
    degrees: Degrees
    columns: list[StageColumn]

    def inside(self, legal: Mask, workload: Workload, order: RankOrder | None = None) -> tuple["Part", Box]:
        """The smallest part that contains some layouts, in another order of ranks where one is given; and where it is.

        The order of ranks changes no load.
        """
        box = Box.around(legal)
        grid = self.grid.inside(box)
        grid = grid if order is None else with_rank_order(grid, order)
        degrees, _ = degrees_in(grid, workload)
        columns = [box.cut(column) for column in self.columns]
        return Part(grid, self.box.inside(box), box.cut(legal), degrees, columns), box


@dataclass(frozen=True, slots=True)
class Scored:
    """A grid that was scored under one schedule."""

    block: Block
    part: Part
    choices: CompleteLayout
    place: tuple[int, ...]
    """Its place in the order of the search."""
    reserved_bytes: Numbers
    """Bytes that the allocator reserves on the peak GPU of each layout."""

    def candidate(self, cell: int, step_seconds: float = inf) -> Candidate:
        """The layout in one cell of the grid."""
        part = self.part
        cells = tuple(int(one) for one in np.unravel_index(cell, part.grid.shape))
        own = {name: getattr(self.choices, name) for name in ("schedule", "context_method", "offload")}
        return Candidate(
            step_seconds=step_seconds,
            reserved_bytes=float(np.broadcast_to(self.reserved_bytes, part.grid.shape)[cells]),
            place=(*self.place, *(int(axis[one]) for axis, one in zip(part.box.places, cells, strict=True))),
            layout=replace(layout_at(part.grid, part.degrees, cells), **own),
            micro_batch=part.grid.micro_batches[cells[-1]],
            recompute=self.block.variant.recompute,
        )

    def legal_bytes(self) -> Numbers:
        """Reserved bytes of the legal layouts alone."""
        return np.broadcast_to(self.reserved_bytes, self.part.grid.shape)[self.part.legal]

    def fits(self) -> Mask:
        """Mask of the legal layouts that fit."""
        fits: Mask = self.part.legal & (self.reserved_bytes <= self.block.variant.most_reserved_bytes)
        return fits


def count(one: Scored, fitting: int, result: SearchResult) -> None:
    """Count the layouts of a grid, of which some fit, and keep the smallest."""
    reserved = one.legal_bytes()
    least = int(np.argmin(reserved))
    if result.smallest is None or reserved[least] < result.smallest.reserved_bytes:
        result.smallest = one.candidate(int(np.flatnonzero(one.part.legal)[least]))
    result.scored += len(reserved)
    result.fitting += fitting


def keep(one: Scored, step_seconds: Numbers, result: SearchResult, top: int) -> None:
    """Keep the best layouts of a grid whose legal ones all fit."""
    cells = np.flatnonzero(one.part.legal)
    step, reserved = np.broadcast_to(step_seconds, one.part.grid.shape).ravel()[cells], one.legal_bytes()

    def candidate(index: int) -> Candidate:
        return one.candidate(int(cells[index]), float(step[index]))

    result.best = sorted([*result.best, *map(candidate, _fastest(step, reserved, result.best, top))])[:top]
    added = map(candidate, _undominated(step, reserved, result.front))
    ordered, result.front = sorted([*result.front, *added]), []
    for known in ordered:
        if not result.front or known.reserved_bytes < result.front[-1].reserved_bytes:
            result.front.append(known)


def _fastest(step: Numbers, reserved: Numbers, best: list[Candidate], top: int) -> list[int]:
    """The fastest of some layouts that fit, as far as they may be among the best of all."""
    limit = best[-1].step_seconds if len(best) == top else inf
    if len(step) > top:
        limit = min(limit, float(np.partition(step, top - 1)[top - 1]))
    near = np.flatnonzero(step <= limit)
    order = np.lexsort((near, reserved[near], step[near]))
    return [int(index) for index in near[order[:top]]]


def _undominated(step: Numbers, reserved: Numbers, front: list[Candidate]) -> list[int]:
    """Those of some layouts that fit of which none, and none of the front, is both as fast and as small."""
    own = np.arange(len(step))
    for known in front:
        own = own[(step[own] < known.step_seconds) | (reserved[own] < known.reserved_bytes)]
    if not len(own):
        return []
    own = own[np.lexsort((own, reserved[own], step[own]))]
    least = np.minimum.accumulate(reserved[own])
    is_new = np.concatenate(([True], least[1:] < least[:-1]))
    return [int(index) for index in own[is_new]]


def question_of(question: Question, candidate: Candidate) -> Question:
    """The question of one candidate."""
    recipe = replace(
        question.recipe,
        micro_batch=candidate.micro_batch,
        recompute=candidate.recompute,  # type: ignore[arg-type]  # a name of the table
        global_batch=question.recipe.global_batch,
    )
    return replace(question, recipe=recipe, layout=candidate.layout)


MOST_LAYOUTS = 100_000_000
"""Layouts of one search, legal or not. Source: a choice; about a minute of one core."""


def search(
    question: Question, freedom: Constraints, top: int, headroom_fraction: float = 0.0
) -> Iterator[SearchResult]:
    """Work out every legal layout of a question and keep the best."""
    result = SearchResult()
    for number, block in enumerate(_blocks(question, freedom, result, headroom_fraction)):
        for _, choices in groupby(block.layouts, key=lambda one: one.context_method):
            alike = tuple(choices)
            part = _legal_part(block, alike, result)
            if part is None:
                continue
            # a micro-batch takes the same time under choices that differ in nothing else
            for _, own in groupby(alike, key=lambda one: one.offload in OFFLOADED_ACTIVATIONS):
                _search_part(block, part, tuple(own), number, result, top)
                yield result
    yield result


def _blocks(
    question: Question, constraints: Constraints, result: SearchResult, headroom_fraction: float
) -> Iterator[Block]:
    base = plain_workload(question)
    axes = search_space(base, constraints)
    pipelines, refused = pipelines_of(base, axes)
    result.leave_out(refused)
    variants, refused = variants_of(question, axes, headroom_fraction)
    result.leave_out(refused)
    for place, variant in enumerate(variants):
        blocks, refused = blocks_of(variant, axes, pipelines)
        layouts = [block.grid.cells * len(block.layouts) for block in blocks]
        if result.generated + sum(layouts) > MOST_LAYOUTS:
            message = f"the fields that are left open make more than {MOST_LAYOUTS:,} layouts"
            fix = "pin or restrict some of them: recipe.micro_batch, layout.shard_group, layout.offload"
            raise Refused(Problem(field="layout", code="space_is_small_enough", message=message, fix=fix))
        result.leave_out(refused)
        for before, block in zip(accumulate(layouts, initial=0), blocks, strict=False):
            result.done_fraction = (place + before / max(sum(layouts), 1)) / len(variants)
            yield block


def _rules(block: Block, choices: CompleteLayout) -> dict[str, LayoutRule]:
    return rules_of(replace(choices, stage_layers=(), pipeline=2 if block.mirrors else 1))


@np.errstate(all="ignore")  # illegal layouts are computed too, and dropped
def _legal_part(block: Block, choices: tuple[CompleteLayout, ...], result: SearchResult) -> Part | None:
    """The part of a grid with all layouts that are legal under choices with the same rules; others are counted."""
    workload, schedules = block.variant.workload, len(choices)
    degrees, whole = degrees_in(block.grid, workload)
    legal, refused = legal_layouts(block.grid, workload, _rules(block, choices[0]), degrees, whole, block.data)
    result.generated += block.grid.cells * schedules
    result.refused.update({name: count * schedules for name, count in refused.items()})
    if not legal.any():
        return None
    box = Box.around(legal)
    grid = block.grid.inside(box)
    degrees, _ = degrees_in(grid, workload)
    stages = tuple(block.stages[place] for place in box.places[1])
    return Part(grid, box, box.cut(legal), degrees, stage_columns(workload, degrees, stages, mirrors=block.mirrors))


@np.errstate(all="ignore")
def _search_part(
    block: Block, part: Part, choices: tuple[CompleteLayout, ...], number: int, result: SearchResult, top: int
) -> None:
    """Work out the memory of the legal layouts of a grid under some choices, and the step of those that fit."""
    workload = block.variant.workload
    scored = [
        Scored(
            block,
            part,
            layout,
            (number, block.layouts.index(layout), 0),
            reserved_on_peak(workload, part.degrees, part.columns, layout),
        )
        for layout in choices
    ]
    fits = [one.fits() for one in scored]
    for one, own in zip(scored, fits, strict=True):
        count(one, int(np.count_nonzero(own)), result)
    fitting = reduce(np.logical_or, fits)
    if not fitting.any():
        return
    inside, box = part.inside(fitting, workload)
    micro = _micro_batches(block, inside, choices[0])
    for one, own in zip(scored, fits, strict=True):
        if own.any():
            timed = replace(one, part=replace(inside, legal=box.cut(own)), reserved_bytes=box.cut(one.reserved_bytes))
            keep(timed, _step_seconds(timed, micro), result, top)
            for order in block.other_orders:
                _search_reordered(timed, order, result, top)


def _micro_batches(block: Block, part: Part, choices: CompleteLayout) -> list[MicroBatchSeconds]:
    """Seconds of one micro-batch on each group of stages."""
    workload, degrees = block.variant.workload, part.degrees
    each = block.ledger_inside(part.box, choices.context_method)
    return [micro_batch_seconds(workload, degrees, one.stage, one.load, choices, each) for one in part.columns]


def _step_seconds(one: Scored, micro: Sequence[MicroBatchSeconds]) -> Numbers:
    workload, part = one.block.variant.workload, one.part
    return step_seconds_of(workload, part.degrees, part.columns, micro, one.choices, one.reserved_bytes)


def _search_reordered(one: Scored, order: RankOrder, result: SearchResult, top: int) -> None:
    """Score again, in another order of ranks, which changes no memory, the layouts that fit and that may gain by it."""
    workload, part = one.block.variant.workload, one.part
    gains = reordering_gains(part.grid, workload, replace(part.degrees, rank_order=ORDER_NUMBERS[order]))
    fits = part.legal & gains
    if not fits.any():
        return
    part, box = part.inside(fits, workload, order)
    rules = _rules(one.block, one.choices)
    legal, refused = apply_conditions(
        part.legal, [(name, np.asarray(rule.holds(workload, part.degrees))) for name, rule in rules.items()]
    )
    result.generated += int(np.count_nonzero(fits))
    result.refused.update(refused)
    if legal.any():
        place = (*one.place[:2], 1 + ORDER_NUMBERS[order])
        part = replace(part, legal=legal)
        one = replace(one, part=part, place=place, reserved_bytes=box.cut(one.reserved_bytes))
        count(one, int(np.count_nonzero(legal)), result)
        keep(one, _step_seconds(one, _micro_batches(one.block, part, one.choices)), result, top)


MOST_FRONT = 24
"""Points of the front of one machine that are answered in full. Source: a choice; more than a chart shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One layout that fits and keeps to the limits, answered in full."""

    question: Question
    """It, as an estimate would be asked."""
    answer: Estimate

    @property
    def seconds(self) -> float:
        """Seconds of one step [s]."""
        return self.answer.step.step_seconds.value

    @property
    def headroom_bytes(self) -> float:
        """Memory left on the fullest GPU [byte]."""
        return self.answer.memory.headroom_bytes


@dataclass(slots=True, kw_only=True)
class Plans(SearchCounts):
    """The plans of all machines."""

    best: tuple[Plan, ...] = ()
    """The best that keep to all limits, best first."""
    front: tuple[Plan, ...] = ()
    """Those of which none is faster, cheaper and smaller at once, fastest first."""


def plans_of(
    machines: Sequence[Question], constraints: Constraints, objective: Objective, bounds: SolveLimits, top: int
) -> Iterator[Plans]:
    """The best plans on some machines: each ranks its layouts by their step and estimates the best in full."""
    plans = Plans()
    every: list[Plan] = []
    front: list[Plan] = []
    for place, question in enumerate(map(constraints.software, machines)):
        result = SearchResult()
        for result in search(question, constraints, top, bounds.headroom_fraction):
            so_far = _with_counts(plans, result)
            so_far.done_fraction = (place + result.done_fraction) / len(machines)
            yield so_far
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
    """Counts of earlier machines with those of one more."""
    sizes = [one for one in (plans.smallest, result.smallest) if one is not None]
    return Plans(
        generated=plans.generated + result.generated,
        refused=plans.refused + result.refused,
        scored=plans.scored + result.scored,
        fitting=plans.fitting + result.fitting,
        smallest=min(sizes, key=lambda one: one.reserved_bytes, default=None),
    )


def _keeps_to(plan: Plan, bounds: SolveLimits) -> bool:
    in_time = bounds.days is None or _duration(plan) <= bounds.days
    return in_time and (bounds.cost_usd is None or _spent(plan) <= bounds.cost_usd)


def limit_missed(plan: Plan, bounds: SolveLimits) -> str | None:
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
