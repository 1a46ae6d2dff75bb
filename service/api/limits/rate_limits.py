"""Rate limits per caller: a long-run rate, with bursts for all cells of a sheet."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from ipaddress import IPv6Address, ip_address
from math import ceil, floor
from time import monotonic
from typing import Literal, Protocol

from anyio import from_thread
from fastapi import Request

from service.api.access.authorization import AccessDenied
from service.api.request_context import RawHeader, context_of
from service.settings import Settings
from service.store.keys import ApiKey

MOST_CALLERS = 100_000
"""Callers that one process remembers, the most recent ones; some 20 MB. Source: a choice."""
SLACK_SECONDS = 1e-6
"""Rounding tolerance, so that a whole burst passes. Source: doubles of seconds since 1970 are 2.4e-7 s apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
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


Policy = Literal["default", "key", "address", "worker"]
"""Kind of quota: of a key or token, of a key with its own limits, or of an address without either; workers of any of
these have a separate quota."""

WITHOUT_REDIS = (
    "TRAINCOST_REDIS_URL needs the client of Redis: pip install '.[replicas]' in the folder of traincost's source"
)

IPV6_NETWORK_BITS = 64
"""Prefix of an IPv6 address that identifies a caller: the network of one subscriber. Source: RFC 6177."""


class TooManyRequests(AccessDenied):
    """Too many requests: 429, or its text in a spreadsheet cell."""


@dataclass(frozen=True, slots=True)
class Quota:
    policy: Policy
    caller: str
    """Id of the key, subject of the token, or address."""
    limit: Limit


class RateLimits:
    def __init__(
        self, settings: Settings, shared: Counts | None = None, fall_back: Callable[[], None] = lambda: None
    ) -> None:
        self._settings = settings
        self._own = LocalCounts()
        self._shared, self._fall_back = shared, fall_back
        self._limit = limit_of(settings)
        self._worker_limit = _limit(settings.worker_requests_per_minute, settings.worker_request_burst)

    def of_address(self, host: str) -> Quota | None:
        """Quota of a network address; None without a limit."""
        return None if self._limit is None else Quota("address", network_of(host), self._limit)

    def of_caller(self, caller: str, key: ApiKey | None) -> Quota | None:
        """Quota of an authenticated caller; None without a limit."""
        if key is None or not has_own_limits(key):
            return None if self._limit is None else Quota("default", caller, self._limit)
        own = limit_of(self._settings, key)
        return None if own is None else Quota("key", caller, own)

    def of_worker(self, caller: str, key: ApiKey | None) -> Quota | None:
        """Quota of a caller's workers; None without a limit."""
        own = key is not None and has_own_limits(key)
        limit = limit_of(self._settings, key) if own else self._worker_limit
        return None if limit is None else Quota("worker", caller, limit)

    async def take(self, quota: Quota, cost: int = 1) -> Allowance:
        """Count a request."""
        name = f"{quota.policy}:{quota.caller}"
        if self._shared is not None:
            allowance = await self._shared.take(name, quota.limit, cost)
            if allowance is not None:
                return allowance
            self._fall_back()
        return self._own.take(name, quota.limit, cost)

    async def close(self) -> None:
        """Close the connections to Redis."""
        if self._shared is not None:
            await self._shared.close()


def limit_headers(quota: Quota, allowance: Allowance) -> tuple[RawHeader, RawHeader]:
    """Rate limit headers of an answer. Source: draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4."""
    policy, limit = quota.policy, quota.limit
    size = f'"{policy}";q={limit.burst};w={limit.window_seconds}'
    left = f'"{policy}";r={allowance.remaining};t={ceil(allowance.reset_seconds)}'
    return (b"ratelimit-policy", size.encode()), (b"ratelimit", left.encode())


def has_own_limits(key: ApiKey) -> bool:
    """Whether a key overrides the service's limits."""
    return key.requests_per_minute is not None or key.request_burst is not None


def limit_of(settings: Settings, key: ApiKey | None = None) -> Limit | None:
    """The limit of a key, with the settings for what it does not override; None for no limit.

    >>> limit_of(Settings(database_url="sqlite://", requests_per_minute=60, request_burst=5))
    Limit(burst=5, interval_seconds=1.0)
    """
    per_minute, burst = settings.requests_per_minute, settings.request_burst
    if key is not None:
        per_minute = per_minute if key.requests_per_minute is None else key.requests_per_minute
        burst = burst if key.request_burst is None else key.request_burst
    return _limit(per_minute, burst)


def _limit(per_minute: int, burst: int) -> Limit | None:
    return Limit(burst=burst, interval_seconds=60.0 / per_minute) if per_minute else None


def has_redis() -> bool:
    """Whether the Redis client is installed."""
    return find_spec("redis") is not None


def too_many_requests(allowance: Allowance, cost: int = 1) -> TooManyRequests:
    """The 429 of a request beyond its quota."""
    wait_seconds = max(1, ceil(allowance.retry_seconds))
    detail = f"too many requests came from this caller; ask again in {wait_seconds} s"
    if cost > 1:
        detail = (
            f"this counts as {cost} requests, and its caller may send {allowance.remaining} now; "
            f"ask again in {wait_seconds} s, or less at once"
        )
    return TooManyRequests("rate_limited", detail, {"Retry-After": str(wait_seconds)})


def network_of(host: str) -> str:
    """The part of an address that identifies a caller.

    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3::4")
    ('192.0.2.7', '2001:db8:1:2::')
    """
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    host_bits = 128 - IPV6_NETWORK_BITS
    return str(IPv6Address(int(address) >> host_bits << host_bits))


def is_loopback(host: str) -> bool:
    """Whether a listening address is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


QUOTA = "quota"


async def count_request(request: Request, quota: Quota | None) -> None:
    """Count a request, and set its rate limit headers."""
    if quota is not None:
        await _count(request, quota)
        request.scope["state"][QUOTA] = quota


async def count_questions(request: Request, questions: int) -> None:
    """Count the questions of a request beside its first one; a whole burst is the most that a request costs."""
    quota: Quota | None = request.scope["state"].get(QUOTA)
    cost = 0 if quota is None else min(questions, quota.limit.burst)
    if quota is not None and cost > 1:
        await _count(request, quota, cost)


def question_counter(request: Request) -> Callable[[int], None]:
    """`count_questions` for a route that runs on a thread."""
    return lambda questions: from_thread.run(count_questions, request, questions)


async def _count(request: Request, quota: Quota, cost: int = 1) -> None:
    """Count a request, or its questions beside the first one where it costs more; raise where they are too many."""
    limits: RateLimits = request.app.state.rate_limits
    allowance = await limits.take(quota, max(1, cost - 1))
    context_of(request).limit_headers = limit_headers(quota, allowance)
    if allowance.retry_seconds:
        request.app.state.metrics.rate_limit_refusals.labels(quota.policy).inc()
        again_seconds = quota.limit.interval_seconds if cost > 1 else 0.0  # a retry counts its first question again
        raise too_many_requests(replace(allowance, retry_seconds=allowance.retry_seconds + again_seconds), cost)
