"""Request counts: a leaky bucket per caller, stored as the time at which it is empty.

Each request moves that time ahead. A request exceeds the limit where the time would be further ahead than a full
bucket takes to leak (the generic cell rate algorithm).
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor
from time import monotonic
from typing import Protocol

MOST_CALLERS = 100_000
"""Callers that one process remembers, the most recent ones; some 20 MB. Source: a choice."""
SLACK_SECONDS = 1e-6
"""Rounding tolerance of sums of times, so that a whole burst always passes. Source: doubles of seconds since 1970 are
2.4e-7 s apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Rate limit of one caller."""

    burst: int
    """Requests at once after a pause."""
    interval_seconds: float
    """Time after which one more is allowed."""

    @property
    def window_seconds(self) -> int:
        """Time after which a whole burst is allowed again."""
        return max(1, ceil(self.burst * self.interval_seconds))


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a caller may send after a request."""

    remaining: int
    """Requests allowed at once."""
    reset_seconds: float
    """Time until a whole burst is allowed again."""
    retry_seconds: float


class Counts(Protocol):
    """A counter of requests, local or shared."""

    async def take(self, caller: str, limit: Limit, cost: int = 1) -> Allowance | None:
        """Count a request; None where it cannot be counted now."""

    async def close(self) -> None:
        """Close its connections."""


def count_in_bucket(empty_at: float, now: float, limit: Limit, cost: int = 1) -> tuple[float, Allowance]:
    """Count one request.

    >>> count_in_bucket(0.0, 100.0, Limit(burst=10, interval_seconds=2.0))
    (102.0, Allowance(remaining=9, reset_seconds=2.0, retry_seconds=0.0))
    >>> count_in_bucket(119.0, 100.0, Limit(burst=10, interval_seconds=2.0))
    (119.0, Allowance(remaining=0, reset_seconds=19.0, retry_seconds=1.0))
    >>> count_in_bucket(112.0, 100.0, Limit(burst=10, interval_seconds=2.0), cost=5)
    (112.0, Allowance(remaining=4, reset_seconds=12.0, retry_seconds=2.0))
    """
    full_seconds = limit.burst * limit.interval_seconds
    before = max(empty_at, now)
    after = before + cost * limit.interval_seconds
    excess_seconds = after - now - full_seconds
    is_too_many = excess_seconds > SLACK_SECONDS
    counted = before if is_too_many else after
    left = max(0, floor((now + full_seconds - counted + SLACK_SECONDS) / limit.interval_seconds))
    allowance = Allowance(left, counted - now, excess_seconds if is_too_many else 0.0)
    return empty_at if is_too_many else after, allowance


class LocalCounts:
    """Request counts of this process."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def take(self, caller: str, limit: Limit, cost: int = 1) -> Allowance:
        """Count a request."""
        known = self._empty_at
        known[caller], allowance = count_in_bucket(known.get(caller, 0.0), self._clock(), limit, cost)
        known.move_to_end(caller)
        if len(known) > MOST_CALLERS:
            known.popitem(last=False)
        return allowance
