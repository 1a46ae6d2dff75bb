"""How is a batch of so many tokens made: which micro-batch, accumulated how often, on how many replicas?"""

from dataclasses import dataclass, replace
from math import isclose
from typing import Any, ClassVar

from service.errors import Problem, Refused
from service.estimator import estimate
from service.estimator.filled import filled
from service.estimator.question import Question
from service.planner.attempt import Attempt, Attempts
from service.planner.critical_batch import best_batch_tokens, critical_warnings
from service.planner.solve import Solved, solving
from service.planner.solve_limits import SolveLimits
from service.planner.steps import Steps
from service.planner.unknowns import divisors
from service.planner.why_not import SPOKEN

NEAR_FRACTION = 0.02
"""Share of the wanted tokens by which a batch may miss them where a larger micro-batch is faster. Source: a choice."""

MOST_MICRO_BATCHES = 64
"""Micro-batches that are timed. Source: a choice; the largest that fit and the smallest stand among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A batch, factor by factor."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    sequence_length: int
    """Tokens in one sequence."""
    micro_batch: int
    """Sequences that one replica runs at once."""
    accumulation: int
    """Micro-batches of one replica in one step."""
    data: int
    """Data-parallel replicas."""
    global_batch: int
    """Sequences in one step: micro_batch x accumulation x data."""
    global_batch_tokens: int
    """Tokens in one step."""
    wanted_tokens: int
    """Tokens that were asked for."""
    best_tokens: float | None
    """Tokens that came out best in sweeps with as many FLOP; null without training_tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch and the next larger micro-batch, which will not do."""

    plan: BatchPlan | None
    """The plan; None where not even a micro-batch of one sequence fits."""
    question: Question | None
    """The question with the plan; None likewise."""
    border: Solved
    """The border of the micro-batch."""
    tried: int
    """Batches that were timed and micro-batches that were tried."""
    warnings: tuple[str, ...]
    """What to look at."""


def planning_batch(question: Question, limits: SolveLimits) -> Steps[PlannedBatch]:
    """The fastest way to make the batch that a question asks for, as near as it can be.

    Every micro-batch up to the largest that fits is taken with the accumulation that comes nearest to the tokens that
    were asked for; of those that come near enough the fastest is the answer.

    Args:
        question: the question; its global batch, in either unit, is what is wanted
        limits: what has to hold beside fitting

    Yields:
        nothing, between one estimate and the next

    Returns:
        the plan

    Raises:
        Refused: no batch is asked for, or no micro-batch is legal
    """
    wanted = _wanted_tokens(question)
    free = replace(question, recipe=replace(question.recipe, global_batch=None, global_batch_tokens=None))
    border = yield from solving(free, "recipe.micro_batch", limits)
    if border.found is None:
        return PlannedBatch(plan=None, question=None, border=border, tried=border.tried, warnings=())
    attempts = Attempts(lambda micro_batch: _batched(free, micro_batch, wanted), limits)
    for micro_batch in _worth_timing(border.found.value, wanted, free):
        yield from attempts.at(micro_batch)
    made = [attempt for attempt in attempts.legal if attempt.will_do]
    if not made:
        refusal = attempts.refusal
        if refusal is not None:
            raise refusal
        return PlannedBatch(plan=None, question=None, border=border, tried=border.tried, warnings=())
    best = _fastest(made, wanted)
    return _planned(best, wanted, border, attempts.count)


def _wanted_tokens(question: Question) -> int:
    recipe = question.recipe
    if recipe.global_batch_tokens is not None:
        return recipe.global_batch_tokens
    if recipe.global_batch is not None:
        return recipe.global_batch * recipe.sequence_length
    message = "the question says no batch, and a plan is made for one"
    fix = "give question.recipe.global_batch_tokens, e.g. 4194304; large runs take 4e6 to 60e6 tokens a step"
    raise Refused(Problem(field="question.recipe.global_batch_tokens", code="required", message=message, fix=fix))


def _replicas(question: Question) -> int:
    layout = question.layout
    return layout.data or max(1, question.cluster.gpus // (layout.tensor * layout.context * layout.pipeline))


def _batched(question: Question, micro_batch: int, wanted: int) -> Question:
    """The question with as many micro-batches as come nearest to the wanted tokens."""
    group = micro_batch * _replicas(question)
    accumulation = max(1, round(wanted / (group * question.recipe.sequence_length)))
    recipe = replace(question.recipe, micro_batch=micro_batch, global_batch=group * accumulation)
    return replace(question, recipe=recipe)


def _worth_timing(most: int, wanted: int, question: Question) -> list[int]:
    """Micro-batches up to the largest one that come nearest to the wanted tokens, the smallest and largest first."""
    share = max(1, round(wanted / (_replicas(question) * question.recipe.sequence_length)))
    exact = [value for value in divisors(share) if value <= most]
    others = [value for value in (*range(1, 9), *(2**power for power in range(4, 31)), most) if value <= most]
    return list(dict.fromkeys([1, *reversed(exact), *others]))[:MOST_MICRO_BATCHES]


def _fastest(made: list[Attempt], wanted: int) -> Attempt:
    """The fastest of those that come near enough; of equally fast ones the one with the smallest micro-batch."""
    misses = {attempt.value: abs(_tokens_of(attempt.question) - wanted) / wanted for attempt in made}
    enough = max(NEAR_FRACTION, min(misses.values()))
    near = sorted((a for a in made if misses[a.value] <= enough), key=lambda attempt: attempt.value)
    speeds = {a.value: estimate(a.question).step.tokens_per_s_per_gpu.value for a in near}
    fastest = max(speeds.values())
    return next(a for a in near if isclose(speeds[a.value], fastest, rel_tol=1e-9))


def _tokens_of(question: Question) -> int:
    return filled(question.recipe.global_batch) * question.recipe.sequence_length


def _planned(best: Attempt, wanted: int, border: Solved, timed: int) -> PlannedBatch:
    question = best.question
    recipe, data = question.recipe, _replicas(question)
    batch = filled(recipe.global_batch)
    found = estimate(question)
    tokens, run = _tokens_of(question), found.resolved.recipe.training_tokens
    total = None if found.flop.total_flop is None else float(found.flop.total_flop)
    plan = BatchPlan(
        sequence_length=recipe.sequence_length,
        micro_batch=recipe.micro_batch,
        accumulation=batch // (recipe.micro_batch * data),
        data=data,
        global_batch=batch,
        global_batch_tokens=tokens,
        wanted_tokens=wanted,
        best_tokens=None if total is None else best_batch_tokens(total),
    )
    return PlannedBatch(
        plan=plan,
        question=question,
        border=border,
        tried=border.tried + timed,
        warnings=critical_warnings(tokens, found.parameters.active, run),
    )
