"""Which layouts fit and are fastest? Every legal one is worked out, and the best are kept."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from service.errors import Problem, Refused
from service.estimator.degrees import order_number
from service.estimator.names import RankOrder
from service.estimator.question import Layout, Question
from service.estimator.resolve import rules_of
from service.estimator.rule import Rule
from service.planner.best import Found, Part, Scored, keep
from service.planner.blocks import Block, blocks_of
from service.planner.freedom import Freedom, axes_of
from service.planner.grid import Grid, Mask, degrees_in, in_order, legal_layouts, met, reordering_gains
from service.planner.pipelines import pipelines_of
from service.planner.scoring import carried_by, micro_batches_of, scores_of
from service.planner.stages import Distinct
from service.planner.variants import plain_job, variants_of

MOST_LAYOUTS = 100_000_000
"""Layouts of one search, legal or not. Source: a choice; about a minute of one core."""


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
    base = plain_job(question)
    axes = axes_of(base, freedom)
    pipelines = pipelines_of(base, axes)
    _leave_out(found, pipelines.refused)
    variants, undoable = variants_of(question, axes, headroom_fraction)
    _leave_out(found, undoable)
    for variant in variants:
        blocks, refused = blocks_of(variant, axes, pipelines.every)
        _refuse_too_many(found.generated + sum(block.grid.cells * len(block.layouts) for block in blocks))
        _leave_out(found, refused)
        yield from blocks


def _refuse_too_many(layouts: int) -> None:
    if layouts <= MOST_LAYOUTS:
        return
    message = f"the fields that are left open make more than {MOST_LAYOUTS:,} layouts"
    fix = "pin or restrict some of them: recipe.micro_batch, layout.shard_group, layout.offload"
    raise Refused(Problem(field="layout", code="space_is_small_enough", message=message, fix=fix))


def _leave_out(found: Found, refused: Counter[str]) -> None:
    found.refused.update(refused)
    found.generated += refused.total()


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
    if not legal.any():
        return
    part = _part(block, block.grid, block.stages, legal)
    micro = micro_batches_of(job, part.degrees, part.carried, choices[0])
    for layout in choices:
        one = Scored(block.variant, part, layout, scores_of(job, part.degrees, part.carried, micro, layout))
        keep(one, found, top)
        for order in block.other_orders:
            _search_reordered(block, one, order, rules, found, top)


def _search_reordered(
    block: Block, one: Scored, order: RankOrder, rules: Sequence[Rule], found: Found, top: int
) -> None:
    """Work out again, in another order of ranks, the layouts that fit and whose stages it brings into one domain.

    The order changes what is sent and nothing that is held, so those that do not fit are known not to. A shard group
    inside one domain would be another one, and is left out.
    """
    job, grid = block.variant.job, one.part.grid
    gains = reordering_gains(grid, job, replace(one.part.degrees, rank_order=order_number(order)))
    if not gains.any():
        return
    fits = one.part.legal & gains & (one.scores.reserved_bytes <= block.variant.most_reserved_bytes)
    if not fits.any():
        return
    part = _part(block, in_order(grid, order), one.part.stages, fits)
    legal, refused = met(part.legal, [(rule.name, np.asarray(rule.holds(job, part.degrees))) for rule in rules])
    found.generated += int(np.count_nonzero(fits))
    found.refused.update(refused)
    if legal.any():
        micro = micro_batches_of(job, part.degrees, part.carried, one.choices)
        scores = scores_of(job, part.degrees, part.carried, micro, one.choices)
        keep(Scored(block.variant, replace(part, legal=legal), one.choices, scores), found, top)


def _part(block: Block, grid: Grid, stages: tuple[tuple[Distinct, ...], ...], legal: Mask) -> Part:
    """The part of a grid that holds all its legal layouts, of which there are some."""
    kept = {id(spread): kinds for spread, kinds in zip(grid.spreads, stages, strict=True)}
    grid, legal = grid.part(legal)
    degrees, _ = degrees_in(grid, block.variant.job)
    own = tuple(kept[id(spread)] for spread in grid.spreads)
    carried = carried_by(block.variant.job, degrees, own, mirrors=block.mirrors)
    return Part(grid, legal, degrees, own, carried)
