"""Largest or smallest value of an open field that fits, by bisection, and batches of so many tokens.

Refused values are skipped. Whether a value will do may change more than once as it grows, as layouts and limits do; the
bisection therefore looks at each stage apart (`feasibility.py`).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, floor, isclose

from service.answers.plans import BatchPlan
from service.errors import Problem, Refused
from service.estimator import estimate
from service.estimator.question import Question, Recipe
from service.estimator.resolve import configuration_of, resolve
from service.estimator.rule import divisors
from service.estimator.schedule import micro_batch_multiple
from service.planner.feasibility import (
    SIZE_LIMITS,
    UNKNOWNS,
    Attempt,
    Attempts,
    SolveLimits,
    Unknown,
    degrees_unit,
    field_bounds,
    limits_given,
    replicas_of,
)
from service.planner.sizing import best_batch_tokens, critical_warnings
from service.planner.steps import Steps

MOST_REFUSED = 1_024
"""Refused values that are stepped over before a part of the range is given up. Source: a choice; the rules divide by
degrees, and no product of them that the rules know is larger."""

MOST_REFUSED_IN_ALL = 4_096
"""The same of a whole search. Source: a choice; a second or so."""

PROBED = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32, 48, 64, 96, 128, 256, 360, 512, 720, 840, 1024, 2520, 4096, 5040,
    8192, 20160, 55440, 65536, 720720, 1441440, 1 << 21, 1 << 24,
)  # fmt: skip
"""Numbers with many divisors, small ones and large ones: where all of them break one rule, every value does."""

ALL_PROBED = 256
"""Lengths of lists of which every value is tried instead. Source: a choice; a tenth of a second."""

SCANNED = 128
"""Smallest legal values that are tried one by one. Source: a choice; a thousand GPUs in nodes of eight."""

STEPS_DOWN = 4
"""One over the share of a range by which it is stepped down where its end misses a limit. Source: a choice."""

LOOKED_BACK = 64
"""Values below the smallest found one that are tried too, where not all were. Source: a choice."""

LOOKED_AHEAD = 48
"""Values above the largest found one that are tried too, where live tensors leave room; behind them at growing
distances. Source: a choice; limits beside memory may be met again."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The threshold of an open field, between what will do and what will not."""

    found: Attempt | None = None
    """The value that you ask for; None where none will do."""
    beyond: Attempt | None = None
    """The nearest value on its other side, which will not do; None where the field ends before it."""
    tried: int = 0
    gap: Attempt | None = None
    """The largest legal value below the one that you ask for that was tried and will not do either; None where none
    was found, as nearly always."""


def largest_that_will_do(values: Sequence[int], attempts: Attempts, unit: int = 1) -> Steps[Threshold]:
    """The largest value that will do, and the next legal one, which will not."""
    ranks, short = _Ranks(values, attempts, unit), frozenset[int]()
    if (yield from ranks.are_all_refused()):
        return Threshold()
    most, fails = yield from ranks.last_acceptable(short, len(values))
    end = fails
    while most >= 0 and not (attempt := (yield from ranks.at(most))).will_do:
        if attempt.shortfall.stages <= short:
            return (yield from ranks.stepped_down(most))
        short |= attempt.shortfall.stages
        most, fails = yield from ranks.last_acceptable(short, most + 1)
    return (yield from ranks.looked_ahead(most, fails, end))


def smallest_that_will_do(values: Sequence[int], attempts: Attempts, unit: int = 1) -> Steps[Threshold]:
    """The smallest value that will do, and the legal one before it, which will not."""
    ranks = _Ranks(values, attempts, unit)
    if (yield from ranks.are_all_refused()):
        return Threshold()
    fails, tried, rank = -1, 0, 0
    while rank < len(values) and tried < SCANNED and not ranks.is_given_up:
        attempt = yield from ranks.at(rank)
        if attempt.will_do:
            return (yield from ranks.threshold(rank, fails))
        if attempt.is_legal:
            fails, tried = rank, tried + 1
        rank += 1
    least = len(values)
    while rank < len(values):
        legal = yield from ranks.first_legal(rank, len(values))
        if legal is None:
            break
        if (yield from ranks.at(legal)).will_do:
            least = legal
            break
        fails, rank = legal, legal + 1 + legal // 2
    least, fails = yield from ranks.closed_in(least, fails)
    return (yield from ranks.walked_back(least, fails))


class _Ranks:
    """Values by their places in the list."""

    def __init__(self, values: Sequence[int], attempts: Attempts, unit: int) -> None:
        self.values, self.attempts, self.unit = values, attempts, unit
        self.refused = 0

    @property
    def is_given_up(self) -> bool:
        """Whether so many values were refused that the rest will be too."""
        return self.refused > MOST_REFUSED_IN_ALL

    def at(self, rank: int) -> Steps[Attempt]:
        before = self.attempts.count
        attempt = yield from self.attempts.at(self.values[rank])
        self.refused += self.attempts.count > before and not attempt.is_legal
        return attempt

    def are_all_refused(self) -> Steps[bool]:
        """Whether one rule refuses whatever is tried, so that it is not about the open field."""
        count = len(self.values)
        numbers = range(1, count + 1) if count <= ALL_PROBED else (*PROBED, *(self.unit * number for number in PROBED))
        for number in numbers:
            if number <= count and (yield from self.at(number - 1)).is_legal:
                return False
        return bool(self.attempts.broken_by_all)

    def last_acceptable(self, short: frozenset[int], end: int) -> Steps[tuple[int, int]]:
        """The last acceptable place before an end, else -1; and the first legal place after it, else the end."""
        most, fails, start = -1, end, 0
        while start < end and fails == end:
            stop = min(2 * start + 1, end)
            rank = yield from self.first_legal(start, stop)
            if rank is not None and (yield from self.at(rank)).is_acceptable(short):
                most = rank
            elif rank is not None:
                fails = rank
            start = 2 * start + 1
        while (rank := (yield from self.legal_between(most, fails))) is not None:
            if (yield from self.at(rank)).is_acceptable(short):
                most = rank
            else:
                fails = rank
        return most, fails

    def first_legal(self, start: int, stop: int) -> Steps[int | None]:
        """The first legal place of a part of the list, or None where it has none."""
        for rank in range(start, min(stop, start + MOST_REFUSED)):
            if self.is_given_up:
                return None
            if (yield from self.at(rank)).is_legal:
                return rank
        return None

    def legal_between(self, low: int, high: int) -> Steps[int | None]:
        """A legal place between two others, near their middle, or None where there is none."""
        middle = self.middle_of(low + 1 + (high - low) // 4, high - 1 - (high - low) // 4)
        for distance in range(MOST_REFUSED):
            if self.is_given_up or (middle - distance <= low and middle + distance >= high):
                return None
            for rank in (middle + distance, middle - distance):
                if low < rank < high and (yield from self.at(rank)).is_legal:
                    return rank
        return None

    def middle_of(self, low: int, high: int) -> int:
        """A place between two others: of the probable unit's multiples the roundest, else of all."""
        first, last = -(-(low + 1) // self.unit) - 1, (high + 1) // self.unit - 1
        return roundest_between(low, high) if first > last else self.unit * (roundest_between(first, last) + 1) - 1

    def stepped_down(self, most: int) -> Steps[Threshold]:
        """The threshold below a place that fits and misses a limit: narrow models and wide intervals take longer."""
        beyond, does = most, -1
        while does < 0 < beyond:
            rank = yield from self.first_legal(beyond - max(1, beyond // STEPS_DOWN), beyond)
            if rank is None:
                beyond -= max(1, beyond // STEPS_DOWN)
            elif (yield from self.at(rank)).will_do:
                does = rank
            else:
                beyond = rank
        if does >= 0:
            does, beyond = yield from self.closed_in(does, beyond)
        return (yield from self.threshold(does, beyond))

    def closed_in(self, does: int, fails: int) -> Steps[tuple[int, int]]:
        """Of two places, one of which will do, two between them that nothing legal lies between."""
        while (rank := (yield from self.legal_between(min(does, fails), max(does, fails)))) is not None:
            if (yield from self.at(rank)).will_do:
                does = rank
            else:
                fails = rank
        return does, fails

    def looked_ahead(self, does: int, fails: int, end: int) -> Steps[Threshold]:
        """The threshold once places beyond what fails were tried, too, before an end that nothing behind will do."""
        while True:
            beyond = end
            for rank in reversed(places_ahead(fails, end)):
                attempt = yield from self.at(rank)
                if attempt.will_do:
                    break
                beyond = rank if attempt.is_legal else beyond
            else:
                return (yield from self.threshold(does, fails))
            does, fails = yield from self.closed_in(rank, beyond)

    def walked_back(self, least: int, fails: int) -> Steps[Threshold]:
        """The threshold once the values below the found one were tried, too, as far as that is worth while."""
        rank = min(least, len(self.values)) - 1
        for _ in range(LOOKED_BACK if least < len(self.values) else 0):
            if rank < 0:
                break
            if (yield from self.at(rank)).will_do:
                least = rank
            rank -= 1
        below = [rank for rank in range(max(0, least - LOOKED_BACK), least) if rank >= fails]
        for rank in reversed(below):
            if (yield from self.at(rank)).is_legal:
                fails = rank
                break
        return (yield from self.threshold(least, fails))

    def threshold(self, result: int, beyond: int) -> Steps[Threshold]:
        inside = range(len(self.values))
        return Threshold(
            (yield from self.at(result)) if result in inside else None,
            (yield from self.at(beyond)) if beyond in inside else None,
        )


def places_ahead(start: int, end: int) -> list[int]:
    """Places between two others: the nearest, and some at growing distances.

    >>> places_ahead(0, 200)[-5:]
    [47, 48, 73, 110, 166]
    """
    results, distance = list(range(start + 1, min(start + LOOKED_AHEAD + 1, end))), LOOKED_AHEAD
    while start + (distance := distance + distance // 2 + 1) < end:
        results.append(start + distance)
    return results


def roundest_between(low: int, high: int) -> int:
    """The place, among those from `low` to `high`, whose number counted from one most powers of two divide.

    Rules ask values to be multiples of degrees, which round ones are more often than others.

    >>> roundest_between(4, 10), roundest_between(5, 5)
    (7, 5)
    """
    if high <= low:
        return low
    power = (low ^ (high + 1)).bit_length() - 1
    return (((high + 1) >> power) << power) - 1


def solve_steps(question: Question, name: str, limits: SolveLimits, multiple: int = 1) -> Steps[Threshold]:
    """The threshold of one open field, one attempt a step."""
    unknown = UNKNOWNS[name]
    refuse_limits(name, unknown, question, limits)
    attempts = Attempts(lambda value: unknown.put(question, value), limits)
    values = unknown.values(question, multiple)
    message = f"no value of {name} that is a multiple of {multiple} is legal beside the question's other fields"
    no_value = Problem(field="multiple_of", code="no_legal_value", message=message, fix="leave multiple_of out")
    if not len(values):
        raise Refused(no_value)
    search = largest_that_will_do if unknown.is_largest else smallest_that_will_do
    threshold = yield from search(values, attempts, degrees_unit(question.layout))
    found, beyond, tried = threshold.found, threshold.beyond, attempts.count
    if found is None:
        if beyond is None:
            raise attempts.refusal or Refused(no_value)
        return Threshold(None, beyond, tried)
    if beyond is None:
        beyond = yield from _refused_neighbour(found, unknown, attempts, multiple)
    below = (one for one in attempts.legal if one.value < found.value and not one.will_do)
    gap = max(below, key=lambda one: one.value, default=None) if unknown.is_largest else None
    return Threshold(found, beyond, tried, gap)


def _refused_neighbour(result: Attempt, unknown: Unknown, attempts: Attempts, multiple: int) -> Steps[Attempt | None]:
    """The next value, which a rule refuses, where no legal one lies beyond; None where the field ends there."""
    least, most = unknown.bounds
    value = result.value + (multiple if unknown.is_largest else -multiple)
    if not least <= value <= most:
        return None
    attempt = yield from attempts.at(value)
    return None if attempt.will_do else attempt


def refuse_limits(name: str, unknown: Unknown, question: Question, limits: SolveLimits) -> None:
    """Refuse limits that would change nothing, and those that no answer is known for."""
    given = limits_given(limits)
    unread = [limit for limit in given if limit not in unknown.limits]
    unread += [limit for limit in SIZE_LIMITS if getattr(limits, limit) is not None]
    fix = f"leave it out; it takes {', '.join(('headroom_fraction', *unknown.limits))}"
    problems = [
        Problem(
            field=f"limits.{limit}",
            code="limit_not_read",
            message=f"{limit} is not what bounds {name}, so it would be ignored",
            fix=fix,
        )
        for limit in unread
    ]
    if unknown.needs_limit and not given:
        message = f"{name} has no end without a limit: every run fits as well as a longer one"
        fix = f"give one of {', '.join(f'limits.{limit}' for limit in unknown.limits)}"
        problems.append(Problem(field="limits", code="required", message=message, fix=fix))
    if given and question.recipe.training_tokens is None and name != "recipe.training_tokens":
        problems.append(_unknown_quantity(next(iter(given)), "question.recipe.training_tokens"))
    if "cost_usd" in given and question.price is None:
        problems.append(_unknown_quantity("cost_usd", "question.price"))
    if problems:
        raise Refused(*problems)


def _unknown_quantity(limit: str, needed: str) -> Problem:
    message = f"limits.{limit} cannot be judged: it is not known without {needed}"
    return Problem(field=f"limits.{limit}", code="not_known", message=message, fix=f"give {needed}")


NEAR_FRACTION = 0.02
"""Share of the requested tokens by which a batch may miss them for a faster micro-batch. Source: a choice."""

ALL_TIMED = 256
"""Smallest micro-batches, all of which are timed. Source: a choice; few jobs fit larger ones."""

MOST_ACCUMULATED = 64
"""Micro-batches in a step up to which every larger one is timed too. Source: a choice."""

BATCHES_AHEAD = 64
"""Micro-batches behind the plan's that are tried one by one. Source: a choice; fitting is not monotone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch and the next larger micro-batch, which will not do."""

    plan: BatchPlan | None
    """The plan; None where no batch near the requested tokens fits."""
    threshold: Threshold
    """Its micro-batch, and the next larger one that will not do, its batch as near to the requested tokens as it can
    be; where no plan is found the smallest one."""
    warnings: tuple[str, ...] = ()


def plan_batch(question: Question, limits: SolveLimits) -> Steps[PlannedBatch]:
    """The fastest fitting batch near enough to the tokens, each micro-batch with its nearest legal accumulation."""
    tokens = _requested_tokens(question)
    refuse_limits("recipe.global_batch", UNKNOWNS["recipe.micro_batch"], question, limits)
    attempts = Attempts(lambda micro_batch: _batched(question, micro_batch, tokens), limits)
    fitting: list[Attempt] = []
    for micro_batch in _worth_timing(tokens, question):
        attempt = yield from attempts.at(micro_batch)
        fitting += [attempt] if attempt.will_do else []
    if not fitting:
        smallest = min(attempts.legal, key=lambda one: one.value, default=None)
        if smallest is None and attempts.refusal is not None:
            raise attempts.refusal
        return PlannedBatch(plan=None, threshold=Threshold(None, _in_sequences(smallest), attempts.count))
    best = yield from _fastest(fitting, tokens)
    beyond = yield from _next_larger(best.value, attempts)
    plan, warnings = _plan_of(best.question, tokens)
    return PlannedBatch(plan=plan, threshold=Threshold(best, _in_sequences(beyond), attempts.count), warnings=warnings)


def _requested_tokens(question: Question) -> int:
    recipe = question.recipe
    if recipe.global_batch_tokens is not None:
        return recipe.global_batch_tokens
    if recipe.global_batch is not None:
        return recipe.global_batch * recipe.sequence_length
    message = "the question says no batch, and a plan is made for one"
    fix = "give question.recipe.global_batch_tokens, e.g. 4194304; large runs take 4e6 to 60e6 tokens a step"
    raise Refused(Problem(field="question.recipe.global_batch_tokens", code="required", message=message, fix=fix))


def _batched(question: Question, micro_batch: int, tokens: int) -> Question:
    """The question with as many micro-batches as come nearest to the tokens, of those that no rule refuses."""
    group, layout = micro_batch * replicas_of(question), question.layout
    share = tokens / (group * question.recipe.sequence_length)
    multiple = micro_batch_multiple(layout)
    below = floor(share / multiple) * multiple
    near = {below, below + multiple, 2 * layout.pipeline} - {0}  # no schedule needs more than two for each stage
    recipe = replace(question.recipe, micro_batch=micro_batch, global_batch_tokens=None)
    batched = [
        replace(question, recipe=replace(recipe, global_batch=group * accumulation))
        for accumulation in sorted(near, key=lambda accumulation: (abs(accumulation - share), accumulation))
    ]
    for one in batched:
        with suppress(Refused):
            resolve(one)
            return one
    return batched[0]


def _worth_timing(tokens: int, question: Question) -> list[int]:
    """Small micro-batches, and larger ones that are accumulated seldom or make the tokens exactly."""
    share = tokens / (replicas_of(question) * question.recipe.sequence_length)
    near = (share, share * (1 + NEAR_FRACTION))
    seldom = {
        bound(most / times) for times in range(1, MOST_ACCUMULATED + 1) for most in near for bound in (floor, ceil)
    }
    every = {*range(1, min(ceil(near[1]), ALL_TIMED) + 1), *seldom, *divisors(max(1, round(share)))}
    least, most = field_bounds(Recipe, "micro_batch")
    return sorted(size for size in every if least <= size <= most)


def _fastest(fitting: list[Attempt], tokens: int) -> Steps[Attempt]:
    """The fastest of those that come near enough; of equally fast ones the one with the smallest micro-batch."""
    misses = {attempt.value: abs(_tokens_of(attempt.question) - tokens) / tokens for attempt in fitting}
    enough = max(NEAR_FRACTION, min(misses.values()))
    near = [attempt for attempt in fitting if misses[attempt.value] <= enough]
    speeds: dict[int, float] = {}
    for attempt in near:
        speeds[attempt.value] = estimate(attempt.question).step.tokens_per_s_per_gpu.value
        yield None
    fastest = max(speeds.values())
    return next(attempt for attempt in near if isclose(speeds[attempt.value], fastest, rel_tol=1e-9))


def _next_larger(micro_batch: int, attempts: Attempts) -> Steps[Attempt | None]:
    """The next larger micro-batch that will not do: one of the next few, else where the threshold is."""
    larger = range(micro_batch + 1, field_bounds(Recipe, "micro_batch")[1] + 1)
    for value in larger[:BATCHES_AHEAD]:
        attempt = yield from attempts.at(value)
        if attempt.is_legal and not attempt.will_do:
            return attempt
    return (yield from largest_that_will_do(larger, attempts)).beyond


def _in_sequences(attempt: Attempt | None) -> Attempt | None:
    """An attempt whose value is its global batch, not its micro-batch."""
    return None if attempt is None else replace(attempt, value=attempt.question.recipe.global_batch or 0)


def _tokens_of(question: Question) -> int:
    return configuration_of(question).question.recipe.global_batch_tokens


def _plan_of(question: Question, requested: int) -> tuple[BatchPlan, tuple[str, ...]]:
    """A batch factor by factor, and warnings about it."""
    recipe, data = question.recipe, replicas_of(question)
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
        wanted_tokens=requested,
        best_tokens=None if total is None else best_batch_tokens(total),
    )
    return plan, critical_warnings(tokens, result.parameters.active, run)
