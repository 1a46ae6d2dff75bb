"""Rate limits that replicas share in Redis; without Redis each replica counts alone."""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from service.api.limits.rate_limits import SLACK_SECONDS, Allowance, Limit, count_in_bucket

ANSWER_SECONDS = 0.1
"""Longest wait for Redis, for a connection to it, and for a free one. Source: a choice; it answers within 1 ms."""
PING_SECONDS = 1.0
"""Time between two pings while Redis is away. Source: a choice."""
MOST_CONNECTIONS = 64
PREFIX = "traincost:limit:"

COUNT = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local step, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local empty = math.min(tonumber(redis.call('GET', KEYS[1]) or '0'), now + most)
local after = math.max(empty, now) + step
if after - now <= most then
  redis.call('SET', KEYS[1], string.format('%.17g', after), 'PX', math.ceil((after - now) * 1000))
end
return {string.format('%.17g', empty), string.format('%.17g', now)}
"""
"""Read the moment at which a bucket is empty, and move it where the request is allowed: `count_in_bucket` in Lua.

The moment is at most a full bucket ahead, so that no caller waits longer after Redis's clock was set back."""

log = logging.getLogger(__name__)


class SharedCounts:
    """Request counts of all replicas together."""

    def __init__(self, url: str, clock: Callable[[], float] = monotonic) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MOST_CONNECTIONS,
            timeout=ANSWER_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis(connection_pool=pool)
        self._count = self._redis.register_script(COUNT)
        self._clock = clock
        self._is_away = False
        self._next_ping_at = 0.0
        self._ping: asyncio.Task[None] | None = None

    async def take(self, caller: str, limit: Limit, cost: int = 1) -> Allowance | None:
        """Count a request."""
        if self._is_away:
            self._ping_again()
            return None
        most_seconds = limit.burst * limit.interval_seconds + SLACK_SECONDS
        arguments = [cost * limit.interval_seconds, most_seconds]
        try:
            empty_at, now = await self._count(keys=[PREFIX + caller], args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            if not self._is_away:
                log.warning("Redis does not answer, so each replica counts requests alone: %s", type(error).__name__)
            self._is_away, self._next_ping_at = True, self._clock() + PING_SECONDS
            return None
        return count_in_bucket(float(empty_at), float(now), limit, cost)[1]

    async def close(self) -> None:
        if self._ping is not None:
            self._ping.cancel()
            await asyncio.wait([self._ping])
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    def _ping_again(self) -> None:
        if self._ping is None and self._clock() >= self._next_ping_at:
            self._ping = asyncio.create_task(self._send_ping())

    async def _send_ping(self) -> None:
        try:
            await self._redis.ping()
        except (RedisError, OSError, TimeoutError):
            self._next_ping_at = self._clock() + PING_SECONDS
        else:
            log.warning("Redis answers again, so replicas count requests together")
            self._is_away = False
        finally:
            self._ping = None


async def does_answer(url: str) -> bool:
    """Whether a Redis server answers."""
    counts = SharedCounts(url)
    try:
        return await counts.take("doctor", Limit(burst=1, interval_seconds=1.0)) is not None
    finally:
        await counts.close()
