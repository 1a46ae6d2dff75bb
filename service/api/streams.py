"""Long answers: cooperative searches, the change feed of event streams, and the expiry of credentials meanwhile."""

import asyncio
from asyncio import sleep
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from contextvars import Context
from datetime import UTC, datetime
from threading import Event
from time import time
from typing import Any, Generic, Protocol, TypeVar

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import GRANT, NO_KEY, AccessDenied, Grant, inactive_key_reason, unauthorized
from service.api.access.key_rules import does_allow, key_status
from service.api.envelope import problem_of
from service.api.limits.rate_limits import count_questions
from service.api.openapi import EVENTS
from service.planner.steps import Outcome, Steps
from service.store.keys import ApiKey, KeyRing, Scope

LOOP_PASSES = 3
"""Passes of the event loop between two steps: to read another request, to answer it, and to send the answer."""


async def finish(request: Request, steps: Steps[Outcome]) -> Outcome:
    """Run a search to its result, and let other requests run between its steps."""
    while True:
        try:
            questions = next(steps)
        except StopIteration as done:
            outcome: Outcome = done.value
            return outcome
        if questions is not None:
            await count_questions(request, questions)
        await yield_to_others()


async def yield_to_others() -> None:
    """Let short requests be answered before the next step."""
    for _ in range(LOOP_PASSES):
        await sleep(0)


QUIET_SECONDS = 15.0
"""Keep-alive interval: proxies close idle connections. Source: HTML standard, section 9.2.7, 15 seconds."""

AGAIN = b"event: again\ndata: {}\n\n"
"""Last event of a stream that ends before its subject has ended: clients reconnect, here or to another replica."""

MOST_PER_POLL = 1000
"""Keys of one poll. Source: a choice; far below the number of parameters that a statement may have."""


def event_bytes(name: str, document: bytes, number: int | None = None) -> bytes:
    return b"%sevent: %s\ndata: %s\n\n" % (b"" if number is None else b"id: %d\n" % number, name.encode(), document)


def problem_event(request: Request, error: Exception, number: int | None = None) -> bytes:
    """The last event of a stream that an error ends: its status is sent already."""
    return event_bytes("problem", bytes(problem_of(request, error).body), number)


def event_stream(request: Request, events: AsyncGenerator[bytes, None]) -> Response:
    """An answer of server-sent events, which ends with the credential of its request."""
    stream = while_authorized(request, events)
    return StreamingResponse(stream, media_type=EVENTS, headers={"Cache-Control": "no-store"})


class Observed(Protocol):
    """The state of one subject, as a poll reads it."""

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""


State = TypeVar("State", bound=Observed)
Poll = Callable[[Mapping[str, State | None]], Mapping[str, State | Exception]]
"""Reads the current states, given the last ones: the same object where nothing changed, or the exception of a key."""


class _Topic(Generic[State]):
    """The last state of one key, and its subscribers."""

    def __init__(self) -> None:
        self.latest: State | Exception | None = None
        self.subscribers = 0
        self.changed = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        return isinstance(self.latest, Exception) or (self.latest is not None and self.latest.is_over)

    @property
    def state(self) -> State | None:
        return None if isinstance(self.latest, Exception) else self.latest

    def publish(self, latest: State | Exception) -> None:
        """Store a state, and wake the subscribers if it changed."""
        if latest != self.latest:
            self.latest = latest
            self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class ChangeFeed(Generic[State]):
    """Polls states for all event streams of one kind, while there are any."""

    def __init__(self, poll: Poll[State], seconds: float, longest: float, leaving: Event) -> None:
        self._poll = poll
        self._seconds = seconds
        self._longest = longest
        self._leaving = leaving
        self._topics: dict[str, _Topic[State]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._fresh = asyncio.Event()

    async def states(self, key: str) -> AsyncGenerator[State | None, None]:
        """Each new state of a key, and None as a keep-alive; ends with its subject, the process or the longest time."""
        topic = self._subscribe(key)
        sent: State | None = None
        clock = asyncio.get_running_loop().time
        end = clock() + self._longest
        try:
            while not self._leaving.is_set() and clock() < end:
                latest = topic.latest
                if isinstance(latest, Exception):
                    raise latest
                if latest is None or latest is sent:
                    if not await _is_set_within(topic.changed, min(QUIET_SECONDS, end - clock())):
                        yield None
                    continue
                sent = latest
                yield sent
                if sent.is_over:
                    return
        finally:
            topic.subscribers -= 1
            if not topic.subscribers and self._topics.get(key) is topic:
                del self._topics[key]

    def _subscribe(self, key: str) -> _Topic[State]:
        """The topic of a key with one more subscriber; a final or failed one is replaced, and polled again."""
        topic = self._topics.get(key)
        if topic is None or topic.is_settled:
            topic = self._topics[key] = _Topic()
        topic.subscribers += 1
        loop = asyncio.get_running_loop()
        if self._polling is None or self._polling.done() or self._polling.get_loop() is not loop:
            self._fresh = asyncio.Event()
            self._polling = loop.create_task(self._poll_repeatedly(self._fresh), context=Context())
        elif topic.latest is None:
            self._fresh.set()
        return topic

    async def _poll_repeatedly(self, fresh: asyncio.Event) -> None:
        """Poll while there are subscribers: new topics at once, all others at an interval."""
        clock = asyncio.get_running_loop().time
        next_at = clock()
        while self._topics and self._polling is asyncio.current_task():
            fresh.clear()
            is_time = clock() >= next_at
            due = [key for key, one in self._topics.items() if not one.is_settled and (is_time or one.latest is None)]
            for first in range(0, len(due), MOST_PER_POLL):
                await self._poll_keys(due[first : first + MOST_PER_POLL])
            if is_time:
                next_at = clock() + self._seconds
            if self._leaving.is_set():
                for one in self._topics.values():
                    one.wake()
            await _is_set_within(fresh, next_at - clock())

    async def _poll_keys(self, keys: Sequence[str]) -> None:
        topics = {key: self._topics[key] for key in keys if key in self._topics}
        known = {key: one.state for key, one in topics.items()}
        try:
            states = await run_in_threadpool(self._poll, known)
        except Exception as error:  # subscribers get it, and the next poll may succeed
            states = dict.fromkeys(known, error)
        for key, one in topics.items():
            one.publish(states[key])


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(max(seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        return False
    return True


POLL_SECONDS = 0.2
"""Time between two checks. Source: a choice; below a second together with the refresh of keys."""


def refuse_expired(request: Request) -> None:
    """Reject a request whose credential is no longer valid."""
    reason = _expiry_reason(request.app.state.keys, request.scope["state"].get(GRANT))
    if reason is not None:
        raise unauthorized(reason)


async def while_authorized(request: Request, events: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Events until they end or the credential expires; then the last event is a problem with the reason."""
    watch: CredentialWatch = request.app.state.credential_watch
    async with aclosing(events):
        with watch.watched(request) as expired:
            while True:
                upcoming = asyncio.ensure_future(_next(events))
                either: set[asyncio.Future[Any]] = {upcoming, expired}
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not upcoming.done() or expired.done():
                        upcoming.cancel()
                        with suppress(asyncio.CancelledError, Exception):
                            await upcoming
                if expired.done():
                    yield problem_event(request, expired.result())
                    return
                event = upcoming.result()
                if event is None:
                    return
                yield event


class CredentialWatch:
    """Long requests and their credentials."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._watched: dict[asyncio.Future[AccessDenied], Grant | None] = {}
        self._checking: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self, request: Request) -> Iterator[asyncio.Future[AccessDenied]]:
        """A future that gets the rejection once the credential of a request is no longer valid."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[AccessDenied] = loop.create_future()
        self._watched[ended] = request.scope["state"].get(GRANT)
        if self._checking is None or self._checking.done() or self._checking.get_loop() is not loop:
            self._checking = loop.create_task(self._check(), context=Context())
        try:
            yield ended
        finally:
            del self._watched[ended]

    async def _check(self) -> None:
        while self._watched and self._checking is asyncio.current_task():
            for ended, grant in [*self._watched.items()]:
                reason = None if ended.done() else _expiry_reason(self._ring, grant)
                if reason is not None:
                    ended.set_result(unauthorized(reason))
            await asyncio.sleep(POLL_SECONDS)


def _expiry_reason(ring: KeyRing, grant: Grant | None) -> str | None:
    if grant is None:
        return None
    if grant.key is not None:
        return _key_expiry_reason(ring.known(grant.key.id), grant.key, grant.scope)
    if grant.token_end_seconds is None:
        return NO_KEY if ring.is_locked else None
    return "the token has expired; ask its issuer for another" if grant.token_end_seconds <= time() else None


def _key_expiry_reason(key: ApiKey | None, before: ApiKey, scope: Scope) -> str | None:
    if key is None:
        return "the key no longer exists; ask for another"
    status = key_status(key, datetime.now(UTC))
    if status != "active":
        return inactive_key_reason(status)
    if key.owner != before.owner or not does_allow(key.scopes, scope):
        return "the key is another owner's now, or allows less; ask again"
    return None


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)
