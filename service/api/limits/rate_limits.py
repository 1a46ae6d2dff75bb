"""Rate limits per caller: a long-run rate, with bursts of a whole sheet's cells.

Nothing is waited for where this process counts alone; where replicas count together, `shared_limits.py` does it.

The first question of a request is counted before its route begins. The route counts the others once it has read how
many there are, and before it answers any.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv6Address, ip_address
from math import ceil
from typing import Literal

from anyio import from_thread
from fastapi import Request

from service.api.access.authorization import AccessDenied
from service.api.limits.request_counts import Allowance, Counts, Limit, LocalCounts
from service.api.metrics import Metrics
from service.api.request_context import RawHeader, context_of
from service.errors import StartupError
from service.settings import Settings
from service.store import ApiKey

Policy = Literal["default", "key", "address", "worker"]
"""Who is counted: the holder of a key or a token, a key with limits of its own, or, without either, an address; the
workers of any of these are counted on their own."""

WITHOUT_REDIS = (
    "TRAINCOST_REDIS_URL needs the client of Redis: pip install '.[replicas]' in the folder of traincost's source"
)

IPV6_NETWORK_BITS = 64
"""What of an IPv6 address tells callers apart: a network of this size is one subscriber's. Source: RFC 6177."""


class TooManyRequests(AccessDenied):
    """The caller has asked too often: 429, or its text in a cell that asks for that."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Somebody whose requests are counted."""

    policy: Policy
    """Whose limit it is."""
    caller: str
    """Id of the key, subject of the token, or address."""
    limit: Limit
    """What they may ask."""


class RateLimits:
    """What callers of one application may ask."""

    def __init__(
        self, settings: Settings, shared: Counts | None = None, fall_back: Callable[[], None] = lambda: None
    ) -> None:
        self._settings = settings
        self._own = LocalCounts()
        self._shared, self._fall_back = shared, fall_back
        self._limit = limit_of(settings)
        self._worker_limit = _limit(settings.worker_requests_per_minute, settings.worker_request_burst)

    def of_address(self, host: str) -> Quota | None:
        """Whoever asks from an address."""
        return None if self._limit is None else Quota("address", network_of(host), self._limit)

    def of_caller(self, caller: str, key: ApiKey | None) -> Quota | None:
        """Whoever is known."""
        if key is None or not has_own_limits(key):
            return None if self._limit is None else Quota("default", caller, self._limit)
        own = limit_of(self._settings, key)
        return None if own is None else Quota("key", caller, own)

    def of_worker(self, caller: str, key: ApiKey | None) -> Quota | None:
        """The workers of one caller."""
        own = key is not None and has_own_limits(key)
        limit = limit_of(self._settings, key) if own else self._worker_limit
        return None if limit is None else Quota("worker", caller, limit)

    async def take(self, counted: Quota, cost: int = 1) -> Allowance:
        """Count a request."""
        name = f"{counted.policy}:{counted.caller}"
        if self._shared is not None:
            standing = await self._shared.take(name, counted.limit, cost)
            if standing is not None:
                return standing
            self._fall_back()
        return self._own.take(name, counted.limit, cost)

    async def close(self) -> None:
        """Let go of what counts for all replicas."""
        if self._shared is not None:
            await self._shared.close()


def limit_headers(counted: Quota, standing: Allowance) -> tuple[RawHeader, RawHeader]:
    """What an answer tells of the limit.

    Source: draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4 (structured fields of RFC 9651).
    """
    policy, limit = counted.policy, counted.limit
    quota = f'"{policy}";q={limit.burst};w={limit.window_seconds}'
    left = f'"{policy}";r={standing.remaining};t={ceil(standing.reset_seconds)}'
    return (b"ratelimit-policy", quota.encode()), (b"ratelimit", left.encode())


def has_own_limits(key: ApiKey) -> bool:
    """Whether a key has limits of its own."""
    return key.requests_per_minute is not None or key.request_burst is not None


def limit_of(settings: Settings, key: ApiKey | None = None) -> Limit | None:
    """What somebody may ask: what their key says, and the settings where it says nothing.

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


def rate_limits_of(settings: Settings, metrics: Metrics) -> RateLimits:
    """What callers of an application may ask."""
    if settings.redis_url is None:
        return RateLimits(settings)
    if not has_redis():
        raise StartupError(WITHOUT_REDIS)
    from service.api.limits.shared_limits import SharedCounts

    return RateLimits(settings, SharedCounts(settings.redis_url), metrics.rate_limit_fallbacks.inc)


def has_redis() -> bool:
    """Whether replicas could count together."""
    return find_spec("redis") is not None


def too_many_requests(standing: Allowance, asked: int = 1) -> TooManyRequests:
    """The refusal of a request that is too many."""
    wait_seconds = max(1, ceil(standing.retry_seconds))
    detail = f"too many requests came from this caller; ask again in {wait_seconds} s"
    if asked > 1:
        detail = (
            f"this counts as {asked} requests, and its caller may send {standing.remaining} now; "
            f"ask again in {wait_seconds} s, or less at once"
        )
    return TooManyRequests("rate_limited", detail, {"Retry-After": str(wait_seconds)})


def network_of(host: str) -> str:
    """What of an address is counted.

    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3::4")
    ('192.0.2.7', '2001:db8:1:2::')
    """
    if ":" not in host:
        return host
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(found, IPv6Address):
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    beside = 128 - IPV6_NETWORK_BITS
    return str(IPv6Address(int(found) >> beside << beside))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address to listen on."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


QUOTA = "counted"
"""Name of whose requests are counted in the state of a request."""


async def count_request(request: Request, counted: Quota | None) -> None:
    """Count a request, and tell its caller where they stand."""
    if counted is None:
        return
    standing = await _count(request, counted, 1)
    if standing.retry_seconds:
        raise too_many_requests(standing)
    request.scope["state"][QUOTA] = counted


async def count_questions(request: Request, questions: int) -> None:
    """Count what a request asks beside its first question.

    Where there are more than its caller may ever send at once, it costs all of that.
    """
    counted: Quota | None = request.scope["state"].get(QUOTA)
    if counted is None:
        return
    cost = min(questions, counted.limit.burst)
    if cost <= 1:
        return
    standing = await _count(request, counted, cost - 1)
    if standing.retry_seconds:
        again = standing.retry_seconds + counted.limit.interval_seconds  # then its first one is counted again
        raise too_many_requests(Allowance(standing.remaining, standing.reset_seconds, again), cost)


def question_counter(request: Request) -> Callable[[int], None]:
    """What counts the questions of a request whose route runs in a thread."""
    return lambda questions: from_thread.run(count_questions, request, questions)


async def _count(request: Request, counted: Quota, cost: int) -> Allowance:
    limits: RateLimits = request.app.state.rate_limits
    standing = await limits.take(counted, cost)
    context_of(request).limit_headers = limit_headers(counted, standing)
    if standing.retry_seconds:
        request.app.state.metrics.rate_limit_refusals.labels(counted.policy).inc()
    return standing
