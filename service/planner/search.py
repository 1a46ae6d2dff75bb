"""Which layouts fit and are fastest? Every legal one is worked out, and the best are kept."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from service.errors import Problem, Refused
from service.estimator.degrees import Degrees
from service.estimator.fill import filled_in
from service.estimator.filled import filled
from service.estimator.job import Job, job_of
from service.estimator.names import ZeroStage
from service.estimator.question import Layout, Question, Recompute
from service.estimator.resolve import demands_unmet, rules_of
from service.planner.blocks import Block, Variant, blocks_of, with_choices
from service.planner.fitting import most_reserved_bytes
from service.planner.freedom import Axes, Freedom, axes_of
from service.planner.grid import Grid, Mask, Numbers, degrees_in, layout_at, legal_layouts
from service.planner.pipelines import pipelines_of
from service.planner.scoring import Carried, Scores, carried_by, micro_batches_of, scores_of


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """One layout that fits, as the search saw it."""

    step_seconds: float
    """Seconds of one optimizer step."""
    reserved_bytes: float
    """What the allocator holds on its fullest GPU."""
    place: int
    """Which of all layouts it is, in the order of the search."""
    layout: Layout = field(compare=False)
    micro_batch: int = field(compare=False)
    recompute: str | Recompute = field(compare=False)


@dataclass(slots=True)
class Found:
    """What a search has found so far."""

    generated: int = 0
    """Layouts of the space, legal or not."""
    refused: Counter[str] = field(default_factory=Counter)
    """Layouts left out, by the first rule that they break."""
    scored: int = 0
    """Legal layouts, whose memory and step were worked out."""
    fitting: int = 0
    """Those of them that fit."""
    best: list[Candidate] = field(default_factory=list)
    """The fastest that fit, fastest first."""
    front: list[Candidate] = field(default_factory=list)
    """Those that fit of which none is both faster and smaller, fastest first."""
    smallest: Candidate | None = None
    """The one that takes least memory, whether it fits or not."""


def search(question: Question, freedom: Freedom, top: int, headroom_fraction: float = 0.0) -> Iterator[Found]:
    """Work out every legal layout of a question and keep the best.

    Args:
        question: the question, its layout, micro-batch and recompute left to the search
        freedom: what the caller leaves open of them
        top: how many of the best to keep [1]
        headroom_fraction: share of the usable memory that has to stay free [1]

    Yields:
        what is found so far, after every grid; the last one is the whole

    Raises:
        Refused: the question cannot be answered under any layout
    """
    found = Found()
    for block in _blocks(question, freedom, found, headroom_fraction):
        for choices in _groups(block):
            with np.errstate(all="ignore"):  # what is not legal is worked out too, and left out
                _search_grid(block, choices, found, top)
            yield found
    yield found


def _blocks(question: Question, freedom: Freedom, found: Found, headroom_fraction: float) -> Iterator[Block]:
    base = _job(question, "none", None)
    axes = axes_of(base, freedom)
    pipelines = pipelines_of(base, axes)
    _leave_out(found, pipelines.refused)
    for variant in _variants(question, axes, found, headroom_fraction):
        blocks, refused = blocks_of(variant, axes, pipelines.every)
        _refuse_too_many(found.generated + sum(block.grid.cells * len(block.layouts) for block in blocks))
        _leave_out(found, refused)
        yield from blocks


MOST_LAYOUTS = 100_000_000
"""Layouts of one search, legal or not. Source: a choice; about a minute of one core."""


def _refuse_too_many(layouts: int) -> None:
    if layouts <= MOST_LAYOUTS:
        return
    message = f"the fields that are left open make more than {MOST_LAYOUTS:,} layouts"
    fix = "pin or restrict some of them: recipe.micro_batch, layout.shard_group, layout.offload"
    raise Refused(Problem(field="layout", code="space_is_small_enough", message=message, fix=fix))


def _leave_out(found: Found, refused: Counter[str]) -> None:
    found.refused.update(refused)
    found.generated += refused.total()


def _variants(question: Question, axes: Axes, found: Found, headroom_fraction: float) -> Iterator[Variant]:
    """The jobs of a question: one for each recompute rule, and for each kind of numbers that ZeRO stages keep."""
    refused: list[Problem] = []
    usable = 0
    for recompute in axes.recompute:
        by_kind: dict[tuple[object, ...], tuple[Job, list[ZeroStage]]] = {}
        for zero in axes.zero_stage:
            job = _job(question, recompute, zero)
            problems = demands_unmet(job, _plainest(job, zero))
            if problems:
                refused.extend(problems)
                _leave_out(found, Counter({problems[0].code: 1}))
                continue
            by_kind.setdefault((job.state, job.recipe.gradient_dtype), (job, []))[1].append(zero)
        for job, zeros in by_kind.values():
            usable += 1
            yield Variant(job, recompute, tuple(zeros), most_reserved_bytes(job, headroom_fraction))
    if not usable:
        raise Refused(*dict.fromkeys(refused))


def _job(question: Question, recompute: str | Recompute, zero: ZeroStage | None) -> Job:
    plain = Layout(data=1, zero_stage=zero)
    recipe = replace(question.recipe, micro_batch=1, recompute=recompute)  # type: ignore[arg-type]  # a name of the table
    return job_of(filled_in(replace(question, recipe=recipe, layout=plain)))


def _plainest(job: Job, zero: ZeroStage) -> Layout:
    """A layout that asks nothing of the software but its ZeRO stage."""
    return Layout(
        data=job.cluster.gpus,
        zero_stage=zero,
        schedule=job.stack.schedules[0],
        context_method=job.stack.context_methods[0],
        virtual_group=1,
        expert_tensor=1,
        sequence_parallel=False,
        reshard_after_forward=zero == 3,
    )


def _groups(block: Block) -> Iterator[tuple[Layout, ...]]:
    """Choices under which a micro-batch takes the same time: those that differ in their schedule alone."""
    by_rest: dict[tuple[object, object], list[Layout]] = {}
    for choices in block.layouts:
        by_rest.setdefault((choices.context_method, choices.offload), []).append(choices)
    yield from map(tuple, by_rest.values())


def _search_grid(block: Block, choices: tuple[Layout, ...], found: Found, top: int) -> None:
    job, schedules = block.variant.job, len(choices)
    degrees, whole = degrees_in(block.grid, job)
    representative = replace(choices[0], stage_layers=(), pipeline=2 if block.mirrors else 1)
    rules = rules_of(representative)
    legal, refused = legal_layouts(block.grid, job, rules, degrees, whole, block.data)
    found.generated += block.grid.cells * schedules
    found.refused.update({name: count * schedules for name, count in refused.items()})
    part = _part(block, block.grid, legal)
    if part is None:
        return
    micro = micro_batches_of(job, part.degrees, part.carried, choices[0])
    for layout in choices:
        scores = scores_of(job, part.degrees, part.carried, micro, layout)
        _keep(_Scored(block.variant, part, layout, scores), found, top)


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a grid that is worked out."""

    grid: Grid
    legal: Mask
    degrees: Degrees
    carried: list[Carried]


def _part(block: Block, grid: Grid, legal: Mask) -> _Part | None:
    """The part of a grid that holds all its legal layouts; None where there are none."""
    if not legal.any():
        return None
    grid, legal = grid.part(legal)
    kept = {id(spread): kinds for spread, kinds in zip(block.grid.spreads, block.stages, strict=True)}
    job = block.variant.job
    degrees, _ = degrees_in(grid, job)
    carried = carried_by(job, degrees, [kept[id(spread)] for spread in grid.spreads], mirrors=block.mirrors)
    return _Part(grid, legal, degrees, carried)


@dataclass(frozen=True, slots=True)
class _Scored:
    """A grid that was worked out under one schedule."""

    variant: Variant
    part: _Part
    choices: Layout
    scores: Scores


def _keep(one: _Scored, found: Found, top: int) -> None:
    grid = one.part.grid
    places = np.flatnonzero(one.part.legal)
    step, reserved = (
        np.broadcast_to(score, grid.shape).ravel()[places]
        for score in (one.scores.step_seconds, one.scores.reserved_bytes)
    )
    offset, found.scored = found.scored, found.scored + len(places)
    fits = np.flatnonzero(reserved <= one.variant.most_reserved_bytes)
    found.fitting += len(fits)

    def candidate(index: int) -> Candidate:
        split, spread, size = (int(place) for place in np.unravel_index(int(places[index]), grid.shape))
        return Candidate(
            step_seconds=float(step[index]),
            reserved_bytes=float(reserved[index]),
            place=offset + index,
            layout=with_choices(layout_at(grid, one.part.degrees, (split, spread, size)), one.choices),
            micro_batch=grid.micro_batches[size],
            recompute=one.variant.recompute,
        )

    least = int(np.argmin(reserved))
    if found.smallest is None or reserved[least] < found.smallest.reserved_bytes:
        found.smallest = candidate(least)
    if len(fits):
        found.best = sorted([*found.best, *map(candidate, _fastest(step, reserved, fits, found.best, top))])[:top]
        found.front = _front([*found.front, *map(candidate, _undominated(step, reserved, fits, found.front))])


def _fastest(step: Numbers, reserved: Numbers, fits: NDArray[np.intp], best: list[Candidate], top: int) -> list[int]:
    """The fastest of those that fit, as far as they may be among the best of all."""
    limit = best[-1].step_seconds if len(best) == top else np.inf
    if len(fits) > top:
        limit = min(limit, float(np.partition(step[fits], top - 1)[top - 1]))
    near = fits[step[fits] <= limit]
    order = np.lexsort((near, reserved[near], step[near]))
    return [int(index) for index in near[order[:top]]]


def _undominated(step: Numbers, reserved: Numbers, fits: NDArray[np.intp], front: list[Candidate]) -> list[int]:
    """Those that fit of which none, and none of the front, is both as fast and as small."""
    own = fits
    for known in front:
        own = own[(step[own] < known.step_seconds) | (reserved[own] < known.reserved_bytes)]
    if not len(own):
        return []
    own = own[np.lexsort((own, reserved[own], step[own]))]
    least = np.minimum.accumulate(reserved[own])
    is_new = np.concatenate(([True], least[1:] < least[:-1]))
    return [int(index) for index in own[is_new]]


def _front(candidates: list[Candidate]) -> list[Candidate]:
    found: list[Candidate] = []
    for one in sorted(candidates):
        if not found or one.reserved_bytes < found[-1].reserved_bytes:
            found.append(one)
    return found


def question_of(question: Question, candidate: Candidate) -> Question:
    """The question of one candidate.

    Args:
        question: what the search was asked
        candidate: the candidate

    Returns:
        a question that an estimate answers
    """
    recipe = replace(
        question.recipe,
        micro_batch=candidate.micro_batch,
        recompute=candidate.recompute,  # type: ignore[arg-type]  # a name of the table
        global_batch=filled(question.recipe.global_batch),
    )
    return replace(question, recipe=recipe, layout=candidate.layout)
