"""Leases on jobs: a worker claims a job, proves it by a random token, renews it, stores files, and ends the attempt."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeGuard

from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    and_,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from service.errors import AlreadyFinished, Problem, Refused, Unreachable
from service.jobs.jobs import Job, OnEnd, add_event_in, change_in, job_in, job_of, job_update, read_job
from service.settings import WORKER_FILE_BYTES
from service.store.engine import answering, database_time, in_utc, insert_new, later, moment_in, now, reading, writing
from service.store.requests import log_change_in
from service.store.tables import ENDED, JOB_FILES, JOBS, OWNER_SHARES
from service.store.workers import JobRequest, QueuedWork, renew_worker_in

LEASE_BYTES = 32
"""Random bytes of a lease: 256 bits."""
MOST_EVENTS = 2_000
"""Events of a job after which it takes no more progress. Source: a choice; this project's worker sends at most 600."""
MOST_PROGRESS_BYTES = 8 << 20
"""Bytes of all progress of one job. Source: a choice; 2,000 reports of 4 KB."""

HeartbeatState = Literal["run", "cancel", "lost"]
"""Instruction to a worker: go on, stop because the job is cancelled, or stop because its lease is invalid."""


class Lease(NamedTuple):
    """A worker's proof of its claim on a job."""

    job_id: str
    token: str
    key: str = ""
    """Key of the worker; empty without keys."""


class Claim(NamedTuple):
    job: Job
    lease: Lease


def read_queued_work(engine: Engine) -> tuple[frozenset[QueuedWork], float | None]:
    """Queued jobs by requirements and owner, and the seconds until the next put-off job: one cheap read for all."""
    first = select(func.min(JOBS.c.available_at)).where(JOBS.c.status == "queued", JOBS.c.available_at > now())
    with answering(), reading(engine) as connection:
        found = frozenset(_queued_work_in(connection))
        moment, available_at = moment_in(connection), in_utc(connection.execute(first).scalar())
    return found, None if available_at is None else max(0.0, (available_at - moment).total_seconds())


def claim_job(engine: Engine, request: JobRequest, lease_seconds: float) -> Claim | None:
    """Claim a job that a worker can do: owners in turn, of each owner the most urgent first, then the oldest."""
    token = token_urlsafe(LEASE_BYTES)
    with answering(), writing(engine) as connection:
        matching: dict[str, list[QueuedWork]] = {}
        for work in _queued_work_in(connection):
            if request.can_do(work):
                matching.setdefault(work.owner, []).append(work)
        first = _next_in(connection, matching) if matching else None
        if first is None:
            return None
        job_id, attempt = first[0], first[1] + 1
        claimed = {"status": "running", "worker": request.worker, "attempt": attempt}
        proved = {"lease_digest": _digest(token, attempt), "lease_key": request.key, "outcome_digest": None}
        moments = {"lease_until": later(lease_seconds), "started_at": now(), "finished_at": None}
        emptied = {"progress": None, "result": None, "error": None, "file_bytes": 0}
        values = {**claimed, **proved, **moments, **emptied}
        job = change_in(connection, job_update(job_id), values, {"worker": request.worker})
        if attempt > 1:
            connection.execute(delete(JOB_FILES).where(JOB_FILES.c.job_id == job_id))
        return None if job is None else Claim(job, Lease(job_id, token, request.key))


def heartbeat_job(engine: Engine, lease: Lease, lease_seconds: float, progress: Any = None) -> HeartbeatState:
    with answering(), writing(engine) as connection:
        job = _locked_in(connection, lease.job_id)
        if not is_held(job, lease) or job.status != "running":
            return "lost"
        renew_worker_in(connection, job.lease_key, job.worker or "")
        values: dict[str, Any] = {"lease_until": later(lease_seconds)}
        if progress is not None and progress != job.progress:
            size = len(json.dumps(progress).encode())
            if job.events >= MOST_EVENTS or job.progress_bytes + size > MOST_PROGRESS_BYTES:
                message = f"{MOST_EVENTS} events and {MOST_PROGRESS_BYTES >> 20} MiB of progress are kept of a job"
                fix = "send heartbeats without progress from now on; the result is taken as ever"
                raise Refused(Problem(field="progress", code="too_many_events", message=message, fix=fix))
            values |= {"progress": progress, "events": JOBS.c.events + 1, "progress_bytes": job.progress_bytes + size}
            add_event_in(connection, replace(job, events=job.events + 1), "progress", progress)
        connection.execute(job_update(job.id).values(**values))
        return "cancel" if job.cancel_requested else "run"


def holds_part(engine: Engine, parent: str, token: str, key: str) -> bool:
    """Whether a worker holds a job that is a part of a parent."""
    query = select(JOBS).where(JOBS.c.parent == parent, JOBS.c.status == "running", JOBS.c.lease_key.in_(("", key)))
    columns = JOBS.c.id, JOBS.c.attempt, JOBS.c.lease_digest
    with answering(), reading(engine) as connection:
        rows = connection.execute(query.with_only_columns(*columns)).all()
    digests = [(row.lease_digest, _digest(token, row.attempt)) for row in rows if row.lease_digest is not None]
    return any(compare_digest(stored, own) for stored, own in digests)


def is_held(job: Job | None, lease: Lease) -> TypeGuard[Job]:
    """Whether a lease is that of the last claim of a job, and comes from the key that claimed it."""
    if job is None or job.lease_digest is None or job.lease_key not in ("", lease.key):
        return False
    return compare_digest(job.lease_digest, _digest(lease.token, job.attempt))


def _locked_in(connection: Connection, job_id: str) -> Job | None:
    return job_in(connection, select(JOBS).where(JOBS.c.id == job_id).with_for_update())


def _digest(token: str, attempt: int) -> bytes:
    """Digest of a lease. It covers the attempt, so that a claim of an earlier release leaves no older lease valid."""
    return sha256(f"{attempt}:{token}".encode()).digest()


def _is_available() -> tuple[Any, ...]:
    """Whether a job may be claimed now. The clock is read once, not for each job."""
    return JOBS.c.status == "queued", JOBS.c.available_at <= select(now()).scalar_subquery()


def _queued_work_in(connection: Connection) -> list[QueuedWork]:
    query = select(JOBS.c.kind, JOBS.c.requires, JOBS.c.owner).where(*_is_available()).distinct()
    return [QueuedWork(*row) for row in connection.execute(query)]


def _next_in(connection: Connection, matching: Mapping[str, Sequence[QueuedWork]]) -> tuple[str, int] | None:
    """The next job, locked, and its claims; claims at one moment serve different owners where several have jobs."""
    by_share = select(OWNER_SHARES.c.owner).where(OWNER_SHARES.c.owner.in_(list(matching)))
    known = set(connection.execute(by_share).scalars())
    if new := [{"owner": owner, "served": 0} for owner in sorted(matching.keys() - known)]:
        connection.execute(insert_new(connection, OWNER_SHARES), new)
    by_share = by_share.order_by(OWNER_SHARES.c.served, OWNER_SHARES.c.owner)
    next_owner = connection.execute(by_share.limit(1).with_for_update(skip_locked=True)).scalar_one_or_none()
    order = list(connection.execute(by_share).scalars())
    for owner in sorted(order, key=lambda owner: owner != next_owner):
        is_match = tuple_(JOBS.c.kind, JOBS.c.requires).in_([(work.kind, work.requires) for work in matching[owner]])
        query = select(JOBS.c.id, JOBS.c.attempt).where(*_is_available(), JOBS.c.owner == owner, is_match)
        query = query.order_by(JOBS.c.priority.desc(), JOBS.c.created_at, JOBS.c.id).limit(1)
        first = connection.execute(query.with_for_update(skip_locked=True)).one_or_none()  # that no other claim has
        if first is not None:
            if owner == next_owner:
                last = select(func.max(OWNER_SHARES.c.served)).scalar_subquery()
                connection.execute(update(OWNER_SHARES).where(OWNER_SHARES.c.owner == owner).values(served=last + 1))
            return first.id, first.attempt
    return None


MOST_FILES = 100
"""Files of one job. Source: a choice; a launch check writes one or two a probe, a part of a sweep one."""
MOST_JOB_BYTES = 256 << 20
"""Bytes of all files of one job. Source: a choice; four files of the largest size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    name: str
    media_type: str
    content: bytes


def store_file(engine: Engine, lease: Lease, file: JobFile, most_key_bytes: int = WORKER_FILE_BYTES) -> bool:
    """Store a file of a job, in place of one of the same name."""
    same = JOB_FILES.c.job_id == lease.job_id, JOB_FILES.c.name == file.name
    values = {"job_id": lease.job_id, "name": file.name, "media_type": file.media_type, "content": file.content}
    with answering(), writing(engine) as connection:
        job = _locked_in(connection, lease.job_id)
        if not is_held(job, lease) or job.status != "running":
            return False
        replaced = connection.execute(select(func.length(JOB_FILES.c.content)).where(*same)).scalar_one_or_none()
        more_bytes = len(file.content) - (replaced or 0)
        if replaced is None:
            count = select(func.count()).select_from(JOB_FILES).where(JOB_FILES.c.job_id == job.id)
            if connection.execute(count).scalar_one() >= MOST_FILES:
                message = f"a job leaves at most {MOST_FILES} files"
                fix = "put several into one, or replace one by its name"
                raise Refused(Problem(field="", code="too_many_files", message=message, fix=fix))
        _refuse_too_large(connection, job, more_bytes, most_key_bytes)
        connection.execute(delete(JOB_FILES).where(*same))
        connection.execute(insert(JOB_FILES), values)
        connection.execute(job_update(job.id).values(file_bytes=job.file_bytes + more_bytes))
    return True


def holds_job(engine: Engine, lease: Lease) -> bool:
    """Whether a worker holds a job now; checked before a long file is read."""
    job = read_job(engine, lease.job_id)
    return is_held(job, lease) and job.status == "running"


def _refuse_too_large(connection: Connection, job: Job, more_bytes: int, most_key_bytes: int) -> None:
    """Refuse a file beyond the bounds of a job or of a key; simultaneous uploads do not wait for each other."""
    if more_bytes <= 0:
        return
    if job.file_bytes + more_bytes > MOST_JOB_BYTES:
        message = f"the files of a job have at most {MOST_JOB_BYTES} bytes, and this one has {job.file_bytes} so far"
        raise Refused(Problem(field="", code="job_bytes_used_up", message=message, fix="leave fewer or smaller files"))
    stored = select(func.coalesce(func.sum(JOBS.c.file_bytes), 0)).where(JOBS.c.lease_key == job.lease_key)
    if int(connection.execute(stored).scalar_one()) + more_bytes > most_key_bytes:
        message = f"the files of all jobs that this key claimed have at most {most_key_bytes} bytes"
        fix = "store fewer days of files (TRAINCOST_KEEP_JOB_FILES_DAYS), or allow more (TRAINCOST_WORKER_FILE_BYTES)"
        raise Refused(Problem(field="", code="key_bytes_used_up", message=message, fix=fix))


def read_file(engine: Engine, job_id: str, name: str) -> JobFile | None:
    columns = [JOB_FILES.c[field] for field in JobFile.__dataclass_fields__]
    query = select(*columns).where(JOB_FILES.c.job_id == job_id, JOB_FILES.c.name == name)
    with answering(), reading(engine) as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else JobFile(**row)


def read_file_names(engine: Engine, job_id: str) -> list[str]:
    query = select(JOB_FILES.c.name).where(JOB_FILES.c.job_id == job_id).order_by(JOB_FILES.c.name)
    with answering(), reading(engine) as connection:
        return list(connection.execute(query).scalars())


def has_file_in(connection: Connection, job_id: str, name: str) -> bool:
    query = select(JOB_FILES.c.name).where(JOB_FILES.c.job_id == job_id, JOB_FILES.c.name == name)
    return connection.execute(query).one_or_none() is not None


Ending = Literal["succeeded", "failed", "cancelled", "released"]
"""End of an attempt. `released`: returned to the queue, because the worker has to stop."""

FIRST_WAIT_SECONDS = 1.0
"""Wait before a failed job is tried again; it doubles with every attempt. Source: a choice."""
LONGEST_WAIT_SECONDS = 60.0
"""Longest wait before a failed job is tried again. Source: a choice."""
OVERTIME_SECONDS = 60.0
"""Time beyond its timeout that a live worker keeps a job, to upload results. Source: a choice."""
MOST_RELEASES = 1_000
"""Released attempts of a job that are not counted. Source: a choice; an hour with one each minute has 60."""

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
    error: Mapping[str, Any] | None = None
    """Code, message, and `final` where another attempt would fail the same way."""

    def digest(self) -> bytes:
        error = None if self.error is None else dict(self.error)
        text = json.dumps([self.ending, self.result, error], sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).digest()


def finish_job(engine: Engine, lease: Lease, outcome: Outcome, also: OnEnd | None = None) -> bool:
    """Store the outcome of an attempt, if the worker holds the lease. A repeated request stores nothing new."""
    digest = outcome.digest()
    with answering(), writing(engine) as connection:
        job = _locked_in(connection, lease.job_id)
        if not is_held(job, lease):
            return False
        if job.status == "running":
            _end_in(connection, job, {**_state_after(job, outcome), "outcome_digest": digest}, also)
            return True
        if job.outcome_digest not in (None, digest):
            raise AlreadyFinished(FINISHED)
        return job.outcome_digest == digest


def cancel_job(engine: Engine, job_id: str, also: OnEnd | None = None) -> Job | None:
    """Cancel a job: a queued one at once, a running one at its worker's next heartbeat."""
    with answering(), writing(engine) as connection:
        log_change_in(connection, job_id)
        return _cancel_in(connection, job_id, also)


def cancel_jobs(engine: Engine, parent: str, also: OnEnd | None = None) -> None:
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
    job = _locked_in(connection, job_id)
    if job is None or job.status in ENDED or job.cancel_requested:
        return job
    if job.status == "queued":
        return _end_in(connection, job, {"status": "cancelled", "cancel_requested": True, **_ENDS_NOW}, also)
    return change_in(connection, job_update(job_id), {"cancel_requested": True}, {"cancel_requested": True})


def _state_after(job: Job, outcome: Outcome) -> dict[str, Any]:
    reported = {"result": outcome.result, "error": None if outcome.error is None else dict(outcome.error)}
    if outcome.ending == "succeeded" or job.cancel_requested:
        return {"status": "succeeded" if outcome.ending == "succeeded" else "cancelled", **reported, **_ENDS_NOW}
    is_given_back = outcome.ending in {"cancelled", "released"}  # cancelled: it stopped before the retry
    if is_given_back and job.given_back < MOST_RELEASES:
        return {"status": "queued", "given_back": job.given_back + 1, "available_at": now(), **_NOT_HELD}
    is_final = bool((outcome.error or {}).get("final"))
    if is_final or job.attempts_used >= job.max_attempts:
        return {"status": "failed", **reported, **_ENDS_NOW}
    wait_seconds = min(FIRST_WAIT_SECONDS * 2.0 ** (job.attempts_used - 1), LONGEST_WAIT_SECONDS)
    return {"status": "queued", **reported, "available_at": later(wait_seconds), **_NOT_HELD}


def _state_after_loss(job: Job, error: Mapping[str, str]) -> dict[str, Any]:
    """The next state of a job whose lease expired."""
    if job.cancel_requested:
        return {"status": "cancelled", **_LEASE_ENDS, **_ENDS_NOW}
    uncounted = int(job.lease_digest is None)  # an attempt begun under an earlier release of the service
    if job.attempts_used - uncounted >= job.max_attempts:
        return {"status": "failed", "error": error, **_LEASE_ENDS, **_ENDS_NOW}
    given_back = {"given_back": job.given_back + uncounted}
    return {"status": "queued", "available_at": now(), **given_back, **_LEASE_ENDS, **_NOT_HELD}


MOST_JUMP_SECONDS = 5.0
"""Largest clock jump that is ignored; a quarter of the lease where that is shorter. Source: a choice; gradual clock
adjustments stay far below it."""
LONGEST_LEASE_SECONDS = 3600.0


class SlowerClock:
    """Time by the slower of the database's clock, which may be set forward by mistake, and this process's monotonic."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._started, self._started_at = monotonic(), datetime.now(UTC)

    def present(self) -> datetime:
        return min(database_time(self._engine), self._started_at + timedelta(seconds=monotonic() - self._started))


class _ClockReading(NamedTuple):
    """The database's clock, read between two moments of this process's own clock."""

    begun: float
    moment: datetime
    ended: float


class LeaseExpiry:
    """Expires leases of workers that stopped sending heartbeats, but not because a clock was set."""

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
            self._renew_all()
            self._last = self._read()
            return 0
        self._last = reading
        return expire_leases(self._engine, self._also, reading.moment)

    def _renew_all(self) -> None:
        """Renew every lease, and restart the timeout of every job that is overdue by the database's clock."""
        is_running = JOBS.c.status == "running"
        with answering(), writing(self._engine) as connection:
            connection.execute(update(JOBS).where(is_running, is_overtime()).values(started_at=now()))
            connection.execute(update(JOBS).where(is_running).values(lease_until=later(self._lease_seconds)))

    def _read(self) -> _ClockReading:
        begun = self._clock()
        return _ClockReading(begun, database_time(self._engine), self._clock())

    def _is_jump(self, last: _ClockReading, reading: _ClockReading) -> bool:
        """Whether the database's clock advanced by more or less than the monotonic clock."""
        most = min(MOST_JUMP_SECONDS, self._lease_seconds / 4)
        database_seconds = (reading.moment - last.moment).total_seconds()
        return not reading.begun - last.ended - most <= database_seconds <= reading.ended - last.begun + most


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
