"""What does a request cost its caller? One request, and each question beyond the first that it asks at once another.

The first is counted before the route begins, whatever the request holds; the others by the route, once it has read how
many there are, and before it answers any.
"""

from collections.abc import Callable

from anyio import from_thread
from fastapi import Request

from service.api.rate_limits import Counted, RateLimits, limit_headers, refusal_after
from service.api.request_counts import Standing
from service.api.seen import seen_of

COUNTED = "counted"
"""Name of whose requests are counted in the state of a request."""


async def charge(request: Request, counted: Counted | None) -> None:
    """Count a request, and tell its caller where they stand.

    Args:
        request: the request
        counted: who sent it; None where nobody is counted

    Raises:
        TooManyRequests: it is too many
    """
    if counted is None:
        return
    standing = await _taken(request, counted, 1)
    if standing.retry_seconds:
        raise refusal_after(standing)
    request.scope["state"][COUNTED] = counted


async def charge_questions(request: Request, questions: int) -> None:
    """Count what a request asks beside its first question.

    Where there are more than its caller may ever send at once, it costs all of that.

    Args:
        request: the request, counted once
        questions: how many it asks

    Raises:
        TooManyRequests: they are too many
    """
    counted: Counted | None = request.scope["state"].get(COUNTED)
    if counted is None:
        return
    cost = min(questions, counted.limit.burst)
    if cost <= 1:
        return
    standing = await _taken(request, counted, cost - 1)
    if standing.retry_seconds:
        again = standing.retry_seconds + counted.limit.interval_seconds  # then its first one is counted again
        raise refusal_after(Standing(standing.remaining, standing.reset_seconds, again), cost)


def charging(request: Request) -> Callable[[int], None]:
    """What counts the questions of a request whose route runs in a thread.

    Args:
        request: the request

    Returns:
        takes how many it asks, and raises TooManyRequests where they are too many
    """
    return lambda questions: from_thread.run(charge_questions, request, questions)


async def _taken(request: Request, counted: Counted, cost: int) -> Standing:
    limits: RateLimits = request.app.state.rate_limits
    standing = await limits.take(counted, cost)
    seen_of(request).limit_headers = limit_headers(counted, standing)
    if standing.retry_seconds:
        request.app.state.metrics.rate_limit_refusals.labels(counted.policy).inc()
    return standing
