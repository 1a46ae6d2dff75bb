"""Leases on jobs: a worker claims a job, proves its claim by a random token, renews it by heartbeats and stores files.

Only a digest of the token is stored, together with the attempt. A lease is valid for the key that made the claim alone,
and the next claim of the job replaces it. Files are in the database, so that every replica serves them and one backup
has them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Literal, NamedTuple, TypeGuard

from sqlalchemy import Connection, Engine, Select, delete, func, insert, select, tuple_, update

from service.errors import Problem, Refused
from service.jobs.jobs import Job, add_event_in, change_in, job_in, job_update
from service.settings import WORKER_FILE_BYTES
from service.store.engine import answering, in_utc, insert_new, later, moment_in, now, reading, writing
from service.store.tables import JOB_FILES, JOBS, OWNER_SHARES
from service.store.workers import JobRequest, QueuedWork, renew_worker_in

LEASE_BYTES = 32
"""Random bytes of a lease: 256 bits."""
MOST_EVENTS = 2_000
"""Events of one job after which it takes no more progress. Source: a choice; this project's worker sends at most 600
reports in one attempt."""
MOST_PROGRESS_BYTES = 8 << 20
"""Bytes of all progress of one job. Source: a choice; 2,000 reports of 4 KB."""

HeartbeatState = Literal["run", "cancel", "lost"]
"""Instruction to a worker: go on, stop because the job is cancelled, or stop because its lease is invalid."""


class Lease(NamedTuple):
    """A worker's proof of its claim on a job."""

    job_id: str
    token: str
    """Random token from the answer to the claim."""
    key: str = ""
    """Key of the worker; empty without keys."""


class Claim(NamedTuple):
    """A claimed job with its lease."""

    job: Job
    lease: Lease


def read_queued_work(engine: Engine) -> tuple[frozenset[QueuedWork], float | None]:
    """Queued jobs by requirements and owner, and the seconds until a job that was put off becomes available.

    A cheap read before a claim, one for all waiting workers.
    """
    first = select(func.min(JOBS.c.available_at)).where(JOBS.c.status == "queued", JOBS.c.available_at > now())
    with answering(), reading(engine) as connection:
        found = frozenset(_queued_work_in(connection))
        moment, available_at = moment_in(connection), in_utc(connection.execute(first).scalar())
    return found, None if available_at is None else max(0.0, (available_at - moment).total_seconds())


def claim_job(engine: Engine, request: JobRequest, lease_seconds: float) -> Claim | None:
    """Claim a job that a worker can do: owners in turn, of each owner the most urgent first, then the oldest."""
    token = token_urlsafe(LEASE_BYTES)
    with answering(), writing(engine) as connection:
        matching = _matching_in(connection, request)
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
    """Renew the lease of a job."""
    with answering(), writing(engine) as connection:
        job = job_in(connection, locked(lease.job_id))
        if not is_held(job, lease) or job.status != "running":
            return "lost"
        renew_worker_in(connection, job.lease_key, job.worker or "")
        values: dict[str, Any] = {"lease_until": later(lease_seconds)}
        if progress is not None and progress != job.progress:
            size = len(json.dumps(progress).encode())
            _refuse_too_much_progress(job, size)
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
    return any(row.lease_digest is not None and _is_same(row.lease_digest, token, row.attempt) for row in rows)


def is_held(job: Job | None, lease: Lease) -> TypeGuard[Job]:
    """Whether a lease is that of the last claim of a job, and comes from the key that claimed it."""
    if job is None or job.lease_digest is None or job.lease_key not in ("", lease.key):
        return False
    return _is_same(job.lease_digest, lease.token, job.attempt)


def locked(job_id: str) -> Select[Any]:
    """A job, locked until the transaction ends."""
    return select(JOBS).where(JOBS.c.id == job_id).with_for_update()


def _is_same(digest: bytes, token: str, attempt: int) -> bool:
    return compare_digest(digest, _digest(token, attempt))


def _digest(token: str, attempt: int) -> bytes:
    """Digest of a lease. It covers the attempt, so that a claim of an earlier release leaves no older lease valid."""
    return sha256(f"{attempt}:{token}".encode()).digest()


def _refuse_too_much_progress(job: Job, size: int) -> None:
    if job.events < MOST_EVENTS and job.progress_bytes + size <= MOST_PROGRESS_BYTES:
        return
    message = f"{MOST_EVENTS} events and {MOST_PROGRESS_BYTES >> 20} MiB of progress are kept of a job"
    fix = "send heartbeats without progress from now on; the result is taken as ever"
    raise Refused(Problem(field="progress", code="too_many_events", message=message, fix=fix))


def _is_available() -> tuple[Any, ...]:
    """Whether a job may be claimed now. The clock is read once, not for each job."""
    return JOBS.c.status == "queued", JOBS.c.available_at <= select(now()).scalar_subquery()


def _matching_in(connection: Connection, request: JobRequest) -> dict[str, list[QueuedWork]]:
    """Queued jobs that a worker can do, by owner."""
    matching: dict[str, list[QueuedWork]] = {}
    for work in _queued_work_in(connection):
        if request.can_do(work):
            matching.setdefault(work.owner, []).append(work)
    return matching


def _queued_work_in(connection: Connection) -> list[QueuedWork]:
    query = select(JOBS.c.kind, JOBS.c.requires, JOBS.c.owner).where(*_is_available()).distinct()
    return [QueuedWork(*row) for row in connection.execute(query)]


def _next_in(connection: Connection, matching: Mapping[str, Sequence[QueuedWork]]) -> tuple[str, int] | None:
    """The next job, locked, and the number of claims.

    Claims at the same moment serve different owners, and get different jobs. An owner that another claim is serving
    is served too where no other owner has a job.
    """
    by_share = select(OWNER_SHARES.c.owner).where(OWNER_SHARES.c.owner.in_(list(matching)))
    known = set(connection.execute(by_share).scalars())
    if new := [{"owner": owner, "served": 0} for owner in sorted(matching.keys() - known)]:
        connection.execute(insert_new(connection, OWNER_SHARES), new)
    by_share = by_share.order_by(OWNER_SHARES.c.served, OWNER_SHARES.c.owner)
    next_owner = connection.execute(by_share.limit(1).with_for_update(skip_locked=True)).scalar_one_or_none()
    order = list(connection.execute(by_share).scalars())
    for owner in sorted(order, key=lambda owner: owner != next_owner):
        first = _first_in(connection, owner, matching[owner])
        if first is not None:
            if owner == next_owner:
                last = select(func.max(OWNER_SHARES.c.served)).scalar_subquery()
                connection.execute(update(OWNER_SHARES).where(OWNER_SHARES.c.owner == owner).values(served=last + 1))
            return first
    return None


def _first_in(connection: Connection, owner: str, matching: Sequence[QueuedWork]) -> tuple[str, int] | None:
    """The first job of an owner that no other claim has locked."""
    is_match = tuple_(JOBS.c.kind, JOBS.c.requires).in_([(work.kind, work.requires) for work in matching])
    first = select(JOBS.c.id, JOBS.c.attempt).where(*_is_available(), JOBS.c.owner == owner, is_match)
    first = first.order_by(JOBS.c.priority.desc(), JOBS.c.created_at, JOBS.c.id).limit(1)
    row = connection.execute(first.with_for_update(skip_locked=True)).one_or_none()
    return None if row is None else (row.id, row.attempt)


MOST_FILES = 100
"""Files of one job. Source: a choice; a launch check writes one or two a probe, a part of a sweep one."""
MOST_JOB_BYTES = 256 << 20
"""Bytes of all files of one job. Source: a choice; four files of the largest size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A file of a job."""

    name: str
    media_type: str
    content: bytes


def store_file(engine: Engine, lease: Lease, file: JobFile, most_key_bytes: int = WORKER_FILE_BYTES) -> bool:
    """Store a file of a job, in place of one of the same name."""
    same = JOB_FILES.c.job_id == lease.job_id, JOB_FILES.c.name == file.name
    values = {"job_id": lease.job_id, "name": file.name, "media_type": file.media_type, "content": file.content}
    with answering(), writing(engine) as connection:
        job = job_in(connection, locked(lease.job_id))
        if not is_held(job, lease) or job.status != "running":
            return False
        replaced = connection.execute(select(func.length(JOB_FILES.c.content)).where(*same)).scalar_one_or_none()
        more_bytes = len(file.content) - (replaced or 0)
        if replaced is None:
            _refuse_too_many(connection, job)
        _refuse_too_large(connection, job, more_bytes, most_key_bytes)
        connection.execute(delete(JOB_FILES).where(*same))
        connection.execute(insert(JOB_FILES), values)
        connection.execute(job_update(job.id).values(file_bytes=job.file_bytes + more_bytes))
    return True


def holds_job(engine: Engine, lease: Lease) -> bool:
    """Whether a worker holds a job now; checked before a long file is read."""
    with answering(), reading(engine) as connection:
        job = job_in(connection, select(JOBS).where(JOBS.c.id == lease.job_id))
    return is_held(job, lease) and job.status == "running"


def _refuse_too_many(connection: Connection, job: Job) -> None:
    count = select(func.count()).select_from(JOB_FILES).where(JOB_FILES.c.job_id == job.id)
    if connection.execute(count).scalar_one() >= MOST_FILES:
        message, fix = f"a job leaves at most {MOST_FILES} files", "put several into one, or replace one by its name"
        raise Refused(Problem(field="", code="too_many_files", message=message, fix=fix))


def _refuse_too_large(connection: Connection, job: Job, more_bytes: int, most_key_bytes: int) -> None:
    """Refuse a file beyond the bounds of a job or of a key.

    Uploads of one key at the same moment are not counted together, so that none waits for another.
    """
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
    """A file of a job."""
    columns = [JOB_FILES.c[field] for field in JobFile.__dataclass_fields__]
    query = select(*columns).where(JOB_FILES.c.job_id == job_id, JOB_FILES.c.name == name)
    with answering(), reading(engine) as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else JobFile(**row)


def read_file_names(engine: Engine, job_id: str) -> list[str]:
    """Names of the files of a job."""
    query = select(JOB_FILES.c.name).where(JOB_FILES.c.job_id == job_id).order_by(JOB_FILES.c.name)
    with answering(), reading(engine) as connection:
        return list(connection.execute(query).scalars())


def has_file_in(connection: Connection, job_id: str, name: str) -> bool:
    """Whether a job has a file of a name."""
    query = select(JOB_FILES.c.name).where(JOB_FILES.c.job_id == job_id, JOB_FILES.c.name == name)
    return connection.execute(query).one_or_none() is not None
