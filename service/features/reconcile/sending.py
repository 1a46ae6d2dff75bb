"""Sending of sacct records to the service, in parts and without fields that it does not need."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path

from service.answers.diagnoses import Reconciliation
from service.errors import Problem, Refused, TraincostError
from service.features.reconcile.jobs import FinishedJob, finished_jobs
from service.features.reconcile.reconcile import reconciliation_of
from service.features.reconcile.slurm import (
    AS_PRINTED,
    COMMAND,
    SlurmRecord,
    SlurmRecords,
    read_document,
    read_parsable,
)
from service.validation.json_text import STANDARD_INPUT

A_WEEK_AGO = "now-7days"
"""Default start; sacct's own is today, when few training runs end."""

LONGEST_SECONDS = 600.0
"""Timeout of sacct. Source: a choice; a slurmdbd of millions of jobs takes minutes."""


class NoAccounting(TraincostError):
    """The accounting cannot be read: no such file, no sacct, or one that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SacctQuery:
    """Selection of jobs."""

    since: str | None = None
    """Those since then."""
    until: str | None = None
    """Those until then."""
    cluster: str | None = None
    """Those of these clusters."""


def sacct_output(file: str | None, query: SacctQuery) -> str:
    """Output of sacct from a file or from a call."""
    if file is None:
        return _run_sacct(query)
    options = [f"--{field.name}" for field in fields(query) if getattr(query, field.name) is not None]
    if options:
        raise NoAccounting(f"{' and '.join(options)} choose what sacct is asked for, and a file holds what it answered")
    try:
        content = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or "its name is none of a file"
        raise NoAccounting(f"the file cannot be read: {cause}") from None
    return _decoded(content)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NoAccounting("the file is no text in UTF-8; save what sacct prints as it is") from None


def _run_sacct(query: SacctQuery) -> str:
    command = [*COMMAND.split(), f"--starttime={query.since or A_WEEK_AGO}"]
    command += [] if query.until is None else [f"--endtime={query.until}"]
    command += [] if query.cluster is None else [f"--clusters={query.cluster}"]
    environment = {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(  # noqa: S603 - a list of words, none of which a shell reads
            command, env=environment, capture_output=True, check=False, timeout=LONGEST_SECONDS
        )
    except OSError:
        message = "sacct is not found; run this where Slurm's commands are, or give what it printed as a file"
        raise NoAccounting(message) from None
    except subprocess.TimeoutExpired:
        raise NoAccounting(
            f"sacct did not answer in {LONGEST_SECONDS:.0f} s; ask for a shorter time: --since"
        ) from None
    if done.returncode:
        error_text = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise NoAccounting(f"sacct fails: {error_text}")
    return _decoded(done.stdout)


SENT_COLUMNS = ("JobID", "Cluster", "State", "ElapsedRaw", "AllocTRES", "Start", "Restarts", "Comment")
"""Columns sent to the service: no names of people, no paths, no commands."""

SLICE = "1g.1gb"
"""Placeholder for the size of a slice."""


def read_sacct(text: str) -> SlurmRecords:
    """Parse an output."""
    if not text.lstrip("\ufeff \r\n\t").startswith("{"):
        return read_parsable(text)
    try:
        document = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        message = "it begins as JSON and is none, so it was cut off or mixed with other output"
        fix = f"{AS_PRINTED}, without what it says on standard error"
        raise Refused(Problem(field="", code="not_json", message=message, fix=fix)) from None
    return read_document(document)


def sent_table(jobs: Sequence[FinishedJob]) -> str:
    """Jobs as a table for `read_sacct`, without fields that reconciliation does not need."""
    rows = [_row(job.estimate_id, record) for job in jobs for record in job.records]
    return "".join(f"{'|'.join(row)}\n" for row in (SENT_COLUMNS, *rows))


def _row(estimate_id: str, record: SlurmRecord) -> tuple[str, ...]:
    model = f":{SLICE}" if record.is_partition else ""
    gpus = "" if record.gpus is None else f"gres/gpu{model}={record.gpus}"
    seconds = str(ceil(record.elapsed_seconds))
    cluster = "".join(letter for letter in record.cluster if letter.isalnum() or letter in "-_.")
    return (
        record.job_id, cluster, record.state, seconds, gpus, record.started, str(record.restarts), estimate_id,
    )  # fmt: skip


JOBS_AT_ONCE = 500
"""Most jobs of a request, except those of one estimate. Source: a choice; some 60 kB."""


def reconcile_output(ask: Callable[[str], Reconciliation], text: str) -> Reconciliation:
    """Reconcile an output of sacct with the service."""
    found = read_sacct(text)
    jobs, left_out = finished_jobs(found.records)
    answers = [ask(sent_table(part)) for part in _parts(jobs)]
    return reconciliation_of(
        [job for answer in answers for job in answer.jobs],
        [*left_out, *(one for answer in answers for one in answer.left_out)],
        [*found.faults, *(fault for answer in answers for fault in answer.faults)],
        found.steps,
    )


def _parts(jobs: Sequence[FinishedJob]) -> Iterator[list[FinishedJob]]:
    """Split jobs into parts, keeping those of one estimate together: one may continue from another."""
    by_estimate: dict[str, list[FinishedJob]] = {}
    for job in jobs:
        by_estimate.setdefault(job.estimate_id, []).append(job)
    part: list[FinishedJob] = []
    for of_it in by_estimate.values():
        if part and len(part) + len(of_it) > JOBS_AT_ONCE:
            yield part
            part = []
        part = [*part, *of_it]
    if part:
        yield part
