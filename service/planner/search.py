"""Which layouts fit and are fastest? Every legal one is worked out; the best, and the best for their memory, are kept."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from service.errors import Problem, Refused
from service.estimator.fill import filled_in
from service.estimator.filled import filled
from service.estimator.job import Job, job_of
from service.estimator.names import ZeroStage
from service.estimator.question import Layout, Question, Recompute
from service.estimator.resolve import demands_unmet, rules_of
from service.planner.blocks import Block, Variant, blocks_of, with_choices
from service.planner.fitting import most_reserved_bytes
from service.planner.freedom import Axes, Freedom, axes_of
from service.planner.grid import Grid, degrees_in, layout_at, legal_layouts
from service.planner.pipelines import pipelines_of
from service.planner.scoring import Scores, carried_by, micro_batches_of, scores_of


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


Watch = Callable[[Found], None]
"""What is told after each block how far a search is; it may stop the search by raising."""


def search(question: Question, freedom: Freedom, top: int, headroom_fraction: float = 0.0, watch: Watch | None = None) -> Found:
    """Work out every legal layout of a question and keep the best.

    Args:
        question: the question, its layout, micro-batch and recompute left to the search
        freedom: what the caller leaves open of them
        top: how many of the best to keep [1]
        headroom_fraction: share of the usable memory that has to stay free [1]
        watch: what to tell of progress

    Returns:
        counts, the fastest that fit, and the front of time and memory

    Raises:
        Refused: the question cannot be answered under any layout
    """
    found = Found()
    for block in _blocks(question, freedom, found):
        _search_block(block, found, top, most_reserved_bytes(block.variant.job, headroom_fraction))
        if watch is not None:
            watch(found)
    return found


def _blocks(question: Question, freedom: Freedom, found: Found) -> Iterator[Block]:
    for variant, axes in _variants(question, freedom, found):
        pipelines = pipelines_of(variant.job, axes)
        blocks, refused = blocks_of(variant, axes, pipelines.layouts)
        left_out = refused + pipelines.refused
        found.refused.update(left_out)
        found.generated += left_out.total()
        yield from blocks


def _variants(question: Question, freedom: Freedom, found: Found) -> Iterator[tuple[Variant, Axes]]:
    """The jobs of a question: one for each recompute rule, and for each kind of numbers that ZeRO stages keep."""
    base = _job(question, "none", None)
    axes = axes_of(base, freedom)
    refused: list[Problem] = []
    usable = 0
    for recompute in axes.recompute:
        by_kind: dict[tuple[object, ...], tuple[Job, list[ZeroStage]]] = {}
        for zero in axes.zero_stage:
            job = _job(question, recompute, zero)
            problems = demands_unmet(job, _plainest(job, zero))
            if problems:
                refused.extend(problems)
                found.refused.update({problems[0].code: 1})
                found.generated += 1
                continue
            by_kind.setdefault((job.state, job.recipe.gradient_dtype), (job, []))[1].append(zero)
        for job, zeros in by_kind.values():
            usable += 1
            yield Variant(job, recompute, tuple(zeros)), axes
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


def _search_block(block: Block, found: Found, top: int, most: float) -> None:
    for choices in _groups(block):
        _search_grid(block, choices, found, top, most)


def _groups(block: Block) -> Iterator[tuple[Layout, ...]]:
    """Choices under which a micro-batch takes the same time: those that differ in their schedule alone."""
    by_rest: dict[tuple[object, object], list[Layout]] = {}
    for choices in block.layouts:
        by_rest.setdefault((choices.context_method, choices.offload), []).append(choices)
    yield from map(tuple, by_rest.values())


def _search_grid(block: Block, choices: tuple[Layout, ...], found: Found, top: int, most: float) -> None:
    job, schedules = block.variant.job, len(choices)
    degrees, whole = degrees_in(block.grid, job)
    representative = replace(choices[0], stage_layers=(), pipeline=2 if block.mirrors else 1)
    rules = rules_of(representative)
    legal, refused = legal_layouts(block.grid, job, rules, degrees, whole, ())
    found.generated += block.grid.cells * schedules
    found.refused.update({name: count * schedules for name, count in refused.items()})
    if not legal.any():
        return
    grid, legal = block.grid.part(legal)
    kept = {id(spread): kinds for spread, kinds in zip(block.grid.spreads, block.stages, strict=True)}
    degrees, _ = degrees_in(grid, job)
    stages = [kept[id(spread)] for spread in grid.spreads]
    carried = carried_by(job, degrees, stages, mirrors=block.mirrors)
    micro = micro_batches_of(job, degrees, carried, choices[0])
    for layout in choices:
        scores = scores_of(job, degrees, carried, micro, layout)
        _keep(block, grid, layout, legal, scores, found, top, most)


def _keep(
    block: Block, grid: Grid, choices: Layout, legal: NDArray[np.bool_], scores: Scores, found: Found, top: int, most: float
) -> None:
    places = np.flatnonzero(legal)
    step = np.broadcast_to(scores.step_seconds, grid.shape).ravel()[places]
    reserved = np.broadcast_to(scores.reserved_bytes, grid.shape).ravel()[places]
    offset, found.scored = found.scored, found.scored + len(places)
    fits = np.flatnonzero(reserved <= most)
    found.fitting += len(fits)
    job = block.variant.job

    def candidate(index: int) -> Candidate:
        place = np.unravel_index(int(places[index]), grid.shape)
        degrees, _ = degrees_in(grid, job)
        layout = with_choices(layout_at(grid, degrees, (int(place[0]), int(place[1]), int(place[2]))), choices)
        return Candidate(
            float(step[index]), float(reserved[index]), offset + index, layout,
            grid.micro_batches[int(place[2])], block.variant.recompute,
        )  # fmt: skip

    least = int(np.argmin(reserved))
    if found.smallest is None or reserved[least] < found.smallest.reserved_bytes:
        found.smallest = candidate(least)
    if len(fits):
        found.best = sorted([*found.best, *map(candidate, _fastest(step, reserved, fits, found.best, top))])[:top]
        found.front = _front([*found.front, *map(candidate, _undominated(step, reserved, fits, found.front))])


def _fastest(
    step: NDArray[np.float64], reserved: NDArray[np.float64], fits: NDArray[np.intp], best: list[Candidate], top: int
) -> list[int]:
    """The fastest of those that fit, as far as they may be among the best of all."""
    limit = best[-1].step_seconds if len(best) == top else np.inf
    if len(fits) > top:
        limit = min(limit, float(np.partition(step[fits], top - 1)[top - 1]))
    near = fits[step[fits] <= limit]
    order = np.lexsort((near, reserved[near], step[near]))
    return [int(index) for index in near[order[:top]]]


def _undominated(
    step: NDArray[np.float64], reserved: NDArray[np.float64], fits: NDArray[np.intp], front: list[Candidate]
) -> list[int]:
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
