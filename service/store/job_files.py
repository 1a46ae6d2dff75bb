"""Which files did a job leave? Kept in the database: one backup, one place, whichever replica is asked."""

from dataclasses import dataclass

from sqlalchemy import Engine, delete, insert, select

from service.store.engine import answering, reading, writing
from service.store.job_leases import Held, held_job
from service.store.job_tables import JOB_FILES, JOBS


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A file that a job left."""

    name: str
    """What it is called."""
    media_type: str
    """What it holds."""
    content: bytes
    """Its bytes."""


def keep_file(engine: Engine, held: Held, file: JobFile) -> bool:
    """Keep a file of a job, in the place of one of the same name.

    Args:
        engine: the database
        held: the worker's claim
        file: the file

    Returns:
        whether it is kept; false where the claim holds no longer

    Raises:
        Unreachable: the database does not answer
    """
    same = JOB_FILES.c.job_id == held.job_id, JOB_FILES.c.name == file.name
    values = {"job_id": held.job_id, "name": file.name, "media_type": file.media_type, "content": file.content}
    with answering(), writing(engine) as connection:
        if connection.execute(held_job(held).values(worker=JOBS.c.worker)).rowcount != 1:
            return False
        connection.execute(delete(JOB_FILES).where(*same))
        connection.execute(insert(JOB_FILES), values)
    return True


def read_file(engine: Engine, job_id: str, name: str) -> JobFile | None:
    """A file of a job.

    Args:
        engine: the database
        job_id: the job's id
        name: what the file is called

    Returns:
        the file; None where there is none

    Raises:
        Unreachable: the database does not answer
    """
    columns = [JOB_FILES.c[field] for field in JobFile.__dataclass_fields__]
    query = select(*columns).where(JOB_FILES.c.job_id == job_id, JOB_FILES.c.name == name)
    with answering(), reading(engine) as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else JobFile(**row)


def read_file_names(engine: Engine, job_id: str) -> list[str]:
    """What the files of a job are called.

    Args:
        engine: the database
        job_id: the job's id

    Returns:
        names, in order

    Raises:
        Unreachable: the database does not answer
    """
    query = select(JOB_FILES.c.name).where(JOB_FILES.c.job_id == job_id).order_by(JOB_FILES.c.name)
    with answering(), reading(engine) as connection:
        return list(connection.execute(query).scalars())
