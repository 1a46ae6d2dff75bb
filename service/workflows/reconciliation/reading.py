"""Which jobs does an output of sacct tell of, whichever of its two forms it has, and how is it handed on?"""

import json
from collections.abc import Sequence
from math import ceil

from service.errors import Problem, Refused
from service.workflows.reconciliation.document import AS_PRINTED, read_document
from service.workflows.reconciliation.jobs import FinishedJob
from service.workflows.reconciliation.parsable import read_parsable
from service.workflows.reconciliation.records import SlurmRecord, SlurmRecords

HANDED_ON = ("JobID", "Cluster", "State", "ElapsedRaw", "AllocTRES", "Start", "Restarts", "Comment")
"""Columns of what is handed on: nobody's name, no path, no command."""

SLICE = "1g.1gb"
"""Stands for the size of a slice, which nobody asks for."""


def read_sacct(text: str) -> SlurmRecords:
    """The records of an output.

    Args:
        text: what `sacct --parsable2` or `sacct --json` printed

    Returns:
        the records, and those that cannot be read

    Raises:
        Refused: it is neither, or none of its records can be read
    """
    if not text.lstrip("\ufeff \r\n\t").startswith("{"):
        return read_parsable(text)
    try:
        document = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        message = "it begins as JSON and is none, so it was cut off or mixed with other output"
        fix = f"{AS_PRINTED}, without what it says on standard error"
        raise Refused(Problem(field="", code="not_json", message=message, fix=fix)) from None
    return read_document(document)


def handed_on(jobs: Sequence[FinishedJob]) -> str:
    """Jobs as a table that `read_sacct` reads, with nothing that reconciling does not need.

    Args:
        jobs: the jobs

    Returns:
        the table
    """
    rows = [_row(job.estimate_id, record) for job in jobs for record in job.records]
    return "".join(f"{'|'.join(row)}\n" for row in (HANDED_ON, *rows))


def _row(estimate_id: str, record: SlurmRecord) -> tuple[str, ...]:
    model = f":{SLICE}" if record.is_partition else ""
    gpus = "" if record.gpus is None else f"gres/gpu{model}={record.gpus}"
    seconds = str(ceil(record.elapsed_seconds))
    cluster = "".join(letter for letter in record.cluster if letter.isalnum() or letter in "-_.")
    return (
        record.job_id, cluster, record.state, seconds, gpus, record.started, str(record.restarts), estimate_id,
    )  # fmt: skip
