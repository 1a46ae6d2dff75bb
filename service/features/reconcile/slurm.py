"""Accounting records of Slurm, from `sacct --json` or `--parsable2`, and the finished jobs that they add up to."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, get_args

from service.answers.diagnoses import EndState, Fault, LeftOut, Reason
from service.errors import Problem, Refused, did_you_mean, misspelt, refuse
from service.text_bounds import MOST_COLUMNS
from service.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

ENDED = frozenset({*get_args(EndState), "REQUEUED", "RESIZING"})
"""End states of records. Source: Slurm's manual, JOB STATE CODES of sacct."""

UNFINISHED = frozenset({
    "COMPLETING", "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "PENDING", "POWER_UP_NODE", "RECONFIG_FAIL",
    "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
    "SUSPENDED", "UPDATE_DB",
})  # fmt: skip
"""States of jobs that have not ended. Source: as ENDED."""

ESTIMATE_ID = re.compile(r"est_[0-9a-f]{32}(?![0-9a-f])")
"""Id that a hook writes into the comment of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRecord:
    """One record of the accounting: a job, or one attempt at it, or one component of it."""

    cluster: str
    """Name of its cluster; empty if missing."""
    job_id: str
    """As sacct prints it: 12, 12_3 of an array, 12+1 of a heterogeneous job."""
    state: str
    elapsed_seconds: float
    gpus: int | None
    """Allocated GPUs; None if not accounted."""
    is_partition: bool
    started: str
    """Start as written; empty if it never started."""
    comment: str
    restarts: int
    """Number of earlier starts, if stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRecords:
    """Parsed output of sacct."""

    records: tuple[SlurmRecord, ...]
    steps: int
    """Records of steps (.batch, .extern, .0), which are parts of their jobs' time and are not counted again."""
    faults: tuple[Fault, ...]


class FaultFound(Exception):
    """A record cannot be read."""

    def __init__(self, field: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.field, self.message, self.fix = field, message, fix


def known_state(written: str, field: str) -> str:
    """How a record ended, of what its state says.

    >>> known_state("CANCELLED by 1000", "State")
    'CANCELLED'
    """
    state = written.partition(" ")[0]
    if state in UNFINISHED | ENDED:
        return state
    if state.endswith("+"):
        raise FaultFound(field, "the state is cut off", "print whole fields: sacct --parsable2")
    raise FaultFound(field, "this is no state of a job that is known here", "give sacct's output as it is printed")


DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2})(?:\.(\d{1,6}))?")
"""Source: Slurm's manual of sacct: [days-]hours:minutes:seconds[.microseconds]; hours may be left out."""

GPU = re.compile(r"gres/gpu(?::([\w.-]{1,80}))?")
"""Name of GPUs among resources, with their model where it is counted apart."""

PARTITION = re.compile(r"\d+g\.\d+gb")
"""Slices of a GPU in NVIDIA's names, e.g. a100_3g.20gb."""

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?|\d{9,12}")
"""ISO 8601, or seconds since 1970."""

NEVER = frozenset({"", "Unknown", "None", "N/A", "0"})

NO_TIME_FORMAT = "unset SLURM_TIME_FORMAT, or set it to standard, and call sacct again"
LOCALE = "call sacct with LC_ALL=C, and do not let a spreadsheet save its output"


def duration_seconds(written: str, field: str) -> float:
    """Seconds of a length of time.

    >>> duration_seconds("1-02:03:04", "Elapsed"), duration_seconds("02:03.456", "Elapsed")
    (93784.0, 123.456)
    """
    found = DURATION.fullmatch(written)
    if found is None:
        comma = "," in written
        raise FaultFound(
            field,
            "a comma stands in a length of time" if comma else "this is no length of time like 1-02:03:04 or 02:03.456",
            LOCALE if comma else "give sacct's own Elapsed, or ElapsedRaw in whole seconds",
        )
    days, hours, minutes, seconds, part = found.groups(default="0")
    whole = int(days) * SECONDS_PER_DAY + int(hours) * SECONDS_PER_HOUR + int(minutes) * 60 + int(seconds)
    return whole + float(f"0.{part}")


def is_count(written: str, most_digits: int) -> bool:
    """Whether a text is a whole number of at most some digits."""
    return written.isascii() and written.isdigit() and len(written) <= most_digits


def gpus_of(written: str, field: str) -> tuple[int | None, bool]:
    """GPUs among resources.

    >>> gpus_of("cpu=16,gres/gpu:h100=8,gres/gpu=8,mem=180G,node=1", "AllocTRES")
    (8, False)
    >>> gpus_of("cpu=9,gres/gpu:a100_3g.20gb=1,gres/gpu=1", "AllocTRES"), gpus_of("cpu=1,mem=1000M", "AllocTRES")
    ((1, True), (None, False))
    """
    counts: dict[str | None, int] = {}
    for resource in written.split(","):
        name, _, amount = resource.partition("=")
        if (found := GPU.fullmatch(name.strip())) is not None:
            if not is_count(amount, 9):
                fix = "count GPUs without a unit, as sacct does: gres/gpu=8, or gres/gpu:h100=8"
                raise FaultFound(field, "the number of GPUs is none", fix)
            counts[found[1]] = int(amount)
    return total_gpus(counts)


def total_gpus(counts: dict[str | None, int]) -> tuple[int | None, bool]:
    """GPUs of which the models may be counted apart, beside the sum of all or without it."""
    models = [name for name in counts if name is not None]
    is_partition = any(PARTITION.search(name) for name in models)
    if not counts:
        return None, False
    return counts.get(None, sum(counts[name] for name in models)), is_partition


COLUMNS = ("JobID", "Cluster", "State", "ElapsedRaw", "AllocTRES", "ReqTRES", "Start", "AdminComment", "Comment")

COMMAND = f"sacct --parsable2 --duplicates --allusers --format={','.join(COLUMNS)}"
"""Command whose output is read here."""

REQUIRED_COLUMNS = (
    ("JobID",),
    ("State",),
    ("ElapsedRaw", "Elapsed"),
    ("AllocTRES", "ReqTRES"),
    ("Start",),
    ("Comment", "AdminComment"),
)

FREE_TEXT = frozenset({"AdminComment", "Comment", "Extra", "JobName", "SubmitLine", "SystemComment", "WorkDir"})
"""Columns of free text, which may contain the delimiter."""

NAMES = frozenset(
    {*COLUMNS, *FREE_TEXT, *(name for names in REQUIRED_COLUMNS for name in names), "JobIDRaw", "Restarts", "End"}
)

KNOWN = {name.lower(): name for name in NAMES}

DELIMITERS = ("|", "\x1f", ";", "\t")

MOST_ROWS = 100_000
"""Rows of one table. Source: a choice; the longest body has some 30,000 rows of real jobs."""

JOB_ID = re.compile(r"(\d{1,12}(?:[_+](?:\d{1,12}|\[[^\]|]{1,200}\]))?)(\.[\w+.-]{1,64})?")
"""A job, a task of an array, a component of a heterogeneous job, or a step of one of them."""


@dataclass(frozen=True, slots=True)
class Header:
    names: tuple[str, ...]
    delimiter: str
    is_closed: bool
    """Whether rows end in the delimiter, as those of --parsable do."""

    @property
    def free(self) -> tuple[int, int]:
        """Columns before the first one of free text, and those after the last."""
        places = [place for place, name in enumerate(self.names) if name in FREE_TEXT]
        return places[0], len(self.names) - 1 - places[-1]

    def cells(self, line: str) -> dict[str, str]:
        """The cells of a row by column; where a comment holds the delimiter, comments are one text."""
        cells = line.split(self.delimiter)
        if self.is_closed and not cells[-1]:
            cells.pop()
        if len(cells) < len(self.names):
            fix = "leave out the comments of other jobs, or give the output of sacct --json"
            raise FaultFound("", "the row is cut off, as by a line break within a comment", fix)
        before, after = self.free
        end = len(cells) - after
        found = dict(zip(self.names[:before], cells[:before], strict=True))
        found |= dict(zip(self.names[len(self.names) - after :], cells[end:], strict=True))
        if len(cells) == len(self.names):
            found |= dict(zip(self.names[before : len(self.names) - after], cells[before:end], strict=True))
        return {**found, "": self.delimiter.join(cells[before:end])}


def read_parsable(text: str) -> SlurmRecords:
    """Parse the output of sacct --parsable2."""
    lines = text.removeprefix("\ufeff").split("\n", MOST_ROWS + 1)
    if len(lines) > MOST_ROWS + 1 and lines[-1].strip():
        message = f"the table has more than {MOST_ROWS} rows, the most that one request takes"
        raise Refused(Problem("", "too_many_rows", message, "send it in parts, each with the header"))
    header = _header(lines)
    rows = ((f"row {number}", line) for number, line in enumerate(lines[1:], start=2) if line.strip())
    found, faults = _read_each(rows, partial(_record, header))
    records = tuple(record for record in found if record is not None)
    return SlurmRecords(records=records, steps=len(found) - len(records), faults=faults)


Found = TypeVar("Found")


def _read_each(rows: Iterable[tuple[str, Any]], read: Callable[[Any], Found]) -> tuple[list[Found], tuple[Fault, ...]]:
    """Read rows, each with its place; and the faults of those that cannot be read, unless there are no others."""
    found: list[Found] = []
    faults: list[Fault] = []
    for place, row in rows:
        try:
            found.append(read(row))
        except FaultFound as fault:
            faults.append(Fault(place=place, field=fault.field, message=fault.message, fix=fault.fix))
    if faults and not found:
        first = faults[0]
        message = f"no record can be read; of {first.place}: {first.message}"
        raise Refused(Problem(field=first.field, code="unreadable", message=message, fix=first.fix))
    return found, tuple(faults)


def _header(lines: Sequence[str]) -> Header:
    first = lines[0].removesuffix("\r")
    if not first.strip():
        raise Refused(Problem("", "empty", "there is nothing in it", f"give what this prints: {COMMAND}"))
    if any(first.count(mark) > MOST_COLUMNS for mark in DELIMITERS):
        message = f"the first row has more than {MOST_COLUMNS} columns, and sacct knows fewer"
        raise Refused(Problem("", "too_many_columns", message, f"print those that are needed: {COMMAND}"))
    header = max(
        (_columns(first, mark) for mark in DELIMITERS), key=lambda one: sum(name in NAMES for name in one.names)
    )
    if not any(name in NAMES for name in header.names) or len(header.names) == 1:
        raise Refused(_no_header(first))
    missing = [names for names in REQUIRED_COLUMNS if not set(names) & set(header.names)]
    problems = []
    for names in missing:
        near = did_you_mean(misspelt(names[0], [name[:64] for name in header.names], likeness=0.8))
        typed = " (a column is spelled almost so)" if near else ""
        message = f"there is no column {' or '.join(names)}{typed}"
        problems.append(Problem(names[0], "missing_column", message, f"call it so: {COMMAND}"))
    refuse(problems)
    return header


def _columns(first: str, mark: str) -> Header:
    names = [KNOWN.get(name.strip().lower(), name.strip()) for name in first.split(mark)]
    is_closed = len(names) > 1 and not names[-1]
    return Header(tuple(names[:-1] if is_closed else names), mark, is_closed)


def _no_header(first: str) -> Problem:
    if len([word for word in first.split() if word.lower() in KNOWN]) > 1:
        message = "its columns are set in spaces, which cut what is longer"
        return Problem("", "not_parsable", message, f"print whole fields: {COMMAND}")
    if len([word for word in first.split(",") if word.strip().lower() in KNOWN]) > 1:
        message = "its delimiter is a comma, which resources hold too"
        return Problem("", "comma", message, f"print it with | between the columns: {COMMAND}")
    fix = f"leave out --noheader; this prints what is needed: {COMMAND}"
    return Problem("", "no_header", "the first row names no columns of sacct", fix)


def _record(header: Header, line: str) -> SlurmRecord | None:
    """The record of a row; None where it is a step."""
    cells = {name: cell.strip() for name, cell in header.cells(line.removesuffix("\r")).items()}
    lost = [name for names in REQUIRED_COLUMNS[:-1] for name in names if name in header.names and name not in cells]
    if lost:
        fix = f"print free text last: {COMMAND}"
        raise FaultFound(lost[0], "a comment holds the delimiter, so this column cannot be found", fix)
    job = JOB_ID.fullmatch(cells["JobID"])
    if job is None:
        raise FaultFound("JobID", "this is no job like 12, 12_3, 12+1 or 12.batch", "print it by sacct itself")
    if job[2] is not None:
        return None
    state = known_state(cells["State"], "State")
    resources = next((name for name in ("AllocTRES", "ReqTRES") if cells.get(name)), None)
    gpus, is_partition = gpus_of(cells[resources], resources) if resources else (None, False)
    if "ElapsedRaw" not in cells:
        elapsed_seconds = duration_seconds(cells["Elapsed"], "Elapsed")
    elif is_count(raw := cells["ElapsedRaw"], 12):
        elapsed_seconds = float(raw)
    else:
        fix = "give ElapsedRaw as sacct prints it; a length of time like 01:00:00 belongs under Elapsed"
        raise FaultFound("ElapsedRaw", "this is no whole number of seconds", fix)
    restarts = cells.get("Restarts", "")
    started = "" if cells["Start"] in NEVER else cells["Start"]
    if started and MOMENT.fullmatch(started) is None:
        raise FaultFound("Start", "this is no moment like 2026-11-23T07:23:23 or 1795418603", NO_TIME_FORMAT)
    return SlurmRecord(
        cluster=cells.get("Cluster", ""),
        job_id=job[1],
        state=state,
        elapsed_seconds=elapsed_seconds,
        gpus=gpus,
        is_partition=is_partition,
        started=started,
        comment=cells[""],
        restarts=int(restarts) if is_count(restarts, 8) else 0,
    )


OLDEST, NEWEST = 38, 44
"""Versions 0.0.38 to 0.0.44 of the schema. Source: Slurm 22.05 to 25.11, read of their own output."""

VERSION = re.compile(r"(?:data_parser/|openapi/db)?v0\.0\.(\d{1,4})")

OTHER_VERSION = "ask sacct for one that is read, as by --json=v0.0.41, or give the output of sacct --parsable2"

AS_PRINTED = "give the document of sacct --json as it is"


def read_document(document: Mapping[str, Any]) -> SlurmRecords:
    """Parse the document of sacct --json."""
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise Refused(Problem("jobs", "no_jobs", "there is no list of jobs", AS_PRINTED))
    _refuse_version(document)
    rows = ((f"job {number} of the list", job) for number, job in enumerate(jobs, start=1))
    found, faults = _read_each(rows, lambda job: (_document_record(job), job.get("steps")))
    steps = sum(len(steps) for _, steps in found if isinstance(steps, list))
    return SlurmRecords(records=tuple(record for record, _ in found), steps=steps, faults=faults)


def _refuse_version(document: Mapping[str, Any]) -> None:
    """Refuse a document of an unknown version: its fields may have other meanings."""
    texts = [_text(document, "meta", "plugin", name) for name in ("data_parser", "type")]  # type alone before 0.0.39
    versions = [int(match[1]) for match in map(VERSION.fullmatch, texts) if match is not None]
    if not versions:
        message = "it does not say its version (meta.plugin.data_parser)"
        raise Refused(Problem("meta", "no_version", message, AS_PRINTED))
    if not OLDEST <= versions[0] <= NEWEST:
        message = f"its schema is v0.0.{versions[0]}; v0.0.{OLDEST} to v0.0.{NEWEST} are read"
        raise Refused(Problem("meta", "unknown_version", message, OTHER_VERSION))


def _document_record(job: object) -> SlurmRecord:
    if not isinstance(job, Mapping):
        raise FaultFound("jobs", "this is no object", AS_PRINTED)
    gpus, is_partition = _document_gpus(job)
    started = _number(job, "time", "start") or 0
    return SlurmRecord(
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
    """Job id as sacct prints it: a task by its array, a component by its heterogeneous job."""
    array, task = _number(job, "array", "job_id"), _number(job, "array", "task_id")
    whole, component = _number(job, "het", "job_id"), _number(job, "het", "job_offset")
    if array:
        return f"{array}_{'[]' if task is None else task}"
    return f"{whole}+{component or 0}" if whole else str(_needed(job, "job_id"))


def _state(job: Mapping[str, Any]) -> str:
    """State of a job: a text, or since 0.0.40 a list of a state and its flags."""
    found = _inside(job, "state", "current")
    first = found[0] if isinstance(found, list) and found else found
    if not isinstance(first, str):
        raise FaultFound("state.current", "the state of the job is missing", AS_PRINTED)
    return first


def _document_gpus(job: Mapping[str, Any]) -> tuple[int | None, bool]:
    kinds = ((kind, _inside(job, "tres", kind)) for kind in ("allocated", "requested"))
    field, rows = next(((f"tres.{kind}", rows) for kind, rows in kinds if isinstance(rows, list) and rows), ("", []))
    counts: dict[str | None, int] = {}
    for row in rows:
        is_resource = isinstance(row, Mapping) and row.get("type") == "gres"
        name, _, model = str(row.get("name")).partition(":") if is_resource else ("", "", "")
        if name != "gpu":
            continue
        count = row.get("count")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise FaultFound(field, "the number of GPUs is none", AS_PRINTED)
        counts[model or None] = count
    return total_gpus(counts)


def _needed(job: Mapping[str, Any], *path: str) -> int:
    found = _number(job, *path)
    if found is None or found < 0:
        raise FaultFound(".".join(path), "the number is missing", AS_PRINTED)
    return found


def _number(job: Mapping[str, Any], *path: str) -> int | None:
    """A whole number, or since 0.0.39 an object with a set flag."""
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


CONTINUED = frozenset({*UNFINISHED, "REQUEUED", "RESIZING"})
"""States of jobs that continue in a later record."""

REASONS: dict[Reason, tuple[str, str]] = {
    "not_ended": ("they have not ended", "reconcile again when they have"),
    "never_started": ("they were cancelled before they began", "nothing is to be done"),
    "no_estimate": (
        "their comments hold no estimate's id",
        "install a hook (GET /v1/adapters/slurm/job_submit.lua), and keep comments: AccountingStoreFlags=job_comment",
    ),
    "no_gpus": ("the accounting tells of no GPUs", "have it count them: AccountingStorageTRES=gres/gpu in slurm.conf"),
    "unknown_estimate": (
        "no estimate of that id is kept",
        "ask the service whose hook checked them; it keeps the questions of checks for 400 days",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    estimate_id: str
    records: tuple[SlurmRecord, ...]
    """Its attempts, in order, each of every component."""
    cluster: str
    job_id: str
    """As sacct prints it, components together."""
    started: str
    """When its first attempt began."""
    state: str
    """End state: that of its components if all completed, else of the first that did not."""
    gpus: int
    """GPUs of its last attempt."""
    is_partition: bool
    """Whether any are slices of GPUs."""
    attempts: int
    is_whole: bool
    """Whether every attempt is among its records."""
    elapsed_seconds: float
    """Time with GPUs, over all attempts."""
    gpu_hours: float


def _finished_job(estimate_id: str, records: tuple[SlurmRecord, ...]) -> FinishedJob:
    first, last, components = records[0], _last(records), _components(records)
    attempts = max(map(len, components))
    gpu_seconds = sum(record.elapsed_seconds * (record.gpus or 0) for record in records)
    return FinishedJob(
        estimate_id=estimate_id,
        records=records,
        cluster=first.cluster,
        job_id=first.job_id.partition("+")[0],
        started=first.started,
        state=next((record.state for record in last if record.state != "COMPLETED"), "COMPLETED"),
        gpus=sum(record.gpus or 0 for record in last),
        is_partition=any(record.is_partition for record in records),
        attempts=attempts,
        is_whole=all(record.restarts < attempts for record in records),
        elapsed_seconds=max(sum(record.elapsed_seconds for record in parts) for parts in components),
        gpu_hours=gpu_seconds / SECONDS_PER_HOUR,
    )


def finished_jobs(records: Iterable[SlurmRecord]) -> tuple[tuple[FinishedJob, ...], tuple[LeftOut, ...]]:
    grouped: dict[tuple[str, str], list[SlurmRecord]] = {}
    for record in records:
        grouped.setdefault((record.cluster, record.job_id.partition("+")[0]), []).append(record)
    found: list[FinishedJob] = []
    reasons: list[Reason] = []
    for group in grouped.values():
        reason = _reason(group)
        if reason is None:
            found += [_finished_job(estimate_id, ran) for estimate_id, ran in _by_estimate(group)]
        else:
            reasons.append(reason)
    return tuple(found), left_out(reasons)


def left_out(reasons: Iterable[Reason]) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(reason=reason, jobs=count, message=REASONS[reason][0], fix=REASONS[reason][1])
        for reason, count in sorted(Counter(reasons).items(), key=lambda pair: (-pair[1], pair[0]))
    )


def estimate_in(comment: str) -> str | None:
    """The estimate that a comment names; a hook writes its own last.

    >>> estimate_in("mine est_0123456789abcdef0123456789abcdef")
    'est_0123456789abcdef0123456789abcdef'
    """
    found = ESTIMATE_ID.findall(comment)
    return found[-1] if found else None


def _reason(group: Sequence[SlurmRecord]) -> Reason | None:
    if any(record.state in CONTINUED for record in _last(group)):
        return "not_ended"
    if not any(record.started for record in group):
        return "never_started"
    if not any(estimate_in(record.comment) for record in group):
        return "no_estimate"
    return None if any(record.gpus for record in group) else "no_gpus"


def _by_estimate(group: Sequence[SlurmRecord]) -> list[tuple[str, tuple[SlurmRecord, ...]]]:
    """Records of each estimate; those without one belong to the first, because a hook may check one component alone."""
    ids = [estimate_in(record.comment) for record in group]
    first = next(one for one in ids if one is not None)
    return [
        (known, tuple(record for record, one in zip(group, ids, strict=True) if (one or first) == known))
        for known in dict.fromkeys(one or first for one in ids)
    ]


def jobs_by_estimate(jobs: Iterable[FinishedJob]) -> dict[str, list[FinishedJob]]:
    """Jobs of each estimate: one may continue from another."""
    by_estimate: dict[str, list[FinishedJob]] = {}
    for job in jobs:
        by_estimate.setdefault(job.estimate_id, []).append(job)
    return by_estimate


def _components(records: Sequence[SlurmRecord]) -> list[list[SlurmRecord]]:
    by_component: dict[str, list[SlurmRecord]] = {}
    for record in records:
        by_component.setdefault(record.job_id, []).append(record)
    return list(by_component.values())


def _last(records: Sequence[SlurmRecord]) -> list[SlurmRecord]:
    return [attempts[-1] for attempts in _components(records)]
