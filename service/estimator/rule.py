"""Named rules of a question, and the refusal of what breaks them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from service.errors import Problem
from service.estimator.complete import CompleteLayout
from service.estimator.degrees import Degrees
from service.estimator.numeric import Condition
from service.estimator.refusals import refusal
from service.estimator.workload import Workload

Subject = TypeVar("Subject")
Division = TypeVar("Division")

MOST_PRIME = 1 << 16
"""Largest prime that divisors are taken apart by; what larger ones make up together counts as one.
Source: a choice; no degree, and no useful length, has a larger one."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject, Division]):
    """One condition on a subject and its division: a workload (w) with its layout or degrees (d), or a model."""

    holds: Callable[[Subject, Division], Condition]
    """The condition; for a column of degrees, one answer for each layout."""
    words: Callable[[Subject, Division], dict[str, object]] = lambda *_: {}
    """Words of its refusal that are computed."""


LayoutRule: TypeAlias = Rule[Workload, Degrees]
WorkloadRule: TypeAlias = Rule[Workload, CompleteLayout]


def problems_of(
    rules: Mapping[str, Rule[Subject, Division]], subject: Subject, division: Division
) -> tuple[Problem, ...]:
    """The rules that one subject and its division break, as problems; a rule's name is the code of its refusal."""
    return tuple(
        refusal(name, subject=subject, division=division, **rule.words(subject, division))
        for name, rule in rules.items()
        if not rule.holds(subject, division)
    )


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
