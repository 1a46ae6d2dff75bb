"""Dry run of checks: recorded jobs of Slurm and Kubernetes, each with the verdict that it would have had.

Source: Slurm 22.05, sacct(1); Kubernetes 1.37, v1 List and audit.k8s.io/v1 Event.
"""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.answers.checks import CheckVerdict, JobCheck
from service.catalogue import Catalogue
from service.errors import Problem, Refused, TraincostError
from service.estimator.question import Documented
from service.features.checks.scheduled import SILENT, check_manifest, check_slurm_job
from service.formats.launchers.manifests import scheduled_by_kubernetes
from service.formats.text import LONGEST_FILE_BYTES
from service.validation.json_text import parse_object, single_line

LONGEST_AUDIT_BYTES = 256 << 20
"""Longest file that is read. Source: a choice; a week of 50,000 objects has some 200 MB."""

MOST_JOBS = 100_000
"""Most jobs of one audit. Source: a choice; each takes some milliseconds."""

SACCT_SECONDS = 600.0
"""Longest wait for one answer of sacct. Source: a choice."""

JOBS_AT_ONCE = 100
"""Jobs whose scripts one call of sacct prints. Source: a choice."""

COLUMNS = ("JobID", "Cluster", "State", "NNodes", "ReqTRES", "TimelimitRaw")
JOBS = f"sacct --parsable2 --allusers --allocations --format={','.join(COLUMNS)}"
SCRIPTS = "sacct --allusers --batch-script"

STORE_SCRIPTS = "have Slurm keep scripts: AccountingStoreFlags=job_script in slurm.conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedJob(Documented):
    """A recorded job, and the verdict that it would have had."""

    job: str
    """Its id in Slurm, or kind, namespace and name in Kubernetes."""
    state: str
    """How it ended, as the scheduler says; empty where that is not recorded."""
    gpus: int | None
    """GPUs that it asked for; null where they are not counted."""
    verdict: CheckVerdict
    """What a hook would have answered."""
    reason: str
    """Why, in one line of at most 255 characters."""
    not_judged: str | None
    """Code of the reason for which it is not judged; null where it is."""
    warnings: tuple[str, ...]
    """Warnings that its user would have read."""
    estimate: str | None
    """Id of the estimate; null where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAudit(Documented):
    """Recorded jobs with the verdicts that they would have had."""

    jobs: tuple[AuditedJob, ...]
    """Jobs that ask for GPUs."""
    verdicts: Mapping[str, int]
    """Jobs by verdict."""
    not_judged: Mapping[str, int]
    """Jobs by the code of the reason for which they are not judged."""
    denied_but_completed: int
    """Jobs that would have been denied and completed: read their reasons before a hook denies."""
    passed_over: int
    """Records without GPUs, parts of other objects, and objects of kinds that are not read."""
    unreadable: int
    """Records that cannot be read."""


COMPLETED = frozenset({"COMPLETED", "Complete", "Completed", "Succeeded", "SUCCEEDED"})


@dataclass(frozen=True, slots=True)
class _Record:
    job: str
    state: str
    gpus: int | None
    check: Callable[[Catalogue], JobCheck]


def audit(records: Iterable[_Record | None], catalogue: Catalogue, report: Callable[[str], None]) -> JobAudit:
    """Check recorded jobs; None is a record that cannot be read."""
    jobs: list[AuditedJob] = []
    passed_over = unreadable = 0
    for number, record in enumerate(records, start=1):
        if number > MOST_JOBS:
            raise _refusal("too_many_jobs", f"there are more than {MOST_JOBS:,} jobs", "choose a shorter time")
        report(f"{number} jobs")
        try:
            found = None if record is None else record.check(catalogue)
        except TraincostError:
            found = None
        if record is None or found is None:
            unreadable += 1
        elif found.not_judged in SILENT:
            passed_over += 1
        else:
            jobs.append(_audited(record, found))
    return JobAudit(
        jobs=tuple(jobs),
        verdicts=dict(Counter(one.verdict for one in jobs)),
        not_judged=dict(Counter(one.not_judged for one in jobs if one.not_judged is not None)),
        denied_but_completed=sum(one.verdict == "deny" and one.state in COMPLETED for one in jobs),
        passed_over=passed_over,
        unreadable=unreadable,
    )


def _audited(record: _Record, found: JobCheck) -> AuditedJob:
    return AuditedJob(
        job=single_line(record.job),
        state=single_line(record.state),
        gpus=record.gpus,
        verdict=found.verdict,
        reason=found.reason,
        not_judged=found.not_judged,
        warnings=found.warnings,
        estimate=None if found.check is None else found.check.id,
    )


def records_of_file(file: str, scripts: str | None, site: Mapping[str, Any]) -> Iterator[_Record | None]:
    """Jobs of a file: objects of Kubernetes in JSON, or a table of sacct with the scripts of another file."""
    text = _read(file)
    if text.lstrip()[:1] in {"{", "["}:
        return (_kubernetes_record(one, site) for one in objects_in(text))
    found = {} if scripts is None else scripts_in(_read(scripts))
    return records_of_table(text, found.get, site)


def records_of_sacct(since: str | None, until: str | None, site: Mapping[str, Any]) -> Iterator[_Record | None]:
    """Jobs of Slurm's accounting on this machine."""
    end = [] if until is None else [f"--endtime={until}"]
    table = _run([*JOBS.split(), f"--starttime={since or 'now-7days'}", *end])
    ids = list(dict.fromkeys(_base(row["JobID"]) for row in _rows(table) if row is not None and _gpus_of(row)[1]))
    scripts: dict[str, str] = {}
    for start in range(0, len(ids), JOBS_AT_ONCE):
        scripts |= scripts_in(_run([*SCRIPTS.split(), f"--jobs={','.join(ids[start : start + JOBS_AT_ONCE])}"]))
    return records_of_table(table, scripts.get, site)


def _run(command: Sequence[str]) -> str:
    environment = {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(  # noqa: S603 - a list of words, none of which a shell reads
            command, env=environment, capture_output=True, check=False, timeout=SACCT_SECONDS
        )
    except OSError:
        fix = "run this where Slurm's commands are, or give a file"
        raise _refusal("no_accounting", "sacct is not found", fix) from None
    except subprocess.TimeoutExpired:
        raise _refusal("no_accounting", "sacct did not answer", "ask for a shorter time: --since") from None
    if done.returncode:
        message = single_line(f"sacct fails: {done.stderr.decode('utf-8', 'replace')}")
        raise _refusal("no_accounting", message, "call sacct by hand")
    return done.stdout.decode("utf-8", "replace")


def _read(file: str) -> str:
    try:
        with open(0 if file == "-" else file, "rb", closefd=file != "-") as stream:
            content = stream.read(LONGEST_AUDIT_BYTES + 1)
    except (OSError, ValueError):
        raise _refusal("no_file", "the file cannot be read", "give its path, or - for standard input") from None
    if len(content) > LONGEST_AUDIT_BYTES:
        raise _refusal("too_long", f"the file has more than {LONGEST_AUDIT_BYTES >> 20} MiB", "choose a shorter time")
    return content.decode("utf-8-sig", "replace")


def _refusal(code: str, message: str, fix: str) -> Refused:
    return Refused(Problem(field="file", code=code, message=message, fix=fix))


def _rows(table: str) -> Iterator[dict[str, str] | None]:
    """Rows of sacct's table by column; None for one that cannot be read."""
    lines = (line for line in table.splitlines() if line.strip())
    names = next(lines, "").removesuffix("|").split("|")
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise _refusal("missing_column", f"the table has no column {missing[0]}", f"give what this prints: {JOBS}")
    for line in lines:
        cells = line.split("|")[: len(names)]
        row = dict(zip(names, cells, strict=False))
        yield row if len(cells) == len(names) and _JOB.fullmatch(row["JobID"]) else None


_JOB = re.compile(r"(\d{1,12})(?:_(?:\d{1,12}|\[[^\]|]{1,200}\]))?(?:\+(\d{1,6}))?")
"""A job, a task of an array, tasks of an array that wait, or a component of a heterogeneous job."""

_GPU = re.compile(r"gres/gpu(?::([A-Za-z][\w.-]{0,79}))?=(\d{1,7})(?=,|$)")


def _base(job_id: str) -> str:
    """Id of the submission of a job: of the array of a task."""
    found = _JOB.fullmatch(job_id)
    return job_id if found is None else found[1]


def _gpus_of(row: Mapping[str, str]) -> tuple[str | None, int]:
    """Name and number of GPUs of a row; models may be counted apart, beside the sum."""
    counts = {name or None: int(count) for name, count in _GPU.findall(row["ReqTRES"])}
    name = next((name for name in counts if name is not None), None)
    return name, counts[None] if None in counts else sum(counts.values())


def records_of_table(
    table: str, script_of: Callable[[str], str | None], site: Mapping[str, Any]
) -> Iterator[_Record | None]:
    """Jobs of sacct's table, an array once; those without GPUs are passed over."""
    seen = set()
    for row in _rows(table):
        if row is None:
            yield None
            continue
        found = _JOB.fullmatch(row["JobID"])
        submission = (row["Cluster"], found and found[1], found and found[2])
        if submission in seen:
            continue
        seen.add(submission)
        yield _slurm_record(row, script_of(_base(row["JobID"])), None if found is None else found[2], site)


def _slurm_record(
    row: Mapping[str, str], script: str | None, component: str | None, site: Mapping[str, Any]
) -> _Record:
    name, gpus = _gpus_of(row)
    nodes, minutes = _number(row["NNodes"]), _number(row["TimelimitRaw"])
    job: dict[str, Any] = {
        "script": script or "",
        "nodes": nodes or 1,
        "tres_per_job": f"gpu:{name}:{gpus}" if name else f"gpu:{gpus}" if gpus else "",
        "time_limit_minutes": minutes or None,
        "component": None if component is None else int(component),
        "question": dict(site),
    }

    def check(catalogue: Catalogue) -> JobCheck:
        if gpus and script is None:
            reason = f"not checked: the accounting holds no script of it; {STORE_SCRIPTS}"
            return JobCheck(verdict="unknown", reason=reason, not_judged="no_script", warnings=(), check=None)
        return check_slurm_job(job, catalogue, lambda _: None)

    return _Record(row["JobID"], row["State"].partition(" ")[0], gpus or None, check)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0


_SCRIPT = re.compile(r"^Batch Script for (\d{1,12})[^\n]{0,80}\n-{3,200}\n", re.MULTILINE)


def scripts_in(output: str) -> dict[str, str]:
    r"""Scripts that sacct --batch-script prints, by the id of their job.

    >>> scripts_in("Batch Script for 12\n-----\n#!/bin/bash\nhostname\n")
    {'12': '#!/bin/bash\nhostname\n'}
    """
    places = list(_SCRIPT.finditer(output))
    ends = [*(one.start() for one in places[1:]), len(output)]
    return {one[1]: output[one.end() : end][: LONGEST_FILE_BYTES + 1] for one, end in zip(places, ends, strict=True)}


def objects_in(text: str) -> Iterator[Any]:
    """Objects of a JSON list, of a List of Kubernetes, or of its audit log, which has an event a line."""
    try:
        yield from _created(json.loads(text))
    except (ValueError, RecursionError):
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            fix = "give what this prints: kubectl get jobs,jobsets,pytorchjobs --all-namespaces -o json"
            raise _refusal("not_json", "the file is no JSON", fix) from None
        for line in lines:
            try:
                yield from _created(json.loads(line))
            except (ValueError, RecursionError):
                yield None


def _created(value: Any) -> Iterator[Any]:
    """Objects of a list and of events of the audit log that record one which was created."""
    if isinstance(value, Mapping) and isinstance(value.get("items"), list):
        value = value["items"]
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, Mapping) or one.get("apiVersion") != "audit.k8s.io/v1":
            yield one
        elif one.get("verb") == "create" and isinstance(one.get("requestObject"), Mapping):
            yield one["requestObject"]


def _kubernetes_record(value: Any, site: Mapping[str, Any]) -> _Record | None:
    try:
        manifest = parse_object(json.dumps(value).encode())
    except (TraincostError, ValueError, RecursionError):
        return None
    metadata, status = (manifest.get(name) for name in ("metadata", "status"))
    names = metadata if isinstance(metadata, Mapping) else {}
    name = "/".join(str(names[part]) for part in ("namespace", "name", "generateName") if part in names)
    return _Record(
        f"{manifest.get('kind')} {name}",
        _state(status if isinstance(status, Mapping) else {}),
        _gpus_of_object(manifest),
        lambda catalogue: check_manifest(manifest, catalogue, lambda _: None, site),
    )


def _gpus_of_object(manifest: Mapping[str, Any]) -> int | None:
    try:
        return scheduled_by_kubernetes(manifest).gpus
    except Refused:
        return None


def _state(status: Mapping[str, Any]) -> str:
    """The last condition that holds, or the phase."""
    conditions = status.get("conditions")
    holding = [
        str(one.get("type"))
        for one in (conditions if isinstance(conditions, list) else [])
        if isinstance(one, Mapping) and one.get("status") == "True"
    ]
    phase = status.get("jobStatus", status.get("phase", ""))
    return holding[-1] if holding else phase if isinstance(phase, str) else ""
