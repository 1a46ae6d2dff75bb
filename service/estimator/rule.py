"""Named rules: a condition that broadcasts over layouts, or a demand of one question, and its message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import Problem
from service.estimator.complete import PLAIN_LAYOUT, CompleteLayout
from service.estimator.degrees import Degrees
from service.estimator.numeric import Condition
from service.estimator.workload import Workload

MOST_PRIME = 1 << 16
"""Largest prime that divisors are taken apart by; what larger ones make up together counts as one.
Source: a choice; no degree, and no useful length, has a larger one."""


def divisors(number: int) -> list[int]:
    """The divisors of a number, ascending. Those alone that hold all or none of its prime factors beyond MOST_PRIME.

    >>> divisors(12), divisors(2 * 1_000_003)
    ([1, 2, 3, 4, 6, 12], [1, 2, 1000003, 2000006])
    """
    results, rest, prime = [1], number, 2
    while rest > 1 and prime <= MOST_PRIME:
        prime = prime if prime * prime <= rest else rest
        powers = [1]
        while rest % prime == 0:
            rest //= prime
            powers.append(powers[-1] * prime)
        results = [one * power for one in results for power in powers]
        prime += 1
    return sorted({*results, *(one * rest for one in results)})


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition that every legal layout meets."""

    name: str
    """Code of the refusal."""
    field: str
    """Field to blame."""
    holds: Callable[[Workload, Degrees], Condition]
    """The condition, for one layout or a column of them."""
    words: Callable[[Workload, Degrees], tuple[str, str]]
    """What is wrong with the numbers and why it matters; what to do."""


def broken_rules(rules: tuple[Rule, ...], workload: Workload, degrees: Degrees) -> tuple[Problem, ...]:
    """The rules that one layout breaks, as problems."""
    problems = []
    for rule in rules:
        if not rule.holds(workload, degrees):
            message, fix = rule.words(workload, degrees)
            problems.append(Problem(field=rule.field, code=rule.name, message=message, fix=fix))
    return tuple(problems)


Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Demand(Generic[Subject]):
    """One condition on the nouns themselves, whatever the degrees: on a model alone, or on a whole job."""

    name: str
    """Code of the refusal."""
    field: str
    """Field to blame."""
    holds: Callable[[Subject, CompleteLayout], bool]
    """The condition."""
    words: Callable[[Subject, CompleteLayout], tuple[str, str]]
    """What is wrong and why it matters; what to do."""


def unmet_demands(
    demands: tuple[Demand[Subject], ...], subject: Subject, layout: CompleteLayout = PLAIN_LAYOUT
) -> tuple[Problem, ...]:
    """The demands that a question does not meet, as problems."""
    problems = []
    for demand in demands:
        if not demand.holds(subject, layout):
            message, fix = demand.words(subject, layout)
            problems.append(Problem(field=demand.field, code=demand.name, message=message, fix=fix))
    return tuple(problems)


def divisors_of(number: int, limit: int = 12) -> str:
    """The divisors of a number for a sentence, at most `limit` of them.

    >>> divisors_of(28)
    '1, 2, 4, 7, 14 or 28'
    """
    every = divisors(number)
    if len(every) > limit:
        return ", ".join(str(d) for d in every[:limit]) + ", ..."
    if len(every) == 1:
        return str(every[0])
    return ", ".join(str(d) for d in every[:-1]) + f" or {every[-1]}"
