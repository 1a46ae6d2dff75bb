"""Which of the layouts that were worked out are kept: the fastest, the front of time and memory, the smallest?"""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from service.estimator.degrees import Degrees
from service.estimator.question import Layout, Question, Recompute, filled
from service.planner.blocks import with_choices
from service.planner.grid import Grid, Mask, Numbers, layout_at
from service.planner.scoring import Carried, Scores
from service.planner.stages import Distinct
from service.planner.variants import Variant


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


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a grid that is worked out."""

    grid: Grid
    legal: Mask
    degrees: Degrees
    stages: tuple[tuple[Distinct, ...], ...]
    """The distinct stages of each spread of the grid."""
    carried: list[Carried]


@dataclass(frozen=True, slots=True)
class Scored:
    """A grid that was worked out under one schedule."""

    variant: Variant
    part: Part
    choices: Layout
    scores: Scores


def keep(one: Scored, found: Found, top: int) -> None:
    """Count the layouts of a grid and keep the best of them.

    Args:
        one: the grid
        found: what was found before; it is added to
        top: how many of the fastest to keep [1]
    """
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
