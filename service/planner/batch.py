"""Batches of so many tokens: the micro-batch, its accumulation steps and the replicas."""

from dataclasses import dataclass, replace
from math import ceil, floor, isclose

from service.answers.solutions import BatchPlan
from service.errors import Problem, Refused
from service.estimator import estimate
from service.estimator.question import Question, Recipe
from service.estimator.resolve import configuration_of, resolve
from service.estimator.rule import divisors
from service.estimator.schedule import micro_batch_multiple
from service.planner.feasibility import Attempt, Attempts, SolveLimits
from service.planner.sizing import best_batch_tokens, critical_warnings
from service.planner.solve import largest_that_will_do, refuse_limits
from service.planner.steps import Steps
from service.planner.unknowns import UNKNOWNS, field_bounds

NEAR_FRACTION = 0.02
"""Share of the wanted tokens by which a batch may miss them where a larger micro-batch is faster. Source: a choice."""

ALL_TIMED = 256
"""Smallest micro-batches, all of which are timed. Source: a choice; few jobs fit larger ones."""

MOST_ACCUMULATED = 64
"""Micro-batches in a step up to which every larger one is timed too. Source: a choice."""

LOOKED_AHEAD = 64
"""Micro-batches behind the plan's that are tried one by one. Source: a choice; fitting is not monotone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch and the next larger micro-batch, which will not do."""

    plan: BatchPlan | None
    """The plan; None where no batch near the wanted one fits."""
    chosen: Attempt | None
    """Its micro-batch; None likewise."""
    beyond: Attempt | None
    """The next larger micro-batch that will not do, its batch as near to the wanted one as it can be; where no plan
    is found the smallest one."""
    tried: int
    """Batches that were judged."""
    warnings: tuple[str, ...] = ()
    """What to look at."""


def planning_batch(question: Question, limits: SolveLimits) -> Steps[PlannedBatch]:
    """The fastest way to make the batch that a question asks for, as near as it can be.

    Every micro-batch is taken with the accumulation that comes nearest to the tokens that were asked for, among those
    that its schedule takes; of the batches that fit and come near enough the fastest is the answer.
    """
    wanted = _wanted_tokens(question)
    refuse_limits("recipe.global_batch", UNKNOWNS["recipe.micro_batch"], question, limits)
    attempts = Attempts(lambda micro_batch: _batched(question, micro_batch, wanted), limits)
    made: list[Attempt] = []
    for micro_batch in _worth_timing(wanted, question):
        attempt = yield from attempts.at(micro_batch)
        made += [attempt] if attempt.will_do else []
    if not made:
        smallest = min(attempts.legal, key=lambda one: one.value, default=None)
        if smallest is None and attempts.refusal is not None:
            raise attempts.refusal
        return PlannedBatch(plan=None, chosen=None, beyond=smallest, tried=attempts.count)
    chosen = yield from _fastest(made, wanted)
    beyond = yield from _next_larger(chosen.value, attempts)
    plan, warnings = _planned(chosen.question, wanted)
    return PlannedBatch(plan=plan, chosen=chosen, beyond=beyond, tried=attempts.count, warnings=warnings)


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
    """The question with as many micro-batches as come nearest to the wanted tokens, of those that no rule refuses."""
    group, layout = micro_batch * _replicas(question), question.layout
    share = wanted / (group * question.recipe.sequence_length)
    multiple = micro_batch_multiple(layout)
    below = floor(share / multiple) * multiple
    near = {below, below + multiple, 2 * layout.pipeline} - {0}  # no schedule needs more than two for each stage
    batched = [
        replace(question, recipe=_recipe(question.recipe, micro_batch, group * accumulation))
        for accumulation in sorted(near, key=lambda accumulation: (abs(accumulation - share), accumulation))
    ]
    return next(filter(_is_legal, batched), batched[0])


def _recipe(recipe: Recipe, micro_batch: int, global_batch: int) -> Recipe:
    return replace(recipe, micro_batch=micro_batch, global_batch=global_batch, global_batch_tokens=None)


def _is_legal(question: Question) -> bool:
    try:
        resolve(question)
    except Refused:
        return False
    return True


def _worth_timing(wanted: int, question: Question) -> list[int]:
    """Small micro-batches, and larger ones that are accumulated seldom or make the wanted tokens exactly."""
    share = wanted / (_replicas(question) * question.recipe.sequence_length)
    near = (share, share * (1 + NEAR_FRACTION))
    seldom = {
        bound(most / times) for times in range(1, MOST_ACCUMULATED + 1) for most in near for bound in (floor, ceil)
    }
    every = {*range(1, min(ceil(near[1]), ALL_TIMED) + 1), *seldom, *divisors(max(1, round(share)))}
    least, most = field_bounds(Recipe, "micro_batch")
    return sorted(size for size in every if least <= size <= most)


def _fastest(made: list[Attempt], wanted: int) -> Steps[Attempt]:
    """The fastest of those that come near enough; of equally fast ones the one with the smallest micro-batch."""
    misses = {attempt.value: abs(_tokens_of(attempt.question) - wanted) / wanted for attempt in made}
    enough = max(NEAR_FRACTION, min(misses.values()))
    near = [attempt for attempt in made if misses[attempt.value] <= enough]
    speeds: dict[int, float] = {}
    for attempt in near:
        speeds[attempt.value] = estimate(attempt.question).step.tokens_per_s_per_gpu.value
        yield None
    fastest = max(speeds.values())
    return next(attempt for attempt in near if isclose(speeds[attempt.value], fastest, rel_tol=1e-9))


def _next_larger(micro_batch: int, attempts: Attempts) -> Steps[Attempt | None]:
    """The next larger micro-batch that will not do: one of the next few, else where the threshold is."""
    larger = range(micro_batch + 1, field_bounds(Recipe, "micro_batch")[1] + 1)
    for value in larger[:LOOKED_AHEAD]:
        attempt = yield from attempts.at(value)
        if attempt.is_legal and not attempt.will_do:
            return attempt
    return (yield from largest_that_will_do(larger, attempts)).beyond


def _tokens_of(question: Question) -> int:
    return configuration_of(question).question.recipe.global_batch_tokens


def _planned(question: Question, wanted: int) -> tuple[BatchPlan, tuple[str, ...]]:
    """A batch factor by factor, and what to look at in it."""
    recipe, data = question.recipe, _replicas(question)
    result = estimate(question)
    batch = result.resolved.recipe.global_batch
    tokens, run = _tokens_of(question), result.resolved.recipe.training_tokens
    total = None if result.flop.total_flop is None else float(result.flop.total_flop)
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
    return plan, critical_warnings(tokens, result.parameters.active, run)
