"""What happens to a request between the router and its route? It is named, its caller is judged and counted."""

from fastapi import Request

from service.api.access import is_limited
from service.api.callers import CALLER
from service.api.deprecations import deprecation_headers
from service.api.keys import BY_LINK, is_locked, refuse_strangers
from service.api.problems import ApiError
from service.api.rate_limits import Policy, RateLimits, network_of, refusal_after
from service.api.seen import Seen, seen_of
from service.workflows.callers import Caller


async def enter(request: Request) -> None:
    """Let a request through to its route, or refuse it.

    Args:
        request: the request

    Raises:
        ApiError: its caller may not do this, asks too often, or cannot be told
    """
    route, seen = request.scope["route"], seen_of(request)
    seen.route = route.path_format
    seen.headers.extend(deprecation_headers(route.operation_id))
    state = request.app.state
    limits: RateLimits | None = state.rate_limits
    is_counted = limits is not None and (is_locked(state.keys, state.tokens) or state.is_public)
    if limits is None or not is_counted or not is_limited(route.operation_id, request.method):
        await refuse_strangers(request)
        return
    try:
        await refuse_strangers(request)
    except ApiError:
        await _count(request, limits, seen, None)
        raise
    caller: Caller = request.scope["state"].get(CALLER, BY_LINK)
    await _count(request, limits, seen, None if caller == BY_LINK else caller.id)


async def _count(request: Request, limits: RateLimits, seen: Seen, key_id: str | None) -> None:
    """Count a request of the holder of a key, or of an address; refuse it where it is too many."""
    policy: Policy = "address" if key_id is None else "default"
    host = request.client.host if request.client else ""
    standing = await limits.take(policy, network_of(host) if key_id is None else key_id)
    seen.headers.extend(limits.headers(policy, standing))
    if standing.retry_seconds:
        request.app.state.metrics.rate_limit_refusals.labels(policy).inc()
        raise refusal_after(standing)
