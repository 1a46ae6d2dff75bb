"""Files of jobs, stored in the database, so that every replica serves them and one backup has them."""

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, func, insert, select

from service.errors import Problem, Refused
from service.jobs.jobs import Job, job_in, job_update
from service.jobs.leases import Lease, is_held, locked
from service.settings import WORKER_FILE_BYTES
from service.store.engine import answering, reading, writing
from service.store.tables import JOB_FILES, JOBS

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
