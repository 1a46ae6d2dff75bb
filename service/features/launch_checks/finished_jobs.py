"""Effects of a finished job, by its kind, in the transaction that ends it."""

from collections.abc import Mapping

from service.errors import Problem, Refused
from service.features.launch_checks.findings import LAUNCH_CHECK, keep_findings
from service.jobs.files import has_file_in
from service.jobs.jobs import Also, Job
from service.store import Connection

KIND = "sweep-shard"
"""Kind of the jobs that work out pieces of sweeps."""

ROWS_FILE = "rows.parquet"
"""File that such a job leaves."""


def refuse_unfinished(connection: Connection, job: Job) -> None:
    """Refuse to take a piece for done whose rows are not there."""
    if job.status != "succeeded":
        return
    counted = job.result.get("rows") if isinstance(job.result, dict) else None
    if counted != job.payload["rows"]:
        message = f"the piece has {job.payload['rows']} rows, and the result counts others"
        raise Refused(Problem(field="result.rows", code="rows_missing", message=message, fix="work out every row"))
    if not has_file_in(connection, job.id, ROWS_FILE):
        message = f"the piece is not done before {ROWS_FILE} is kept"
        raise Refused(Problem(field="result", code="file_missing", message=message, fix=f"send {ROWS_FILE} first"))


FINISHED: Mapping[str, Also] = {KIND: refuse_unfinished, LAUNCH_CHECK: keep_findings}
"""What to write by kind of job; what a function raises undoes the transaction, and the job stays as it was."""


def on_end(connection: Connection, job: Job) -> None:
    """Write what belongs to the end of a job."""
    write = FINISHED.get(job.kind)
    if write is not None:
        write(connection, job)
