"""Computations of more than some milliseconds, in compute processes, and the write queue of routes that change rows."""

import asyncio
import os
import sys
from asyncio import Semaphore, sleep, timeout
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from inspect import signature
from math import ceil
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, TypeVar
from weakref import finalize

from fastapi import Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import SHARE_LINK_CALLER, AccessDenied, caller_of
from service.api.compute_process import (
    ComputeProcess,
    Large,
    PackedCall,
    ProcessLost,
    fork_server,
    packed_call,
    packed_catalogue,
)
from service.api.errors import LEAVING, CallerGone
from service.api.limits.rate_limits import count_questions, network_of
from service.api.metrics import Metrics
from service.catalogue import Catalogue
from service.errors import Busy, Leaving, Problem, Refused, Unreachable
from service.store.database import Replicas
from service.store.history import History

MOST_PROCESSES = 8
"""Most processes without a setting. Source: a choice; each takes some 60 MB."""
MOST_PER_CALLER = 64
"""Most computations of one caller that run or wait. Source: a choice; a sheet asks for some tables at once."""
MOST_SECONDS_PER_CALLER = 30.0
"""Most expected time of one caller's computations together. Source: a choice; clients give up after 30 to 60 s."""
MOST_WAITING = 256
"""Most waiting computations of all callers. Source: a choice; the last of them would wait some minutes."""
DEADLINE_SECONDS = 120.0
"""Longest time that a process works on one computation. Source: a choice; ten times the longest search measured."""
ONCE_SECONDS = 600.0
"""Time limit of a result that a process computes once and caches."""
FIRST_GUESS_SECONDS = 1.0
"""Expected time of a computation before any was measured."""
WEIGHT_OF_NEWEST = 0.2
"""Weight of the newest measured time in the moving mean that determines Retry-After."""
LONGEST_WAIT_SECONDS = 60
POLL_SECONDS = 0.25
"""Interval at which a stream checks whether the process is about to end."""
MOST_PACKED = 4
"""Most pickled catalogues that are cached for new compute processes."""
MOST_PACKED_BYTES = 1 << 26
"""Most bytes of these together; the newest is always cached. Source: a choice; the shipped one takes 0.4 MB."""

LATE = Problem(
    field="",
    code="took_too_long",
    message="the answer takes longer to compute than the service spends on one request",
    fix="ask for less at once: fewer rows, a narrower range of GPUs, or more fields that are given",
)


class TooBusy(AccessDenied):
    """A rejected computation: 429 for too many of one caller, 503 where the service is full."""

    def __init__(self, code: str, reason: str, seconds: int) -> None:
        super().__init__(code, f"{reason}; ask again in {seconds} s", {"Retry-After": str(seconds)})


def caller_excess(count: int, seconds: int) -> TooBusy:
    """The answer to a caller with too many computations."""
    return TooBusy("too_many_computations", f"{count} of your computations already run or wait", seconds)


def queue_full(seconds: int) -> TooBusy:
    return TooBusy("computing_full", f"{MOST_WAITING} computations wait already", seconds)


def process_lost(seconds: int) -> AccessDenied:
    """The answer where the process ended at each attempt."""
    detail = f"the process that computed this ended, perhaps for want of memory; ask for less, or again in {seconds} s"
    return AccessDenied("computation_lost", detail, {"Retry-After": str(seconds)})


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    caller: str
    """Key of the caller's queue."""
    key: Hashable = None
    """Key that identical computations share; None for an unshared one."""
    deadline_seconds: float | None = None
    """Time limit of the computation [second]; None for DEADLINE_SECONDS."""
    is_admitted: bool = False
    """Whether its request has already passed the limits."""
    queue_seconds: float | None = None
    """Time limit of the wait for a process [second]; None for no limit."""


class _Computation:
    """One computation that one or more requests wait for."""

    def __init__(self, call: _Call, expected_seconds: float) -> None:
        self.call = call
        self.expected_seconds = expected_seconds
        self.is_process_new = False
        """Whether its process is new; its time may then include imports."""
        self.items: list[Any] = []
        self.requests = 0
        self.task: asyncio.Task[Any] | None = None
        self.changed = asyncio.Event()
        """Set at the next change, and replaced."""

    def add(self, item: Any) -> None:
        self.items.append(item)
        self.wake()

    def wake(self, _: object = None) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Compute:
    """The compute processes of one application, and their queues."""

    def __init__(self, processes: int | None, metrics: Metrics, preloaded: Sequence[str] = ()) -> None:
        self.processes = processes or processes_of(usable_cores())
        self._metrics = metrics
        self._preloaded = preloaded
        self._idle: list[ComputeProcess] = []
        self._running = 0
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._by_caller: dict[str, list[_Computation]] = {}
        self._shared: dict[Hashable, _Computation] = {}
        self._packed: OrderedDict[str, bytes] = OrderedDict()
        self._mean_seconds: dict[Callable[..., Any], float] = {}
        finalize(self, _close, self._idle)
        metrics.watch_compute(lambda: self._waiting, lambda: self._running)

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    def start(self) -> None:
        """Start the fork server, so that the first computation need not wait for its imports."""
        with suppress(OSError):
            fork_server(self._preloaded).start()

    def close(self) -> None:
        """End the idle processes."""
        _close(self._idle)

    @asynccontextmanager
    async def join(self, call: _Call) -> AsyncIterator[_Computation]:
        """Join a running computation with the same key, or start one; cancel it when its last request leaves."""
        computation = self._shared.get(call.key) if call.key is not None else None
        if computation is None:
            computation = self._start(call)
        else:
            self._metrics.computations_shared.inc()
        computation.requests += 1
        try:
            yield computation
        finally:
            computation.requests -= 1
            if computation.requests == 0:
                self._unshare(computation)
                if computation.task is not None:
                    computation.task.cancel()

    def _start(self, call: _Call) -> _Computation:
        expected_seconds = self._mean_seconds.get(call.function, FIRST_GUESS_SECONDS)
        if not call.is_admitted:
            self._enforce_limits(call.caller, expected_seconds)
        computation = _Computation(call, expected_seconds)
        self._by_caller.setdefault(call.caller, []).append(computation)
        computation.task = asyncio.get_running_loop().create_task(self._compute(computation))
        computation.task.add_done_callback(partial(self._on_done, computation))
        if call.key is not None:
            self._shared[call.key] = computation
        return computation

    def _on_done(self, computation: _Computation, task: "asyncio.Task[Any]") -> None:
        caller = computation.call.caller
        self._by_caller[caller].remove(computation)
        if not self._by_caller[caller]:
            del self._by_caller[caller]
        self._unshare(computation)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: requests that still wait read it themselves
        computation.wake()

    def _unshare(self, computation: _Computation) -> None:
        key = computation.call.key
        if key is not None and self._shared.get(key) is computation:
            del self._shared[key]

    def _enforce_limits(self, caller: str, expected_seconds: float) -> None:
        active = self._by_caller.get(caller, [])
        active_seconds = sum(computation.expected_seconds for computation in active)
        share = self.processes / max(1, len(self._by_caller))
        if active and (
            len(active) >= MOST_PER_CALLER or active_seconds + expected_seconds > MOST_SECONDS_PER_CALLER * share
        ):
            self._metrics.compute_refusals.labels("caller").inc()
            raise caller_excess(len(active), _whole_seconds(active_seconds / share / 2))
        if self._running >= self.processes and self._waiting >= MOST_WAITING:
            self._metrics.compute_refusals.labels("full").inc()
            all_seconds = sum(one.expected_seconds for computations in self._by_caller.values() for one in computations)
            raise queue_full(_whole_seconds(all_seconds / self.processes / 2))

    async def _compute(self, computation: _Computation) -> Any:
        call = computation.call
        if any(isinstance(argument, Large) for argument in call.arguments):
            content = await run_in_threadpool(packed_call, call.function, call.arguments)
        else:
            content = packed_call(call.function, call.arguments)
        queued = monotonic()
        try:
            async with asyncio.timeout(call.queue_seconds):
                await self._wait_for_process(call.caller)
        except TimeoutError:
            self._metrics.compute_refusals.labels("full").inc()
            retry_seconds = _whole_seconds(computation.expected_seconds)
            raise TooBusy("computing_full", "no process was free in time", retry_seconds) from None
        started, outcome = monotonic(), "failed"
        self._metrics.compute_wait_seconds.observe(started - queued)
        try:
            async with asyncio.timeout(call.deadline_seconds or DEADLINE_SECONDS):
                result = await self._run_with_retry(computation, content)
        except TimeoutError:
            outcome = "late"
            raise Refused(LATE) from None
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        else:
            outcome = "done"
            return result
        finally:
            seconds = monotonic() - started
            self._metrics.compute_seconds.observe(seconds)
            self._metrics.computations.labels(outcome).inc()
            if outcome == "done" and not computation.is_process_new:
                mean = self._mean_seconds.get(call.function, seconds)
                self._mean_seconds[call.function] = mean + WEIGHT_OF_NEWEST * (seconds - mean)
            self._release_process()

    async def _wait_for_process(self, caller: str) -> None:
        if self._running < self.processes:
            self._running += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._queues.setdefault(caller, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release_process()  # the process was granted just before the cancellation
            elif granted in (queue := self._queues.get(caller, deque())):
                queue.remove(granted)
                if not queue:
                    del self._queues[caller]
            raise

    def _release_process(self) -> None:
        """Grant a freed process to the next caller, round-robin."""
        while self._queues:
            caller, queue = self._queues.popitem(last=False)
            granted = queue.popleft()
            if queue:
                self._queues[caller] = queue
            if not granted.done():
                granted.set_result(None)
                return
        self._running -= 1

    async def _run_with_retry(self, computation: _Computation, content: PackedCall) -> Any:
        """Run a call; retry it once where its process ended before it yielded an item."""
        with suppress(ProcessLost):
            return await self._run(computation, content)
        if not computation.items:
            with suppress(ProcessLost):
                return await self._run(computation, content)
        raise process_lost(_whole_seconds(computation.expected_seconds))

    async def _run(self, computation: _Computation, content: PackedCall) -> Any:
        catalogues = {one.token: one for one in computation.call.arguments if isinstance(one, Catalogue)}
        computation.is_process_new = not self._idle
        try:
            process = self._idle.pop() if self._idle else ComputeProcess(fork_server(self._preloaded))
        except OSError as error:
            raise ProcessLost from error
        is_reusable = False
        try:
            result = await process.run(content, partial(self._packed_catalogue, catalogues), computation.add)
        except MemoryError as error:
            raise ProcessLost from error
        except ProcessLost:
            self._metrics.compute_restarts.labels("lost").inc()
            raise
        except Exception:
            is_reusable = True  # an error of the call, not of the process
            raise
        else:
            is_reusable = True
            return result
        finally:
            if is_reusable and not process.should_retire:
                self._idle.append(process)
            else:
                process.close()
                if is_reusable:
                    self._metrics.compute_restarts.labels("worn").inc()

    async def _packed_catalogue(self, catalogues: dict[str, Catalogue], token: str) -> bytes:
        if token not in self._packed:
            self._packed[token] = await run_in_threadpool(packed_catalogue, catalogues[token])
        self._packed.move_to_end(token)
        packed = self._packed
        while len(packed) > MOST_PACKED or (len(packed) > 1 and sum(map(len, packed.values())) > MOST_PACKED_BYTES):
            packed.popitem(last=False)
        return packed[token]


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
    """Run a function in a compute process, and return its result."""
    result = None
    call = _Call(function, arguments, _caller(request), key, deadline_seconds, is_admitted, queue_seconds)
    async for item in _items_of(request, call, None):
        result = item
    return result


async def computed_items(
    request: Request, function: Callable[..., Any], *arguments: Any, until: Event
) -> AsyncGenerator[Any, None]:
    """Items that a generator yields in a compute process, then its result; an integer adds that many questions."""
    async with aclosing(_items_of(request, _Call(function, arguments, _caller(request)), until)) as items:
        async for item in items:
            yield item


async def _items_of(request: Request, call: _Call, until: Event | None) -> AsyncGenerator[Any, None]:
    state: Compute = request.app.state.compute
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        async with state.join(call) as computation:
            position = 0
            while True:
                changed = computation.changed
                while position < len(computation.items):
                    item = computation.items[position]
                    position += 1
                    if isinstance(item, int):
                        await count_questions(request, item)
                    else:
                        yield item
                if computation.task is not None and computation.task.done():
                    yield computation.task.result()
                    return
                await _wait(changed, disconnected, until)
    finally:
        disconnected.cancel()


_computed_once: dict[Callable[[], bytes], bytes] = {}


async def computed_once(request: Request, function: Callable[[], bytes]) -> bytes:
    """Cached result of a function of shipped data, computed once for each process."""
    if function not in _computed_once:
        _computed_once[function] = await compute(request, function, key=function, deadline_seconds=ONCE_SECONDS)
    return _computed_once[function]


async def _wait(changed: asyncio.Event, disconnected: "asyncio.Future[None]", until: Event | None) -> None:
    """Wait for a change; raise where the client disconnected, or the process is about to end."""
    waiting = asyncio.ensure_future(changed.wait())
    try:
        timeout = None if until is None else POLL_SECONDS
        await asyncio.wait((waiting, disconnected), timeout=timeout, return_when="FIRST_COMPLETED")
    finally:
        waiting.cancel()
    if disconnected.done():
        raise CallerGone
    if until is not None and until.is_set():
        raise Leaving(LEAVING)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _whole_seconds(seconds: float) -> int:
    return min(LONGEST_WAIT_SECONDS, max(1, ceil(seconds)))


def _caller(request: Request) -> str:
    """Key of a caller's queue: the id of their key or token, or else their network address."""
    caller = caller_of(request)
    if caller.id and caller != SHARE_LINK_CALLER:
        return f"caller:{caller.id}"
    return f"address:{network_of(request.client.host if request.client else '')}"


def processes_of(cores: int) -> int:
    """Default number of compute processes; it leaves one core to the event loop.

    >>> processes_of(1), processes_of(4), processes_of(64)
    (1, 3, 8)
    """
    return max(1, min(MOST_PROCESSES, cores - 1))


def usable_cores() -> int:
    """Cores that this process may use, by its affinity and its control group."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # not on Linux, or no limit is set
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, int(quota) // int(period))
    return max(1, cores)


MOST_WRITERS = 4
"""Most writers that have a thread: one writes, the others validate requests or wait for the database."""
MOST_COMPUTING = 2
"""Most threads that compute at the same time. Source: a choice; each slows other answers."""
PATIENCE_SECONDS = 30.0
"""Longest wait for a thread."""
REPLICAS_SECONDS = 3.0
"""Longest wait for replicas to apply a change, also if a replica hangs. Source: a choice."""
REPLICA_POLL_SECONDS = 0.03
"""Interval between checks of the replicas. Source: a choice; far below the time to apply a change."""

NO_SLOT = "other changes are being written, and this one did not get its turn; nothing of it was written"

Result = TypeVar("Result")


async def on_compute_threads(request: Request, compute: Callable[..., Result], *arguments: Any) -> Result:
    """Run a function of some milliseconds on a thread, with few others at the same time."""
    slots: Semaphore = request.app.state.compute_slots
    async with slots:
        return await run_in_threadpool(compute, *arguments)


def queued(write: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """A writing route that waits for a write slot."""

    async def route(request: Request, **arguments: Any) -> Response:
        slots: Semaphore = request.app.state.write_slots
        history: History = request.app.state.history
        before = history.number
        try:
            async with timeout(PATIENCE_SECONDS):
                await slots.acquire()
        except TimeoutError:
            raise Busy(NO_SLOT) from None
        try:
            answer = await run_in_threadpool(write, request=request, **arguments)
        finally:
            slots.release()
        if history.number != before:
            await _wait_for_replicas(request.app.state.replicas, history.number)
        return answer

    route.__name__, route.__doc__ = write.__name__, write.__doc__
    vars(route)["__signature__"] = signature(write)
    return route


async def _wait_for_replicas(replicas: Replicas, number: int) -> None:
    """Wait until every replica has applied a change, which is committed either way."""
    with suppress(Unreachable):
        for _ in range(round(REPLICAS_SECONDS / REPLICA_POLL_SECONDS)):
            if not await run_in_threadpool(replicas.are_behind, number):
                return
            await sleep(REPLICA_POLL_SECONDS)
