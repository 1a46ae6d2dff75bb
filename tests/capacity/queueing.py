"""Waiting times of requests that arrive at a rate and are served in turn.

A replica answers one request after the other (its processor is one), so what comes meanwhile waits. Requests come
independently of each other: the times between them are exponential. Service times are those that were measured.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles

from tests.load import Found, Line, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long requests take."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What one request takes of a replica."""

    busy_seconds: tuple[float, ...]
    """Times for which a replica is busy with a request, as often as they are that long [second]."""
    aside_seconds: float
    """What passes beside that, on the way and in the client, without keeping the replica busy [second]."""

    @property
    def per_second(self) -> float:
        """Requests that a replica can answer at most [1/second]."""
        return 1.0 / mean(self.busy_seconds)


def service_of(alone_seconds: Sequence[float], busy_seconds: float) -> Service:
    """Service times behind those that one client measured alone, scaled to the mean of a busy replica."""
    scale = busy_seconds / mean(alone_seconds)
    aside_seconds = max(0.0, mean(alone_seconds) - busy_seconds)
    return Service(busy_seconds=tuple(one * scale for one in alone_seconds), aside_seconds=aside_seconds)


def simulated(service: Service, rate: float, replicas: int, requests: int, seed: int = 1) -> Times:
    """Times of requests that come at a rate and go to the replicas in turn; the first tenth is left out."""
    chance = random.Random(seed)  # noqa: S311 - a simulation that is the same each time
    is_free_at = [0.0] * replicas
    now, took = 0.0, []
    for number in range(requests):
        now += chance.expovariate(rate)
        replica = number % replicas
        ends = max(now, is_free_at[replica]) + chance.choice(service.busy_seconds)
        is_free_at[replica] = ends
        took.append(ends - now + service.aside_seconds)
    return times_of(took[requests // 10 :])


def times_of(seconds: Sequence[float]) -> Times:
    """Median and 99th percentile of times in seconds."""
    return Times(p50_ms=1e3 * median(seconds), p99_ms=1e3 * quantiles(seconds, n=100, method="inclusive")[-1])


async def ask_at(addresses: Sequence[str], rate: float, seconds: float, requests: Iterator[Request]) -> Found:
    """Ask at a rate whatever the answers take, each address in turn; time counts from when a request was due."""
    chance, found = random.Random(2), Found()  # noqa: S311 - the same each time
    free: dict[str, list[Line]] = {address: [] for address in addresses}
    began, due, number, under_way = time.monotonic(), 0.0, 0, set[asyncio.Task[None]]()

    async def ask(address: str, request: Request, due_at: float) -> None:
        line = free[address].pop() if free[address] else Line(address)
        try:
            status, _ = await line.ask(request)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            found.faults[type(error).__name__] += 1
            return
        found.note(request, status, due_at)
        free[address].append(line)

    while (due := due + chance.expovariate(rate)) < seconds:
        if (pause := began + due - time.monotonic()) > 0:
            await asyncio.sleep(pause)
        task = asyncio.create_task(ask(addresses[number % len(addresses)], next(requests), began + due))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        number += 1
    await asyncio.gather(*under_way)
    for lines in free.values():
        for line in lines:
            with contextlib.suppress(OSError):
                await line.close()
    return found
