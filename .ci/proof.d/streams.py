"""Events lost or doubled by 500 streams of launch checks that are cut and resumed; estimates beside them."""

import argparse
import asyncio
import sys
import tempfile
from itertools import count
from pathlib import Path
from random import Random
from statistics import quantiles

from tests.api.asking import QUESTION
from tests.load import Request, keep_asking, post, serving
from tests.streams import Checks, Heard, checks, found, listen

EVENTS = 20
PAUSE_SECONDS = 1.0
"""Between two events of each launch check."""
ASKING_SECONDS = 10.0
WHOLE_SECONDS = 400.0
MOST_MEDIAN_SECONDS = 0.05
"""Of an estimate beside all streams, while they are quiet."""
EACH = 10
"""Listeners of one launch check."""

_numbers = count()


def next_estimate() -> Request:
    """A question that nobody asked before."""
    return post("/v1/estimates", {**QUESTION, "price": {"usd_per_gpu_hour": 2 + next(_numbers) / 1e6}})


async def timed(address: str, said: str, seconds: float = ASKING_SECONDS) -> float:
    """Median time of an estimate, asked by one client with pauses [second]."""
    asked = await keep_asking(address, 1, seconds, next_estimate, 0.02)
    if asked.faults:
        sys.exit(f"estimates {said}: {asked.faults}")
    took = quantiles([took for _, took in asked.seconds], n=100)
    print(f"estimates {said}: p50 {1e3 * took[49]:.1f} ms, p99 {1e3 * took[98]:.1f} ms of {len(asked.seconds)}")
    return took[49]


async def told(made: Checks) -> None:
    """Everything that happens, while others listen."""
    for place in range(EVENTS):
        await asyncio.to_thread(made.tell, place / EVENTS)
        await asyncio.sleep(PAUSE_SECONDS)
    await asyncio.to_thread(made.finish)


async def measured(address: str, made: Checks, streams: int) -> tuple[list[Heard], float]:
    """What listeners heard, and the median of estimates beside them while nothing happens [second]."""
    await timed(address, "alone")
    heard = [Heard(made.ids[place % len(made.ids)]) for place in range(streams)]
    async with asyncio.TaskGroup() as group:
        for place, one in enumerate(heard):
            group.create_task(listen(address, one, Random(place), WHOLE_SECONDS, 15.0))  # noqa: S311 - repeatable
        await asyncio.sleep(3.0)
        quiet = await timed(address, f"beside {streams} streams that say nothing and are cut now and then")
        telling = group.create_task(told(made))
        await timed(address, f"beside {streams} streams that tell")
        await telling
    return heard, quiet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    streams = parser.parse_args().streams
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as replica,
        checks(replica.address, max(streams // EACH, 1)) as made,
    ):
        heard, quiet = asyncio.run(measured(replica.address, made, streams))
    faults = found(heard, made.events)
    cuts = sum(one.cuts for one in heard)
    events = sum(len(one.events) for one in heard)
    print(f"{streams} streams of {len(made.ids)} launch checks, cut {cuts} times, {events} events: {dict(faults)}")
    if faults.total() or not cuts or quiet > MOST_MEDIAN_SECONDS:
        sys.exit("events are lost or doubled, or estimates wait for streams")


if __name__ == "__main__":
    main()
