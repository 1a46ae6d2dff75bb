"""How often may one caller ask? As often as a limit says in the long run, and a whole sheet's cells at once.

Nothing is waited for where this process counts alone; where replicas count together, `shared_limits.py` does it.
"""

from collections.abc import Callable
from importlib.util import find_spec
from ipaddress import IPv6Address, ip_address
from math import ceil
from typing import Literal

from service.api.keys import NotAllowed
from service.api.metrics import Metrics
from service.api.request_counts import Counts, Limit, OwnCounts, Standing
from service.api.seen import RawHeader
from service.errors import StartupError
from service.settings import Settings

Policy = Literal["default", "address"]
"""Who is counted: the holder of a key, or, where there is none, an address."""

WITHOUT_REDIS = (
    "TRAINCOST_REDIS_URL needs the client of Redis: pip install '.[replicas]' in a checkout, or 'traincost[replicas]' "
    "of a release"
)

IPV6_NETWORK_BITS = 64
"""What of an IPv6 address tells callers apart: a network of this size is one subscriber's. Source: RFC 6177."""


class TooManyRequests(NotAllowed):
    """The caller has asked too often: 429, or its text in a cell that asks for that."""


class RateLimits:
    """What callers of one application may ask.

    Args:
        limit: what each may ask
        shared: what counts for all replicas; None where each counts alone
        fall_back: called for each request that this process counts alone although it should not have to
    """

    def __init__(
        self, limit: Limit, shared: Counts | None = None, fall_back: Callable[[], None] = lambda: None
    ) -> None:
        self.limit = limit
        self._own = OwnCounts(limit)
        self._shared, self._fall_back = shared, fall_back

    async def take(self, policy: Policy, caller: str) -> Standing:
        """Count a request.

        Args:
            policy: who is counted
            caller: id of the key, or the address

        Returns:
            where the caller stands
        """
        name = f"{policy}:{caller}"
        if self._shared is not None:
            standing = await self._shared.take(name)
            if standing is not None:
                return standing
            self._fall_back()
        return self._own.take(name)

    async def close(self) -> None:
        """Let go of what counts for all replicas."""
        if self._shared is not None:
            await self._shared.close()

    def headers(self, policy: Policy, standing: Standing) -> tuple[RawHeader, RawHeader]:
        """What an answer tells of the limit.

        Source: draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4 (structured fields of RFC 9651).

        Args:
            policy: who is counted
            standing: where the caller stands

        Returns:
            RateLimit-Policy and RateLimit
        """
        quota = f'"{policy}";q={self.limit.burst};w={self.limit.window_seconds}'
        left = f'"{policy}";r={standing.remaining};t={ceil(standing.reset_seconds)}'
        return (b"ratelimit-policy", quota.encode()), (b"ratelimit", left.encode())


def rate_limits_of(settings: Settings, metrics: Metrics) -> RateLimits | None:
    """What callers of an application may ask.

    Args:
        settings: how the process is set up
        metrics: what counts how often Redis was away

    Returns:
        the limits; None where there are none

    Raises:
        StartupError: replicas are to count together, and what that needs is not installed
    """
    if not settings.requests_per_minute:
        return None
    limit = Limit(burst=settings.request_burst, interval_seconds=60.0 / settings.requests_per_minute)
    if settings.redis_url is None:
        return RateLimits(limit)
    if not has_redis():
        raise StartupError(WITHOUT_REDIS)
    from service.api.shared_limits import SharedCounts

    return RateLimits(limit, SharedCounts(settings.redis_url, limit), metrics.rate_limit_fallbacks.inc)


def has_redis() -> bool:
    """Whether replicas could count together.

    Returns:
        true where Redis's client is installed
    """
    return find_spec("redis") is not None


def refusal_after(standing: Standing) -> TooManyRequests:
    """The refusal of a request that is too many.

    Args:
        standing: where its caller stands

    Returns:
        what to raise
    """
    wait_seconds = max(1, ceil(standing.retry_seconds))
    detail = f"too many requests came from this caller; ask again in {wait_seconds} s, many questions in one /v1/batch"
    return TooManyRequests("rate_limited", detail, {"Retry-After": str(wait_seconds)})


def network_of(host: str) -> str:
    """What of an address is counted.

    Args:
        host: address of a caller

    Returns:
        the address itself, or the network of an IPv6 address; what is no address as it is

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
    """Whether only this machine reaches an address to listen on.

    Args:
        host: name or address

    Returns:
        false for a name of which that is not known
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
