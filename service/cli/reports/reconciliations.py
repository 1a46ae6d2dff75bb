"""Reconciled jobs as JSON, CSV or terminal lines."""

import csv
import io
from dataclasses import fields
from typing import Literal

from service.answers.reconciliations import ReconciledJob, Reconciliation
from service.cli.console import table
from service.tabular.lists import cell_text
from service.units import readable
from service.validation.serialization import to_bytes

INTERVAL = "predicted_gpu_hours"

COLUMNS = tuple(
    name
    for field in fields(ReconciledJob)
    for name in ((f"{INTERVAL}.low", INTERVAL, f"{INTERVAL}.high") if field.name == INTERVAL else (field.name,))
)
"""Columns of the CSV; an interval has three."""


def format_reconciliation(found: Reconciliation, form: Literal["json", "csv", "report"]) -> str | bytes:
    """Format reconciled jobs for a terminal."""
    if form == "json":
        return to_bytes(found)
    return _csv(found) if form == "csv" else _report(found)


def _csv(found: Reconciliation) -> str:
    """CSV of RFC 4180 with a header, no cell of which a spreadsheet runs as a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for job in found.jobs:
        hours = job.predicted_gpu_hours
        ends = (
            {}
            if hours is None
            else {f"{INTERVAL}.low": hours.low, INTERVAL: hours.value, f"{INTERVAL}.high": hours.high}
        )
        plain = {field.name: getattr(job, field.name) for field in fields(job) if field.name != INTERVAL}
        writer.writerow([cell_text((plain | ends).get(name)) for name in COLUMNS])
    return text.getvalue()


def _report(found: Reconciliation) -> str:
    """A table, totals, and left out jobs with reasons."""
    blocks = [_table(found.jobs)] if found.jobs else []
    blocks.append(_summary(found))
    notes = dict.fromkeys(job.note for job in found.jobs if job.note)
    lists = {
        "Not compared, or to be known": [f"{_jobs_of(found, note)}: {note}" for note in notes],
        "Left out": [f"{one.jobs} jobs: {one.message}; {one.fix}" for one in found.left_out],
        "Not read": [f"{one.place}, {one.field or 'the record'}: {one.message}; {one.fix}" for one in found.faults],
    }
    if found.faults_left_off:
        lists["Not read"].append(f"and {found.faults_left_off} more")
    blocks += ["\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in lists.items() if lines]
    return "\n\n".join(blocks)


def _summary(found: Reconciliation) -> str:
    ratio = found.median_used_over_predicted_fraction
    if ratio is None:
        return "no job's hours can be compared with a prediction"
    verdicts = f"; {found.verdicts_wrong} completed that were to run out of memory" if found.verdicts_wrong else ""
    return (
        f"{found.compared} compared: {found.inside} inside the predicted interval, used over predicted "
        f"{ratio:.3g} in the median{verdicts}"
    )


def _jobs_of(found: Reconciliation, note: str) -> str:
    ids = [job.job_id for job in found.jobs if job.note == note]
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def _table(jobs: tuple[ReconciledJob, ...]) -> str:
    rows = [("job", "state", "GPUs", "used GPU-h", "predicted GPU-h", "used/predicted", "inside"), *map(_row, jobs)]
    return "\n".join(table(rows))


def _row(job: ReconciledJob) -> tuple[str, ...]:
    hours, ratio = job.predicted_gpu_hours, job.used_over_predicted_fraction
    name = f"{job.cluster}:{job.job_id}" if job.cluster else job.job_id
    return (
        name,
        job.state,
        str(job.gpus),
        readable(job.used_gpu_hours),
        "-" if hours is None else f"{readable(hours.value)} ({readable(hours.low)} to {readable(hours.high)})",
        "-" if ratio is None else f"{ratio:.3g}",
        {True: "yes", False: "no", None: "-"}[job.is_inside],
    )
