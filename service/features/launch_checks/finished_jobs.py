"""Writes at the end of a job, by job kind, in the transaction that ends it."""

from collections.abc import Mapping

from service.errors import Problem, Refused
from service.features.launch_checks.findings import LAUNCH_CHECK, store_findings
from service.jobs.jobs import Job, OnEnd
from service.jobs.leases import has_file_in
from service.store import Connection

SWEEP_SHARD = "sweep-shard"
"""Kind of jobs that compute shards of sweeps."""

ROWS_FILE = "rows.parquet"


def refuse_unfinished(connection: Connection, job: Job) -> None:
    """Refuse to finish a shard without its rows."""
    if job.status != "succeeded":
        return
    counted = job.result.get("rows") if isinstance(job.result, dict) else None
    if counted != job.payload["rows"]:
        message = f"the piece has {job.payload['rows']} rows, and the result counts others"
        raise Refused(Problem(field="result.rows", code="rows_missing", message=message, fix="work out every row"))
    if not has_file_in(connection, job.id, ROWS_FILE):
        message = f"the piece is not done before {ROWS_FILE} is kept"
        raise Refused(Problem(field="result", code="file_missing", message=message, fix=f"send {ROWS_FILE} first"))


FINISHED: Mapping[str, OnEnd] = {SWEEP_SHARD: refuse_unfinished, LAUNCH_CHECK: store_findings}
"""Function by job kind; an exception rolls the transaction back."""


def on_end(connection: Connection, job: Job) -> None:
    """Run the writes of a finished job."""
    write = FINISHED.get(job.kind)
    if write is not None:
        write(connection, job)
