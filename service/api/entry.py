"""Authentication and counting of a request, between the router and its route.

Only then its body is read, whole: what breaks off, is too long or comes too late reaches no route.
"""

from fastapi import HTTPException, Request

from service.api.errors import ApiError
from service.api.rate_limits import Counted, RateLimits, charge, network_of
from service.api.request_context import context_of, deprecation_headers
from service.api.security import BY_LINK, CALLER, OF_WORKERS, OPEN, is_limited, is_locked, refuse_strangers
from service.store import ApiKey
from service.store.keys import Caller


async def enter(request: Request) -> None:
    """Let a request through to its route, or refuse it."""
    if any("\0" in str(value) for value in request.path_params.values()):
        raise HTTPException(404)  # no name has one, and no text of PostgreSQL
    route, seen = request.scope["route"], context_of(request)
    seen.route = route.path_format
    seen.headers.extend(deprecation_headers(route.operation_id))
    state = request.app.state
    is_open = not is_locked(state.keys, state.tokens)
    if is_open and route.operation_id not in OPEN:
        state.foreign_pages.refuse(request.scope)
    is_asked = is_limited(route.operation_id, request.method)
    if is_asked and (state.is_public or not is_open):
        await _count(request, state.rate_limits)
    else:
        await refuse_strangers(request)
    if is_asked and request.method != "GET" and route.operation_id not in OF_WORKERS:
        await request.body()


async def _count(request: Request, limits: RateLimits) -> None:
    """Judge the caller of a request, and count it, whether or not it is let through."""
    try:
        key = await refuse_strangers(request)
    except ApiError:
        await charge(request, _counted(request, limits, BY_LINK, None))
        raise
    await charge(request, _counted(request, limits, request.scope["state"].get(CALLER, BY_LINK), key))


def _counted(request: Request, limits: RateLimits, caller: Caller, key: ApiKey | None) -> Counted | None:
    """Who is counted: the holder of a key or a token; or the address of whoever needs neither."""
    host = request.client.host if request.client else ""
    if request.scope["route"].operation_id in OF_WORKERS:
        return limits.of_worker(network_of(host) if caller == BY_LINK else caller.id, key)
    return limits.of_address(host) if caller == BY_LINK else limits.of_caller(caller.id, key)
