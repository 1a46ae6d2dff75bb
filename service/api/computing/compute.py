"""Computation in other processes, for what takes more than some milliseconds.

Every process computes one thing at a time. What finds none free waits in the queue of its caller, and the queues take
turns. A caller may have a bounded number of computations; more are refused with 429, and 503 refuses what finds the
service full. Both say when to ask again, from how long computations took lately.

Requests that ask the same share one computation, which ends with the last of them.
"""

import asyncio
import os
import sys
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any
from weakref import finalize

from anyio import from_thread
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import SHARE_LINK_CALLER, AccessDenied, caller_of
from service.api.computing.compute_process import (
    ComputeProcess,
    Large,
    ProcessLost,
    fork_server,
    packed_catalogue,
    packed_job,
)
from service.api.errors import LEAVING, CallerGone
from service.api.limits.rate_limits import count_questions, network_of
from service.api.metrics import Metrics
from service.catalogue import Catalogue
from service.errors import Leaving, Problem, Refused

MOST_PROCESSES = 8
"""Most processes where no setting says how many. Source: a choice; each takes some 60 MB."""
MOST_PER_CALLER = 64
"""Computations of one caller that run or wait. Source: a choice; a sheet asks for some tables at once."""
MOST_SECONDS_PER_CALLER = 30.0
"""How long the computations of one caller may take together, but for the first. Source: a choice; clients
give up after 30 to 60 s."""
MOST_WAITING = 256
"""Computations of all callers that wait. Source: a choice; the last of them would wait some minutes."""
DEADLINE_SECONDS = 120.0
"""Longest time that a process works on one computation. Source: a choice; ten times the longest search measured."""
ONCE_SECONDS = 600.0
"""The same of what is computed once in the life of the service."""
FIRST_GUESS_SECONDS = 1.0
"""How long a computation takes, before any was measured."""
WEIGHT_OF_NEWEST = 0.2
"""Weight of the newest measured time in the mean that waits are told from."""
LONGEST_WAIT_SECONDS = 60
"""Longest time that a refusal asks its caller to wait."""
POLL_SECONDS = 0.25
"""Time between two looks whether the process is about to end, where that ends a stream."""
MOST_PACKED = 4
"""Catalogues that are kept ready to be sent to a process that lacks them."""
MOST_PACKED_BYTES = 1 << 26
"""Bytes of these together; the newest is kept whatever its size. Source: a choice; the shipped one has 0.4 MB."""

LATE = Problem(
    field="",
    code="took_too_long",
    message="the answer takes longer to compute than the service spends on one request",
    fix="ask for less at once: fewer rows, a narrower range of GPUs, or more fields that are given",
)


class TooBusy(AccessDenied):
    """A computation has to wait outside: 429 for its caller's own excess, 503 where the service is full."""


def caller_excess(count: int, seconds: int) -> TooBusy:
    """The refusal of a caller who has too many computations, for some seconds."""
    detail = f"{count} of your computations already run or wait; ask again in {seconds} s"
    return TooBusy("too_many_computations", detail, {"Retry-After": str(seconds)})


def queue_full(seconds: int) -> TooBusy:
    """The refusal of a computation that finds the service full, for some seconds."""
    detail = f"{MOST_WAITING} computations wait already; ask again in {seconds} s"
    return TooBusy("computing_full", detail, {"Retry-After": str(seconds)})


def queue_timeout(seconds: int) -> TooBusy:
    """The refusal of a computation for which no process became free in time."""
    return TooBusy(
        "computing_full", f"no process was free in time; ask again in {seconds} s", {"Retry-After": str(seconds)}
    )


def process_lost(seconds: int) -> AccessDenied:
    """The refusal of a computation whose process ended each time, for some seconds."""
    detail = f"the process that computed this ended, perhaps for want of memory; ask for less, or again in {seconds} s"
    return AccessDenied("computation_lost", detail, {"Retry-After": str(seconds)})


@dataclass(frozen=True, slots=True)
class _Call:
    """What is to be computed."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    caller: str
    """Whose it is."""
    key: Hashable
    """What else computes the same has the same; None for what is shared with nobody."""
    deadline_seconds: float | None
    """Longest time that a process works on it [second]; None for DEADLINE_SECONDS."""
    is_admitted: bool
    """Whether it is part of something that was let in already."""
    queue_seconds: float | None = None
    """Longest time that it waits for a process [second]; None for as long as it takes."""


class _Computation:
    """One computation that one or more requests wait for."""

    def __init__(self, job: _Call, expected_seconds: float) -> None:
        self.job = job
        self.expected_seconds = expected_seconds
        self.is_first = False
        """Whether its process began with it, and perhaps waited for imports."""
        self.items: list[Any] = []
        self.requests = 0
        self.task: asyncio.Task[Any] | None = None
        self._changed = asyncio.Event()

    def add(self, item: Any) -> None:
        """Note what the computation yielded."""
        self.items.append(item)
        self.wake()

    def wake(self, _: object = None) -> None:
        """Have every request look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change from now on."""
        return self._changed


class Compute:
    """The computing processes of one application, and who waits for them."""

    def __init__(self, processes: int | None, metrics: Metrics) -> None:
        self.processes = processes or processes_of(usable_cores())
        self._metrics = metrics
        self._idle: list[ComputeProcess] = []
        self._running = 0
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._held: dict[str, list[_Computation]] = {}
        self._shared: dict[Hashable, _Computation] = {}
        self._packed: OrderedDict[str, bytes] = OrderedDict()
        self._mean_seconds: dict[Callable[..., Any], float] = {}
        finalize(self, _close, self._idle)
        metrics.watch_compute(lambda: self._waiting, lambda: self._running)

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    def start(self) -> None:
        """Start what forks the processes, so that the first computation need not wait for its imports."""
        with suppress(OSError):
            fork_server().start()

    def close(self) -> None:
        """End the processes that wait for work."""
        _close(self._idle)

    @asynccontextmanager
    async def joined(self, job: _Call) -> AsyncIterator[_Computation]:
        """A computation that a request waits for: one that goes on with the same key, or a new one."""
        found = self._shared.get(job.key) if job.key is not None else None
        if found is None:
            found = self._begun(job)
        else:
            self._metrics.computations_shared.inc()
        found.requests += 1
        try:
            yield found
        finally:
            found.requests -= 1
            if found.requests == 0:
                self._forget(found)
                if found.task is not None:
                    found.task.cancel()

    def _begun(self, job: _Call) -> _Computation:
        expected_seconds = self._mean_seconds.get(job.function, FIRST_GUESS_SECONDS)
        if not job.is_admitted:
            self._refuse_excess(job.caller, expected_seconds)
        found = _Computation(job, expected_seconds)
        self._held.setdefault(job.caller, []).append(found)
        found.task = asyncio.get_running_loop().create_task(self._computed(found))
        found.task.add_done_callback(partial(self._ended, found))
        if job.key is not None:
            self._shared[job.key] = found
        return found

    def _ended(self, computation: _Computation, task: "asyncio.Task[Any]") -> None:
        caller = computation.job.caller
        self._held[caller].remove(computation)
        if not self._held[caller]:
            del self._held[caller]
        self._forget(computation)
        if not task.cancelled():
            task.exception()  # whoever still waits is told it; nobody else needs to be
        computation.wake()

    def _forget(self, computation: _Computation) -> None:
        key = computation.job.key
        if key is not None and self._shared.get(key) is computation:
            del self._shared[key]

    def _refuse_excess(self, caller: str, expected_seconds: float) -> None:
        own = self._held.get(caller, [])
        own_seconds = sum(one.expected_seconds for one in own)
        share = self.processes / max(1, len(self._held))
        if own and (len(own) >= MOST_PER_CALLER or own_seconds + expected_seconds > MOST_SECONDS_PER_CALLER * share):
            self._metrics.compute_refusals.labels("caller").inc()
            raise caller_excess(len(own), _whole_seconds(own_seconds / share / 2))
        if self._running >= self.processes and self._waiting >= MOST_WAITING:
            self._metrics.compute_refusals.labels("full").inc()
            all_seconds = sum(one.expected_seconds for held in self._held.values() for one in held)
            raise queue_full(_whole_seconds(all_seconds / self.processes / 2))

    async def _computed(self, computation: _Computation) -> Any:
        job = computation.job
        if any(isinstance(argument, Large) for argument in job.arguments):
            content = await run_in_threadpool(packed_job, job.function, job.arguments)
        else:
            content = packed_job(job.function, job.arguments)
        asked = monotonic()
        try:
            async with asyncio.timeout(job.queue_seconds):
                await self._wait_for_process(job.caller)
        except TimeoutError:
            self._metrics.compute_refusals.labels("full").inc()
            raise queue_timeout(_whole_seconds(computation.expected_seconds)) from None
        begun, outcome = monotonic(), "failed"
        self._metrics.compute_wait_seconds.observe(begun - asked)
        try:
            async with asyncio.timeout(job.deadline_seconds or DEADLINE_SECONDS):
                found = await self._tried(computation, content)
        except TimeoutError:
            outcome = "late"
            raise Refused(LATE) from None
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        else:
            outcome = "done"
            return found
        finally:
            seconds = monotonic() - begun
            self._metrics.compute_seconds.observe(seconds)
            self._metrics.computations.labels(outcome).inc()
            if outcome == "done" and not computation.is_first:
                mean = self._mean_seconds.get(job.function, seconds)
                self._mean_seconds[job.function] = mean + WEIGHT_OF_NEWEST * (seconds - mean)
            self._next()

    async def _wait_for_process(self, caller: str) -> None:
        """Wait for a process: behind what this caller asked before, in turn with other callers."""
        if self._running < self.processes:
            self._running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()  # it was this one's turn just now
            else:
                self._leave_queue(caller, turn)
            raise

    def _leave_queue(self, caller: str, turn: "asyncio.Future[None]") -> None:
        queue = self._queues.get(caller)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[caller]

    def _next(self) -> None:
        """Give a process that has become free to the next caller in turn."""
        while self._queues:
            caller, queue = self._queues.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._queues[caller] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1

    async def _tried(self, computation: _Computation, content: bytes) -> Any:
        """What a job leads to; one whose process ended before it yielded anything is tried once more."""
        with suppress(ProcessLost):
            return await self._run(computation, content)
        if not computation.items:
            with suppress(ProcessLost):
                return await self._run(computation, content)
        raise process_lost(_whole_seconds(computation.expected_seconds))

    async def _run(self, computation: _Computation, content: bytes) -> Any:
        catalogues = {one.token: one for one in computation.job.arguments if isinstance(one, Catalogue)}
        computation.is_first = not self._idle
        try:
            process = self._idle.pop() if self._idle else ComputeProcess(fork_server())
        except OSError as error:
            raise ProcessLost from error
        is_sound = False
        try:
            found = await process.run(content, partial(self._packed_catalogue, catalogues), computation.add)
        except MemoryError as error:
            raise ProcessLost from error
        except ProcessLost:
            self._metrics.compute_restarts.labels("lost").inc()
            raise
        except Exception:
            is_sound = True  # of the job, not of the process
            raise
        else:
            is_sound = True
            return found
        finally:
            if is_sound and not process.is_worn:
                self._idle.append(process)
            else:
                process.close()
                if is_sound:
                    self._metrics.compute_restarts.labels("worn").inc()

    async def _packed_catalogue(self, catalogues: dict[str, Catalogue], token: str) -> bytes:
        if token not in self._packed:
            self._packed[token] = await run_in_threadpool(packed_catalogue, catalogues[token])
        self._packed.move_to_end(token)
        while len(self._packed) > 1 and not self._is_room_for_packed():
            self._packed.popitem(last=False)
        return self._packed[token]

    def _is_room_for_packed(self) -> bool:
        return len(self._packed) <= MOST_PACKED and sum(map(len, self._packed.values())) <= MOST_PACKED_BYTES


def _close(processes: list[ComputeProcess]) -> None:
    while processes:
        processes.pop().close()


async def compute(
    request: Request,
    function: Callable[..., Any],
    *arguments: Any,
    key: Hashable = None,
    deadline_seconds: float | None = None,
    is_admitted: bool = False,
    queue_seconds: float | None = None,
) -> Any:
    """What a function gives that runs in a process of its own."""
    found = None
    job = _Call(function, arguments, _caller(request), key, deadline_seconds, is_admitted, queue_seconds)
    async for item in _items_of(request, job, None):
        found = item
    return found


async def computed_items(
    request: Request,
    function: Callable[..., Any],
    *arguments: Any,
    key: Hashable = None,
    deadline_seconds: float | None = None,
    until: Event | None = None,
) -> AsyncGenerator[Any, None]:
    """The same, with what the generator yields on its way, but for numbers of questions."""
    job = _Call(function, arguments, _caller(request), key, deadline_seconds, is_admitted=False)
    async with aclosing(_items_of(request, job, until)) as items:
        async for item in items:
            yield item


async def _items_of(request: Request, job: _Call, until: Event | None) -> AsyncGenerator[Any, None]:
    state: Compute = request.app.state.compute
    gone = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        async with state.joined(job) as computation:
            told = 0
            while True:
                changed = computation.changed
                while told < len(computation.items):
                    item = computation.items[told]
                    told += 1
                    if isinstance(item, int):
                        await count_questions(request, item)
                    else:
                        yield item
                if computation.task is not None and computation.task.done():
                    yield computation.task.result()
                    return
                await _wait(changed, gone, until)
    finally:
        gone.cancel()


_computed_once: dict[Callable[[], bytes], bytes] = {}


async def computed_once(request: Request, function: Callable[[], bytes]) -> bytes:
    """What a function of what ships with the service gives, which is the same as long as this process runs."""
    if function not in _computed_once:
        found = await compute(request, function, key=function, deadline_seconds=ONCE_SECONDS)
        _computed_once[function] = found
    return _computed_once[function]


def compute_from_thread(request: Request) -> Callable[..., Any]:
    """`compute`, for a route that runs in a thread."""
    return lambda function, *arguments: from_thread.run(partial(compute, request, function, *arguments))


async def _wait(changed: asyncio.Event, gone: "asyncio.Future[None]", until: Event | None) -> None:
    """Wait for a change; refuse to where nobody waits for the answer, or the process is about to end."""
    look = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait((look, gone), timeout=None if until is None else POLL_SECONDS, return_when="FIRST_COMPLETED")
    finally:
        look.cancel()
    if gone.done():
        raise CallerGone
    if until is not None and until.is_set():
        raise Leaving(LEAVING)


async def _wait_for_disconnect(request: Request) -> None:
    """Wait until the caller of a request has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _whole_seconds(seconds: float) -> int:
    """How long a refusal asks its caller to wait."""
    return min(LONGEST_WAIT_SECONDS, max(1, ceil(seconds)))


def _caller(request: Request) -> str:
    """Whose computation it is: the holder of a key or a token; or whoever asks from an address."""
    caller = caller_of(request)
    if caller.id and caller != SHARE_LINK_CALLER:
        return f"caller:{caller.id}"
    return f"address:{network_of(request.client.host if request.client else '')}"


def processes_of(cores: int) -> int:
    """How many processes compute where no setting says so: one core is left to what answers at once.

    >>> processes_of(1), processes_of(4), processes_of(64)
    (1, 3, 8)
    """
    return max(1, min(MOST_PROCESSES, cores - 1))


def usable_cores() -> int:
    """Cores that this process may use, as its affinity and its control group say."""
    found = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no Linux, or no limit
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        found = min(found, int(quota) // int(period))
    return max(1, found)
