"""Background threads of a process, and a queue for the questions of checks, so that no check waits for the database."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import fields
from datetime import timedelta
from functools import partial
from threading import BoundedSemaphore, Event, Lock, Thread
from time import monotonic, sleep

from fastapi import FastAPI
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from service.errors import Unreachable
from service.jobs.leases import SlowerClock
from service.settings import Settings
from service.store import Engine
from service.store.database import ReadOnChange, Replicas
from service.store.keys import TEAM, KeyRing
from service.store.retention import RetentionPeriods, remove_old
from service.store.scenarios import CheckedQuestion, remove_checked_questions, store_checked_questions

log = logging.getLogger(__name__)

IDLE_SECONDS = 3600.0
"""Longest wait for an event, after which old rows are removed."""


def repeat(warning: str, task: Callable[[], object], seconds: float, stop: Event, noted: Event | None = None) -> None:
    """Run a task periodically, or after each `noted`, until `stop` is set; log the first of several failures."""
    failing = False
    while True:
        if noted is not None:
            noted.wait(IDLE_SECONDS)
        if stop.wait(seconds):
            return
        if noted is not None:
            noted.clear()
        try:
            task()
        except Exception as error:  # of any kind: requests go on, and the next run may succeed
            if not failing:
                log.warning("%s: %s", warning, type(error).__name__)
            failing = True
            if noted is not None:
                noted.set()
        else:
            failing = False


PAUSE_SECONDS = 0.05
"""Pause between two removals, so that other writers proceed. Source: a choice."""


class Retention:
    """Removes rows that are older than their retention period."""

    def __init__(self, engine: Engine, settings: Settings, stop: Event) -> None:
        self._engine, self._stop = engine, stop
        self._periods = RetentionPeriods(
            **{field.name: getattr(settings, f"keep_{field.name}") for field in fields(RetentionPeriods)}
        )
        self._clock = SlowerClock(engine)

    def run(self) -> dict[str, int]:
        """Remove the rows that are too old now, and count them by table."""
        return remove_old(self._engine, self._periods, self._clock.present(), partial(self._stop.wait, PAUSE_SECONDS))


REFRESH_SECONDS = 1.0
"""Shortest time between the beginnings of two reads, because any caller may send an invented link."""


class SigningSecretRefresh:
    """Reads the signing secret from the database, once for all requests that wait for it."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._refresh: asyncio.Task[None] | None = None
        self._due = monotonic()

    async def refresh(self) -> None:
        """Wait for a read that ends after this call; concurrent callers share one."""
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.ensure_future(self._next())
        await asyncio.shield(self._refresh)

    async def _next(self) -> None:
        await asyncio.sleep(max(0.0, self._due - monotonic()))
        self._due = monotonic() + REFRESH_SECONDS
        await run_in_threadpool(self._ring.refresh)


CHECKS_SECONDS = 0.5
"""Time between two writes. Source: a choice; people read a job's comment later than that."""
MOST_BYTES = 65_536
"""Longest question that is stored, as JSON. Source: a choice; ten times the longest config of a released model."""
MOST_WAITING_BYTES = 1 << 25
"""Queued questions while the database does not answer; beyond that the oldest are dropped. Source: a choice."""
KEPT_DAYS = 400
"""Retention of questions. Source: a choice; a year's budget and some weeks to close it."""
REPLICA_SECONDS = 2 * CHECKS_SECONDS
"""Longest wait for another replica's queue: its next write, and as long again for the write itself."""
RETRY_SECONDS = 0.05
"""Time between two reads during that wait."""
MOST_WAITING_READS = 8
"""Most requests that wait at the same time; others get a 404 immediately, so that threads stay free."""


class CheckedQuestions:
    def __init__(self, engine: Engine | None, replicas: Replicas | None = None) -> None:
        self._engine, self._replicas = engine, replicas
        self._clock = None if engine is None else SlowerClock(engine)
        self._waiting_reads = BoundedSemaphore(MOST_WAITING_READS)
        self._waiting: dict[tuple[str, str], tuple[CheckedQuestion, int]] = {}
        self._bytes, self._next_removal = 0, monotonic()
        self._lock, self._writing = Lock(), Lock()
        self.noted = Event()
        """Set when a question waits to be written."""

    def keep(self, question: CheckedQuestion, owner: str = TEAM) -> None:
        """Queue a question of an owner, unless it is too long."""
        size, key = len(to_json(question.question)), (question.estimate_id, owner)
        if self._engine is None or size > MOST_BYTES:
            return
        with self._lock:
            if key in self._waiting:
                return
            self._waiting[key] = (question, size)
            self._bytes += size
            self.noted.set()
            while self._bytes > MOST_WAITING_BYTES:
                self._drop(next(iter(self._waiting)))

    def find(self, estimate_id: str, owner: str | None = None) -> CheckedQuestion | None:
        """A question that is not written yet; None if it is written, or its owner differs."""
        with self._lock:
            if owner is not None:
                queued = self._waiting.get((estimate_id, owner))
                return None if queued is None else queued[0]
            return next((one for (name, _), (one, _) in self._waiting.items() if name == estimate_id), None)

    def write(self) -> None:
        """Write the queued questions; keep them queued if the database fails."""
        with self._writing:
            with self._lock:
                batch = {key: question for key, (question, _) in self._waiting.items()}
            if self._engine is None or not batch:
                return
            store_checked_questions(self._engine, [(question, owner) for (_, owner), question in batch.items()])
            with self._lock:
                for key in batch:
                    self._drop(key)

    def retry_for_replicas(self) -> Callable[[], bool]:
        """A function that waits for the queues of other replicas and returns whether to read the database again."""
        end = monotonic() + REPLICA_SECONDS

        def should_retry() -> bool:
            if self._replicas is None or monotonic() > end or not self._replicas.are_there():
                return False
            if not self._waiting_reads.acquire(blocking=False):
                return False
            try:
                sleep(RETRY_SECONDS)
            finally:
                self._waiting_reads.release()
            return True

        return should_retry

    def write_and_forget(self) -> None:
        """Write the queued questions, and remove old ones once an hour."""
        self.write()
        if monotonic() >= self._next_removal:
            self.forget()
            self._next_removal = monotonic() + IDLE_SECONDS

    def forget(self) -> None:
        """Remove questions beyond their retention."""
        if self._engine is not None and self._clock is not None:
            remove_checked_questions(self._engine, self._clock.present() - timedelta(days=KEPT_DAYS))

    def _drop(self, key: tuple[str, str]) -> None:
        self._bytes -= self._waiting.pop(key, (None, 0))[1]


KEYS_SECONDS = 0.5
"""Interval between reads of changed keys; the streams of a key that another process revoked end within a second."""
WRITE_SECONDS = 1.0
"""Interval between reads of the catalogue without replicas, and between writes of queued records."""
FOLLOW_SECONDS = 0.25
"""Interval between reads of the catalogue with replicas; a write on another replica waits for it. Source: a choice."""
LEAVE_SECONDS = 1.0
"""Longest wait for a running task when the process stops, also if the database hangs."""


@asynccontextmanager
async def background_refresh(app: FastAPI) -> AsyncIterator[None]:
    """Run the background threads that apply other processes' changes and write queued records."""
    state, stop = app.state, Event()
    keys, denied, checks = state.keys, state.denied_changes, state.checked_questions
    follow, refresh_keys = ReadOnChange(state.engine, partial(_follow, app)), ReadOnChange(state.engine, keys.refresh)
    is_alone = state.engine is None or state.engine.dialect.name == "sqlite"  # no other replica waits for this process
    seconds = WRITE_SECONDS if is_alone else FOLLOW_SECONDS
    tasks: tuple[tuple[str, Callable[[], None], float, Event | None], ...] = (
        ("the catalogue in memory is not refreshed", follow, seconds, None),
        ("keys that other processes create or revoke are not read", refresh_keys, KEYS_SECONDS, None),
        ("last uses of keys are not written", keys.write_uses, WRITE_SECONDS, keys.noted),
        ("denied changes are missing in the audit log", denied.write, WRITE_SECONDS, denied.noted),
        ("questions of checks are not stored", checks.write_and_forget, CHECKS_SECONDS, checks.noted),
    )
    checks.noted.set()  # remove old questions at the start
    with suppress(Unreachable):  # recorded before the first read, so that concurrent writers wait for it
        await run_in_threadpool(state.replicas.announce, 0)
        await run_in_threadpool(_follow, app)
    threads = [
        _start_thread(partial(repeat, warning, task, seconds, stop, noted)) for warning, task, seconds, noted in tasks
    ]
    try:
        yield
    finally:
        for event in (stop, keys.noted, denied.noted, checks.noted):
            event.set()
        final_writes = (partial(keys.write_uses, all_of_them=True), denied.write, checks.write, state.replicas.leave)
        for thread in (*threads, *(_start_thread(partial(_write_before_exit, write)) for write in final_writes)):
            await run_in_threadpool(thread.join, LEAVE_SECONDS)
        for reader in (follow, refresh_keys):
            reader.close()


def _follow(app: FastAPI) -> None:
    """Apply other processes' changes, and record the applied revision in the database."""
    app.state.history.refresh()
    app.state.replicas.announce(app.state.history.number)


def _start_thread(work: Callable[[], None]) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def _write_before_exit(write: Callable[[], None]) -> None:
    """Write queued records; ignore a failure, because the process ends."""
    with suppress(Unreachable):
        write()
