"""Long computations between which other requests run, and the shared change feed of event streams.

Listeners of a change feed wait in the event loop, without a thread or a database connection each, so five hundred
idle streams cost little more than one.
"""

import asyncio
from asyncio import sleep
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextvars import Context
from threading import Event
from typing import Generic, Protocol, TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.limits.rate_limits import count_questions
from service.planner.steps import Outcome, Steps

LOOP_PASSES = 3
"""Turns of the event loop that others get between two steps: to read a request, to answer it, to send the answer."""


async def finish(request: Request, steps: Steps[Outcome]) -> Outcome:
    """What a search leads to; between its steps others are answered."""
    while True:
        try:
            questions = next(steps)
        except StopIteration as done:
            found: Outcome = done.value
            return found
        if questions is not None:
            await count_questions(request, questions)
        await yield_to_others()


async def yield_to_others() -> None:
    """Let whoever asks something short be answered before the next step."""
    for _ in range(LOOP_PASSES):
        await sleep(0)


QUIET_SECONDS = 15.0
"""Longest time without a byte: proxies cut silent connections. Source: HTML standard, section 9.2.7, 15 seconds."""

AGAIN = b"event: again\ndata: {}\n\n"
"""Last event of a stream that ends before what it tells of has ended: whoever listens asks anew, here or elsewhere."""

MOST_PER_POLL = 1000
"""Things that one look asks for. Source: a choice; far below the number of parameters that a statement may have."""


class Observed(Protocol):
    """What a look finds of one thing."""

    @property
    def is_over(self) -> bool:
        """Whether it stays as it is."""


State = TypeVar("State", bound=Observed)
Poll = Callable[[Mapping[str, State | None]], Mapping[str, State | Exception]]
"""Finds how things are now: given what was found of each before, the same again where nothing changed, or what is wrong
with one of them."""


class _Topic(Generic[State]):
    """One thing that somebody listens to."""

    def __init__(self) -> None:
        self.found: State | Exception | None = None
        self.listeners = 0
        self.changed = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        return isinstance(self.found, Exception) or (self.found is not None and self.found.is_over)

    @property
    def state(self) -> State | None:
        return None if isinstance(self.found, Exception) else self.found

    def tell(self, found: State | Exception) -> None:
        """Wake those who listen, where something changed."""
        if found != self.found:
            self.found = found
            self.wake()

    def wake(self) -> None:
        """Have those who listen look at what holds now."""
        self.changed.set()
        self.changed = asyncio.Event()


class ChangeFeed(Generic[State]):
    """What is found of things, for whoever listens."""

    def __init__(self, look: Poll[State], seconds: float, longest: float, leaving: Event) -> None:
        self._look = look
        self._seconds = seconds
        self._longest = longest
        self._leaving = leaving
        self._watched: dict[str, _Topic[State]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._fresh = asyncio.Event()

    async def states(self, key: str) -> AsyncGenerator[State | None, None]:
        """How one thing is, each time that it is otherwise; ends with the thing, the process, or the longest time."""
        watched = self._joined(key)
        told: State | None = None
        clock = asyncio.get_running_loop().time
        end = clock() + self._longest
        try:
            while not self._leaving.is_set() and clock() < end:
                found = watched.found
                if isinstance(found, Exception):
                    raise found
                if found is None or found is told:
                    if not await _is_set_within(watched.changed, min(QUIET_SECONDS, end - clock())):
                        yield None
                    continue
                told = found
                yield told
                if told.is_over:
                    return
        finally:
            watched.listeners -= 1
            if not watched.listeners and self._watched.get(key) is watched:
                del self._watched[key]

    def _joined(self, key: str) -> _Topic[State]:
        """The thing, with one more listener; what has ended or failed is looked at anew for whoever comes then."""
        watched = self._watched.get(key)
        if watched is None or watched.is_settled:
            watched = self._watched[key] = _Topic()
        watched.listeners += 1
        loop = asyncio.get_running_loop()
        if self._looking is None or self._looking.done() or self._looking.get_loop() is not loop:
            self._fresh = asyncio.Event()
            self._looking = loop.create_task(self._look_on(self._fresh), context=Context())
        elif watched.found is None:
            self._fresh.set()
        return watched

    async def _look_on(self, fresh: asyncio.Event) -> None:
        """Look while somebody listens: at everything now and then, at what is new at once."""
        clock = asyncio.get_running_loop().time
        next_at = clock()
        while self._watched and self._looking is asyncio.current_task():
            fresh.clear()
            is_time = clock() >= next_at
            due = [key for key, one in self._watched.items() if not one.is_settled and (is_time or one.found is None)]
            for first in range(0, len(due), MOST_PER_POLL):
                await self._look_at(due[first : first + MOST_PER_POLL])
            if is_time:
                next_at = clock() + self._seconds
            if self._leaving.is_set():
                for one in self._watched.values():
                    one.wake()
            await _is_set_within(fresh, next_at - clock())

    async def _look_at(self, keys: Sequence[str]) -> None:
        watched = {key: self._watched[key] for key in keys if key in self._watched}
        known = {key: one.state for key, one in watched.items()}
        try:
            found = await run_in_threadpool(self._look, known)
        except Exception as error:  # whoever listens is told, and the next look may succeed
            found = dict.fromkeys(known, error)
        for key, one in watched.items():
            one.tell(found[key])


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether something comes in time."""
    try:
        async with asyncio.timeout(max(seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        return False
    return True
