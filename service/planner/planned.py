"""The one layout that a search chooses for a question whose layout is left to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from service.errors import Refused
from service.estimator import estimate
from service.estimator.question import Layout, Question
from service.planner.plans import SearchResult, question_of, search
from service.planner.space import Constraints

MOST_CACHED = 64
"""Searches whose result is cached. Source: a choice; a page asks the same question at some prices and lengths."""

VERDICTS = ("fits", "at_risk", "out_of_memory")
"""Verdicts, best first."""

Allowed = tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True, slots=True)
class PlannedQuestion:
    """A question with the layout, micro-batch and recompute that were chosen, and what was searched for them."""

    question: Question
    scored: int
    """Legal layouts whose memory was computed."""
    fitting: int
    """Those of them that fit."""


def with_planned_layout(question: Question, allowed: Mapping[str, tuple[Any, ...]]) -> PlannedQuestion:
    """A question in its fastest layout that fits; where none fits, in the one that takes least memory.

    The layout of defaults stands in its place where the search misses it and it is better.
    """
    constraints = Constraints(allowed)
    named = constraints.software(question)
    of_step = replace(named, price=None, recipe=replace(named.recipe, training_tokens=None, checkpoint=None))
    found = _search(of_step, tuple(sorted(allowed.items())))
    chosen = found.best[0] if found.best else found.smallest
    usual = _with_defaults(question, allowed)
    choices = ([] if chosen is None else [question_of(named, chosen)]) + _legal(usual, is_needed=chosen is None)
    best = choices[0] if len(choices) == 1 else min(choices, key=_rank)
    return PlannedQuestion(best, found.scored, found.fitting)


@lru_cache(maxsize=MOST_CACHED)
def _search(question: Question, allowed: Allowed) -> SearchResult:
    *_, result = search(question, Constraints(dict(allowed)), top=1)
    return result


def _with_defaults(question: Question, allowed: Mapping[str, tuple[Any, ...]]) -> Question:
    """A question with defaults in its open fields."""
    first = {name: values[0] for name, values in allowed.items()}
    recipe = {name: first.pop(name) for name in ("micro_batch", "recompute") if name in first}
    return replace(question, recipe=replace(question.recipe, **recipe), layout=Layout(**first))


def _legal(question: Question, *, is_needed: bool) -> list[Question]:
    """A question, if it breaks no rule; its problems if there is no other."""
    try:
        estimate(question)
    except Refused:
        if is_needed:
            raise
        return []
    return [question]


def _rank(question: Question) -> tuple[int, float]:
    found = estimate(question)
    return VERDICTS.index(found.verdict), found.step.step_seconds.value
