"""The end of an attempt at a job: its worker finishes it, a caller cancels it, or its lease expires."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from time import monotonic
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, DateTime, Engine, and_, literal, or_, select, update

from service.errors import AlreadyFinished, Problem, Unreachable
from service.jobs.jobs import Job, OnEnd, change_in, job_in, job_of, job_update
from service.jobs.leases import Lease, is_held, locked
from service.store.engine import answering, database_time, later, now, reading, writing
from service.store.requests import log_change_in
from service.store.tables import ENDED, JOBS

Ending = Literal["succeeded", "failed", "cancelled", "released"]
"""End of an attempt. `released`: returned to the queue, because the worker has to stop."""

FIRST_WAIT_SECONDS = 1.0
"""Wait before a failed job is tried again; it doubles with every attempt. Source: a choice."""
LONGEST_WAIT_SECONDS = 60.0
"""Longest wait before a failed job is tried again. Source: a choice."""
OVERTIME_SECONDS = 60.0
"""Time beyond its timeout that a live worker keeps a job, to upload results. Source: a choice."""
MOST_RELEASES = 1_000
"""Most released attempts of one job that are not counted. Source: a choice; a job of an hour on machines that are
preempted every minute is released 60 times."""

WORKER_LOST = {"code": "worker_lost", "message": "in every attempt, the worker was not heard of any more"}
OUT_OF_TIME = {"code": "timed_out", "message": "the worker held the job for longer than it may take"}

FINISHED = Problem(
    field="outcome",
    code="already_finished",
    message="another outcome of this attempt was taken before, and stays",
    fix="send an outcome once, and again only as it was; claim the next job",
)

_NOT_HELD: dict[str, Any] = {"lease_until": None}
_LEASE_ENDS: dict[str, Any] = {"worker": None, "lease_digest": None, "outcome_digest": None}
_ENDS_NOW: dict[str, Any] = {**_NOT_HELD, "finished_at": now()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an attempt, as its worker reports it."""

    ending: Ending
    result: Any = None
    """The result, as JSON."""
    error: Mapping[str, Any] | None = None
    """Code, message, and `final` where another attempt would fail the same way."""

    def digest(self) -> bytes:
        """A digest of the outcome."""
        error = None if self.error is None else dict(self.error)
        text = json.dumps([self.ending, self.result, error], sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).digest()


def finish_job(engine: Engine, lease: Lease, outcome: Outcome, also: OnEnd | None = None) -> bool:
    """Store the outcome of an attempt, if the worker holds the lease. A repeated request stores nothing new."""
    digest = outcome.digest()
    with answering(), writing(engine) as connection:
        job = job_in(connection, locked(lease.job_id))
        if not is_held(job, lease):
            return False
        if job.status == "running":
            _end_in(connection, job, {**_state_after(job, outcome), "outcome_digest": digest}, also)
            return True
        if job.outcome_digest is None:
            return False
        if job.outcome_digest != digest:
            raise AlreadyFinished(FINISHED)
        return True


def cancel_job(engine: Engine, job_id: str, also: OnEnd | None = None) -> Job | None:
    """Cancel a job: a queued one at once, a running one at its worker's next heartbeat."""
    with answering(), writing(engine) as connection:
        log_change_in(connection, job_id)
        return _cancel_in(connection, job_id, also)


def cancel_jobs(engine: Engine, parent: str, also: OnEnd | None = None) -> None:
    """Cancel all parts of a parent."""
    query = select(JOBS.c.id).where(JOBS.c.parent == parent, JOBS.c.status.not_in(ENDED)).order_by(JOBS.c.id)
    with answering(), writing(engine) as connection:
        for job_id in connection.execute(query).scalars().all():
            _cancel_in(connection, job_id, also)
        log_change_in(connection, parent)


def retry_jobs(engine: Engine, parent: str) -> int:
    """Queue the cancelled and failed parts of a parent again; withdraw the cancellation of running parts."""
    is_stopping = and_(JOBS.c.status == "running", JOBS.c.cancel_requested)
    is_retried = or_(JOBS.c.status.in_(("cancelled", "failed")), is_stopping)
    query = select(JOBS.c.id, JOBS.c.status).where(JOBS.c.parent == parent, is_retried).order_by(JOBS.c.id)
    again = {
        "status": "queued", "available_at": now(), "given_back": JOBS.c.attempt, "error": None,
        "cancel_requested": False, "finished_at": None, **_LEASE_ENDS,
    }  # fmt: skip
    with answering(), writing(engine) as connection:
        jobs = connection.execute(query.with_for_update()).all()
        for job_id, status in jobs:
            values = {"cancel_requested": False} if status == "running" else again
            change_in(connection, job_update(job_id), values)
        log_change_in(connection, parent)
    return len(jobs)


def expire_leases(engine: Engine, also: OnEnd | None = None, moment: datetime | None = None) -> int:
    """End the jobs whose lease has expired. Several processes may do so at the same time."""
    with answering(), reading(engine) as connection:
        jobs = connection.execute(select(JOBS.c.id).where(*_is_abandoned(moment)).order_by(JOBS.c.id)).scalars().all()
    taken, errors = 0, []
    for job_id in jobs:
        try:
            taken += _expire(engine, job_id, also, moment)
        except Unreachable:
            raise
        except Exception as error:  # a failing callback of one job must not delay the other jobs
            errors.append(error)
    if errors:
        raise errors[0]
    return taken


def _expire(engine: Engine, job_id: str, also: OnEnd | None, moment: datetime | None) -> bool:
    """End one job with an expired lease, unless another process did, or its worker renewed the lease."""
    is_lost = (JOBS.c.lease_until < (now() if moment is None else moment)).label("is_lost")
    query = select(*JOBS.c, is_lost).where(JOBS.c.id == job_id, *_is_abandoned(moment))
    with answering(), writing(engine) as connection:
        row = connection.execute(query.with_for_update(skip_locked=True)).mappings().one_or_none()
        if row is None:
            return False
        job = job_of(row)
        _end_in(connection, job, _state_after_loss(job, WORKER_LOST if row["is_lost"] else OUT_OF_TIME), also)
    return True


def is_overtime(moment: datetime | None = None) -> ColumnElement[bool]:
    """Whether a job has run beyond its timeout and the overtime."""
    present = None if moment is None else literal(moment, DateTime(timezone=True))
    return later(-OVERTIME_SECONDS, present) > later(JOBS.c.timeout_seconds, JOBS.c.started_at)


def _is_abandoned(moment: datetime | None) -> tuple[ColumnElement[bool], ...]:
    has_ended = JOBS.c.lease_until < (now() if moment is None else moment)
    return JOBS.c.status == "running", or_(has_ended, is_overtime(moment))


def _end_in(connection: Connection, job: Job, values: Mapping[str, Any], also: OnEnd | None) -> Job | None:
    data = {"attempt": job.attempt, **({"error": values["error"]} if values.get("error") else {})}
    ended = change_in(connection, job_update(job.id), values, data)
    if ended is not None and ended.status in ENDED and also is not None:
        also(connection, ended)
    return ended


def _cancel_in(connection: Connection, job_id: str, also: OnEnd | None) -> Job | None:
    job = job_in(connection, locked(job_id))
    if job is None or job.status in ENDED or job.cancel_requested:
        return job
    if job.status == "queued":
        return _end_in(connection, job, {"status": "cancelled", "cancel_requested": True, **_ENDS_NOW}, also)
    return change_in(connection, job_update(job_id), {"cancel_requested": True}, {"cancel_requested": True})


def _state_after(job: Job, outcome: Outcome) -> dict[str, Any]:
    """The next state of a job whose worker ends an attempt."""
    reported = {"result": outcome.result, "error": None if outcome.error is None else dict(outcome.error)}
    if outcome.ending == "succeeded":
        return {"status": "succeeded", **reported, **_ENDS_NOW}
    if job.cancel_requested:
        return {"status": "cancelled", **reported, **_ENDS_NOW}
    is_given_back = outcome.ending in {"cancelled", "released"}  # cancelled: it stopped before the retry
    if is_given_back and job.given_back < MOST_RELEASES:
        return {"status": "queued", "given_back": job.given_back + 1, "available_at": now(), **_NOT_HELD}
    is_final = bool((outcome.error or {}).get("final"))
    if is_final or job.attempts_used >= job.max_attempts:
        return {"status": "failed", **reported, **_ENDS_NOW}
    wait_seconds = min(FIRST_WAIT_SECONDS * 2.0 ** (job.attempts_used - 1), LONGEST_WAIT_SECONDS)
    return {"status": "queued", **reported, "available_at": later(wait_seconds), **_NOT_HELD}


def _state_after_loss(job: Job, error: Mapping[str, str]) -> dict[str, Any]:
    """The next state of a job whose lease expired.

    An attempt without a lease, begun under an earlier release of the service, does not count.
    """
    if job.cancel_requested:
        return {"status": "cancelled", **_LEASE_ENDS, **_ENDS_NOW}
    uncounted = int(job.lease_digest is None)
    if job.attempts_used - uncounted >= job.max_attempts:
        return {"status": "failed", "error": error, **_LEASE_ENDS, **_ENDS_NOW}
    given_back = {"given_back": job.given_back + uncounted}
    return {"status": "queued", "available_at": now(), **given_back, **_LEASE_ENDS, **_NOT_HELD}


MOST_JUMP_SECONDS = 5.0
"""Largest clock jump that is ignored; a quarter of the lease where that is shorter. Source: a choice; gradual clock
adjustments stay far below it."""

LONGEST_LEASE_SECONDS = 3600.0
"""Longest lease that the settings of a replica allow."""


class SlowerClock:
    """The current time by the slower of two clocks: the database's, and the monotonic clock of this process.

    A database clock that is set forward by mistake would otherwise expire everything at once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._started, self._started_at = monotonic(), datetime.now(UTC)

    def present(self) -> datetime:
        """The current time."""
        return min(database_time(self._engine), self._started_at + timedelta(seconds=monotonic() - self._started))


class _ClockReading(NamedTuple):
    """The database's clock, read between two moments of this process's own clock."""

    begun: float
    moment: datetime
    ended: float


class LeaseExpiry:
    """Expires leases of workers that stopped sending heartbeats, but not because a clock was set.

    A lease ends at a time of the database's clock. If that clock is set forward by an hour, all leases expire at once;
    if it is set back, the job of a lost worker is kept for an hour longer. So each tick compares the database's clock
    with the monotonic clock, and renews every lease if they disagree. Each tick also corrects times too far in the
    future, because the clock may have jumped forward and back between two ticks.
    """

    def __init__(
        self, engine: Engine, lease_seconds: float, also: OnEnd | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._engine, self._lease_seconds, self._also, self._clock = engine, lease_seconds, also, clock
        self._last: _ClockReading | None = None
        with suppress(Unreachable):
            self._last = self._read()

    def tick(self) -> int:
        """Expire leases, or renew all of them after a clock jump."""
        correct_moments(self._engine, self._lease_seconds)
        reading = self._read()
        if self._last is not None and self._is_jump(self._last, reading):
            renew_leases(self._engine, self._lease_seconds)
            self._last = self._read()
            return 0
        self._last = reading
        return expire_leases(self._engine, self._also, reading.moment)

    def _read(self) -> _ClockReading:
        begun = self._clock()
        return _ClockReading(begun, database_time(self._engine), self._clock())

    def _is_jump(self, last: _ClockReading, reading: _ClockReading) -> bool:
        """Whether the database's clock advanced by more or less than the monotonic clock."""
        most = min(MOST_JUMP_SECONDS, self._lease_seconds / 4)
        database_seconds = (reading.moment - last.moment).total_seconds()
        return not reading.begun - last.ended - most <= database_seconds <= reading.ended - last.begun + most


def renew_leases(engine: Engine, lease_seconds: float) -> None:
    """Renew every lease, and restart the timeout of every job that is overdue by the database's clock."""
    is_running = JOBS.c.status == "running"
    with answering(), writing(engine) as connection:
        connection.execute(update(JOBS).where(is_running, is_overtime()).values(started_at=now()))
        connection.execute(update(JOBS).where(is_running).values(lease_until=later(lease_seconds)))


def correct_moments(engine: Engine, lease_seconds: float) -> None:
    """Correct times of jobs that are further in the future than the service would set now."""
    is_running, is_queued = JOBS.c.status == "running", JOBS.c.status == "queued"
    wrong = {
        "started_at": (and_(is_running, JOBS.c.started_at > later(MOST_JUMP_SECONDS)), now()),
        "lease_until": (and_(is_running, JOBS.c.lease_until > later(LONGEST_LEASE_SECONDS)), later(lease_seconds)),
        "available_at": (and_(is_queued, JOBS.c.available_at > later(LONGEST_WAIT_SECONDS + MOST_JUMP_SECONDS)), now()),
    }
    is_any_wrong = select(JOBS.c.id).where(or_(*(condition for condition, _ in wrong.values()))).limit(1)
    with answering(), reading(engine) as connection:
        if connection.execute(is_any_wrong).first() is None:
            return
    with answering(), writing(engine) as connection:
        for name, (condition, moment) in wrong.items():
            connection.execute(update(JOBS).where(condition).values({name: moment}))
