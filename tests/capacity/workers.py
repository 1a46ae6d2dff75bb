"""A thousand workers of one replica: their cost, and how soon each gets a job.

They measure nothing: they wait for jobs, are heard of while they have one and hand it in, each over its own connection.
"""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from service.jobs.jobs import NewJob, create_jobs
from service.store.engine import open_engine
from service.worker.command import HEARTBEATS, LOST, MOST_WAIT_SECONDS
from tests.capacity.costs import KIND, Watched
from tests.capacity.queueing import Times, times_of
from tests.load import Line, Request, post

TAKEN = "the job is another's"
"""What a worker is told whose lease ran out."""
FINAL_SECONDS = 300.0
"""Longest wait for what has to come to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """What the workers asked in a while, and what that took."""

    seconds: float
    requests: float
    """Requests in a second."""
    processor_fraction: float
    """Of one core, by the replica."""
    database_fraction: float
    """Of one core, by PostgreSQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What became of many workers."""

    workers: int
    waiting: Spell
    """All wait for a job, and there is none."""
    busy: Spell
    """All have one and are heard of."""
    single: Times
    """Until a job that is alone is with one of those that wait."""
    all_claimed_seconds: float
    """Until as many jobs as there are workers, made in one moment, are all with one."""
    all_finished_seconds: float
    """Until all of them are handed in, begun in one moment."""
    heartbeat: Times
    """Answers to heartbeats."""
    faults: dict[str, int]
    """What was answered otherwise than wanted, and how often; a worker asks again then."""


@dataclass(slots=True)
class Workers:
    """Workers, as clients in one event loop."""

    address: str
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by what they were."""
    faults: Counter[str] = field(default_factory=Counter)
    claimed_at: dict[str, float] = field(default_factory=dict)
    """When the answer with a job was there."""
    heartbeat_seconds: list[float] = field(default_factory=list)
    finished: int = 0
    may_finish: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once all may hand in what they have."""

    async def work(self, name: str) -> None:
        """Do one job after the other, until somebody ends this."""
        line = Line(self.address)
        try:
            await self._work(line, name)
        finally:
            with contextlib.suppress(OSError):
                await line.close()

    async def _work(self, line: Line, name: str) -> None:
        said = {"worker": name, "kinds": [KIND], "wait_seconds": MOST_WAIT_SECONDS, "capabilities": {"cpu_threads": 2}}
        claim = post("/v1/worker/claim", said, 200, 204)
        while True:
            _, content = await self._asked(line, "claim", claim)
            if content:
                job = json.loads(content)["job"]
                self.claimed_at[job["id"]] = time.monotonic()
                await self._do(line, job)

    async def _do(self, line: Line, job: dict[str, Any]) -> None:
        path, held = f"/v1/worker/jobs/{job['id']}", {"lease": job["lease"]}
        for number in count():
            try:
                await asyncio.wait_for(self.may_finish.wait(), job["lease_seconds"] / HEARTBEATS)
                break
            except TimeoutError:
                began = time.monotonic()
                said = {**held, "progress": {"done": number}}
                status, _ = await self._asked(line, "heartbeat", post(f"{path}/heartbeat", said, 200, LOST))
                self.heartbeat_seconds.append(time.monotonic() - began)
                if status == LOST:
                    self.faults[TAKEN] += 1
                    return
        result = {"outcome": "succeeded", "result": {"rows": 1}}
        status, _ = await self._asked(line, "finish", post(f"{path}/finish", {**held, **result}, 204, LOST))
        self.faults[TAKEN] += status == LOST
        self.finished += status != LOST

    async def _asked(self, line: Line, what: str, request: Request) -> tuple[int, bytes]:
        """Status and content of an answer; asked again where there was none."""
        while True:
            self.asked[what] += 1
            try:
                status, content = await line.ask(request)
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                self.faults[f"{what}: {type(error).__name__}"] += 1
                await asyncio.sleep(1.0)
                continue
            if status not in request.statuses:
                self.faults[f"{what}: {status}"] += 1
                await asyncio.sleep(1.0)
                continue
            return status, content


async def crowd(watched: Watched, workers: int, singles: int, spell_seconds: float) -> Crowd:
    """Let many workers wait, take a few jobs, then one each, and hand them all in."""
    engine = open_engine(watched.url)
    held = Workers(watched.address)
    tasks = [asyncio.create_task(held.work(f"worker-{number}")) for number in range(workers)]
    try:
        await _until(lambda: held.asked["claim"] >= workers)
        await asyncio.sleep(min(5.0, spell_seconds))
        waiting = await _spell(watched, held, spell_seconds)
        held.may_finish.set()
        single = [await _single(held, engine, number) for number in range(singles)]
        await _until(lambda: held.finished == singles)
        held.may_finish.clear()
        made = await _made(engine, [f"job_{number}" for number in range(workers)])
        await _until(lambda: len(held.claimed_at) == singles + workers)
        all_claimed_seconds = max(held.claimed_at.values()) - made
        busy = await _spell(watched, held, spell_seconds)
        began = time.monotonic()
        held.may_finish.set()
        await _until(lambda: held.finished == singles + workers)
        all_finished_seconds = time.monotonic() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        engine.dispose()
    return Crowd(
        workers=workers,
        waiting=waiting,
        busy=busy,
        single=times_of(single),
        all_claimed_seconds=all_claimed_seconds,
        all_finished_seconds=all_finished_seconds,
        heartbeat=times_of(held.heartbeat_seconds),
        faults={what: count for what, count in held.faults.items() if count},
    )


async def _single(held: Workers, engine: Any, number: int) -> float:
    """Time from when a job is made until a worker has it [second]."""
    name = f"single_{number}"
    made = await _made(engine, [name])
    await _until(lambda: name in held.claimed_at)
    await asyncio.sleep(0.37)  # no multiple of the time between two looks
    return held.claimed_at[name] - made


async def _made(engine: Any, names: list[str]) -> float:
    """When jobs were there that were made in one transaction."""
    jobs = [NewJob(id=name, kind=KIND, payload={}, timeout_seconds=3600.0) for name in names]
    await asyncio.to_thread(create_jobs, engine, jobs)
    return time.monotonic()


async def _spell(watched: Watched, held: Workers, seconds: float) -> Spell:
    """What is asked and spent meanwhile."""
    (own, database), asked, began = await asyncio.to_thread(watched.spent), held.asked.total(), time.monotonic()
    await asyncio.sleep(seconds)
    after, took = await asyncio.to_thread(watched.spent), time.monotonic() - began
    return Spell(
        seconds=took,
        requests=(held.asked.total() - asked) / took,
        processor_fraction=(after[0] - own) / took,
        database_fraction=(after[1] - database) / took,
    )


async def _until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    ends = time.monotonic() + FINAL_SECONDS
    while not is_so():
        assert time.monotonic() < ends, "this did not come to its end"
        await asyncio.sleep(0.01)
