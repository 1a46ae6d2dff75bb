"""Counts of requests: a leaky bucket, stored as one moment for each caller.

Each request moves the moment at which the caller's bucket is empty again, and is too many where that is further off
than a full bucket takes to leak (the generic cell rate algorithm).
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor
from time import monotonic
from typing import Protocol

MOST_CALLERS = 100_000
"""Callers that one process remembers, those that asked last; some 20 MB. Source: a choice."""
SLACK_SECONDS = 1e-6
"""What sums of moments may be off: so a whole burst is a whole burst by any clock. Source: doubles of seconds since
1970 stand 2.4e-7 s apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What one caller may ask."""

    burst: int
    """Requests at once, after a pause."""
    interval_seconds: float
    """Time in which one more is allowed."""

    @property
    def window_seconds(self) -> int:
        """Time in which a whole burst is allowed again."""
        return max(1, ceil(self.burst * self.interval_seconds))


@dataclass(frozen=True, slots=True)
class Allowance:
    """Where a caller stands after a request."""

    remaining: int
    """Requests that it may send at once."""
    reset_seconds: float
    """Time until it may send a whole burst again."""
    retry_seconds: float
    """Time after which to ask again; 0 where the request was not too many."""


class Counts(Protocol):
    """What counts requests of callers, wherever."""

    async def take(self, caller: str, limit: Limit, cost: int = 1) -> Allowance | None:
        """Count a request; None where it cannot be counted now."""

    async def close(self) -> None:
        """Let go of what it holds."""


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
    too_many_seconds = after - now - full_seconds
    is_too_many = too_many_seconds > SLACK_SECONDS
    kept = before if is_too_many else after
    left = max(0, floor((now + full_seconds - kept + SLACK_SECONDS) / limit.interval_seconds))
    standing = Allowance(left, kept - now, too_many_seconds if is_too_many else 0.0)
    return empty_at if is_too_many else after, standing


class LocalCounts:
    """The requests that this process was sent."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def take(self, caller: str, limit: Limit, cost: int = 1) -> Allowance:
        """Count a request."""
        known = self._empty_at
        known[caller], standing = count_in_bucket(known.get(caller, 0.0), self._clock(), limit, cost)
        known.move_to_end(caller)
        if len(known) > MOST_CALLERS:
            known.popitem(last=False)
        return standing
