"""What else is written when a job ends? By kind of job, a function of the transaction that ends it."""

from collections.abc import Mapping

from service.store import Also, Connection, Job
from service.workflows.ended_shards import KIND, refuse_unfinished
from service.workflows.launch_checks.finishing import LAUNCH_CHECK, keep_findings

FINISHED: Mapping[str, Also] = {KIND: refuse_unfinished, LAUNCH_CHECK: keep_findings}
"""What to write by kind of job; what a function raises undoes the transaction, and the job stays as it was."""


def on_end(connection: Connection, job: Job) -> None:
    """Write what belongs to the end of a job.

    Args:
        connection: the database, inside the transaction that ends the job
        job: the job as it ended: succeeded, failed or cancelled
    """
    write = FINISHED.get(job.kind)
    if write is not None:
        write(connection, job)
