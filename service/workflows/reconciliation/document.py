"""Which jobs does the document of `sacct --json` tell of, in each version of its schema?"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from service.answers.reconciliations import Fault
from service.errors import Problem, Refused
from service.workflows.reconciliation.parsable import refused
from service.workflows.reconciliation.records import FaultFound, SlurmRecord, SlurmRecords, known_state
from service.workflows.reconciliation.written import counted

OLDEST, NEWEST = 38, 44
"""Versions 0.0.38 to 0.0.44 of the schema. Source: Slurm 22.05 to 25.11, read of their own output."""

VERSION = re.compile(r"(?:data_parser/|openapi/db)?v0\.0\.(\d{1,4})")

OTHER_VERSION = "ask sacct for one that is read, as by --json=v0.0.41, or give the output of sacct --parsable2"

AS_PRINTED = "give the document of sacct --json as it is"


def read_document(document: Mapping[str, Any]) -> SlurmRecords:
    """The records of a document.

    Args:
        document: what `sacct --json` printed

    Returns:
        the records, and those that cannot be read

    Raises:
        Refused: it is no such document, of another version, or none of its records can be read
    """
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise Refused(_problem("jobs", "no_jobs", "there is no list of jobs", AS_PRINTED))
    _refuse_version(document)
    records: list[SlurmRecord] = []
    faults: list[Fault] = []
    steps = 0
    for number, job in enumerate(jobs, start=1):
        try:
            record = _record(job, f"job {number} of the list")
        except FaultFound as fault:
            faults.append(fault.at(f"job {number} of the list"))
        else:
            records.append(record)
            steps += len(job["steps"]) if isinstance(job.get("steps"), list) else 0
    if faults and not records:
        raise Refused(refused(faults[0]))
    return SlurmRecords(records=tuple(records), steps=steps, faults=tuple(faults))


def _refuse_version(document: Mapping[str, Any]) -> None:
    """Refuse a document of a version that nobody here has seen: its fields may mean something else."""
    said = list(_said(document))
    versions = [int(found[1]) for found in map(VERSION.fullmatch, said) if found is not None]
    if not versions:
        message = "it does not say its version (meta.plugin.data_parser)"
        raise Refused(_problem("meta", "no_version", message, AS_PRINTED))
    if not OLDEST <= versions[0] <= NEWEST:
        message = f"its schema is v0.0.{versions[0]}; v0.0.{OLDEST} to v0.0.{NEWEST} are read"
        raise Refused(_problem("meta", "unknown_version", message, OTHER_VERSION))


def _said(document: Mapping[str, Any]) -> Iterator[str]:
    """Where versions of the schema say themselves: data_parser since 0.0.39, type before."""
    plugin = _inside(document, "meta", "plugin")
    for name in ("data_parser", "type"):
        if isinstance(plugin, Mapping) and isinstance(plugin.get(name), str):
            yield plugin[name]


def _record(job: object, place: str) -> SlurmRecord:
    if not isinstance(job, Mapping):
        raise FaultFound("jobs", "this is no object", AS_PRINTED)
    gpus, is_partition = _gpus(job)
    started = _number(job, "time", "start") or 0
    return SlurmRecord(
        place=place,
        cluster=_text(job, "cluster"),
        job_id=_job_id(job),
        state=known_state(_state(job), "state.current"),
        elapsed_seconds=float(_needed(job, "time", "elapsed")),
        gpus=gpus,
        is_partition=is_partition,
        started=str(started) if started else "",
        comment=" ".join(_text(job, "comment", name) for name in ("administrator", "job")),
        restarts=_number(job, "restart_cnt") or 0,
    )


def _job_id(job: Mapping[str, Any]) -> str:
    """As sacct prints it: a task of an array by the array, a component by its heterogeneous job."""
    array, task = _number(job, "array", "job_id"), _number(job, "array", "task_id")
    whole, component = _number(job, "het", "job_id"), _number(job, "het", "job_offset")
    if array:
        return f"{array}_{'[]' if task is None else task}"
    return f"{whole}+{component or 0}" if whole else str(_needed(job, "job_id"))


def _state(job: Mapping[str, Any]) -> str:
    """A text, or since 0.0.40 a list: a state, then flags of it."""
    found = _inside(job, "state", "current")
    first = found[0] if isinstance(found, list) and found else found
    if not isinstance(first, str):
        raise FaultFound("state.current", "the state of the job is missing", AS_PRINTED)
    return first


def _gpus(job: Mapping[str, Any]) -> tuple[int | None, bool]:
    for kind in ("allocated", "requested"):
        rows = _inside(job, "tres", kind)
        if isinstance(rows, list) and rows:
            return counted(dict(_named(rows, f"tres.{kind}")))
    return None, False


def _named(rows: list[Any], field: str) -> Iterator[tuple[str | None, int]]:
    for row in rows:
        if not isinstance(row, Mapping) or row.get("type") != "gres":
            continue
        name, _, model = str(row.get("name")).partition(":")
        if name != "gpu":
            continue
        count = row.get("count")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise FaultFound(field, "the number of GPUs is none", AS_PRINTED)
        yield model or None, count


def _needed(job: Mapping[str, Any], *path: str) -> int:
    found = _number(job, *path)
    if found is None or found < 0:
        raise FaultFound(".".join(path), "the number is missing", AS_PRINTED)
    return found


def _number(job: Mapping[str, Any], *path: str) -> int | None:
    """A whole number, plain or, since 0.0.39, as an object that says whether it is set."""
    found = _inside(job, *path)
    if isinstance(found, Mapping):
        found = found.get("number") if found.get("set") is True else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _text(job: Mapping[str, Any], *path: str) -> str:
    found = _inside(job, *path)
    return found if isinstance(found, str) else ""


def _inside(value: object, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _problem(field: str, code: str, message: str, fix: str) -> Problem:
    return Problem(field=field, code=code, message=message, fix=fix)
