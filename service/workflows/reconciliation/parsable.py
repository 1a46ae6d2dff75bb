"""Which jobs does the text of `sacct --parsable2` tell of?"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from service.answers.reconciliations import Fault
from service.errors import Problem, Refused, did_you_mean, nearest
from service.text_bounds import MOST_COLUMNS
from service.workflows.reconciliation.records import FaultFound, SlurmRecord, SlurmRecords, known_state
from service.workflows.reconciliation.written import duration_seconds, gpus_of, moment_of, whole_seconds

COLUMNS = ("JobID", "Cluster", "State", "ElapsedRaw", "AllocTRES", "ReqTRES", "Start", "AdminComment", "Comment")
"""Columns that are asked for where sacct is called from here; free text comes last."""

COMMAND = f"sacct --parsable2 --duplicates --allusers --format={','.join(COLUMNS)}"
"""Prints what is read here."""

NEEDED = (
    ("JobID",),
    ("State",),
    ("ElapsedRaw", "Elapsed"),
    ("AllocTRES", "ReqTRES"),
    ("Start",),
    ("Comment", "AdminComment"),
)
"""Columns of which one each has to be there."""

FREE_TEXT = frozenset({"AdminComment", "Comment", "Extra", "JobName", "SubmitLine", "SystemComment", "WorkDir"})
"""Columns in which people may have written the delimiter."""

NAMES = frozenset({*COLUMNS, *FREE_TEXT, *(name for names in NEEDED for name in names), "JobIDRaw", "Restarts", "End"})
"""Columns by which a header is known as one."""

KNOWN = {name.lower(): name for name in NAMES}

DELIMITERS = ("|", "\x1f", ";", "\t")

MOST_ROWS = 100_000
"""Rows of one table. Source: a choice; the longest body has some 30,000 rows of real jobs."""

JOB_ID = re.compile(r"(\d{1,12}(?:[_+](?:\d{1,12}|\[[^\]|]{1,200}\]))?)(\.[\w+.-]{1,64})?")
"""A job, a task of an array, a component of a heterogeneous job, or a step of one of them."""


@dataclass(frozen=True, slots=True)
class Header:
    """The columns of a table."""

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
        """The cells of a row by column; where a comment holds the delimiter, comments are one text.

        Args:
            line: the row

        Returns:
            texts by column, and the free text under the empty name

        Raises:
            FaultFound: it has too few cells, or cells whose columns cannot be told
        """
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
    """The records of a table.

    Args:
        text: what `sacct --parsable2` printed, with its header

    Returns:
        the records, and rows that cannot be read

    Raises:
        Refused: it is no such table, or none of its rows can be read
    """
    lines = text.removeprefix("\ufeff").split("\n", MOST_ROWS + 1)
    if len(lines) > MOST_ROWS + 1 and lines[-1].strip():
        message = f"the table has more than {MOST_ROWS} rows, the most that one request takes"
        raise Refused(_problem("too_many_rows", message, "send it in parts, each with the header"))
    header = _header(lines)
    records: list[SlurmRecord] = []
    faults: list[Fault] = []
    steps = 0
    for number, line in enumerate((line.removesuffix("\r") for line in lines[1:]), start=2):
        if not line.strip():
            continue
        try:
            record = _record(header, line, f"row {number}")
        except FaultFound as fault:
            faults.append(fault.at(f"row {number}"))
        else:
            steps += record is None
            records += [] if record is None else [record]
    if faults and not records and not steps:
        raise Refused(*(refused(fault) for fault in faults[:1]))
    return SlurmRecords(records=tuple(records), steps=steps, faults=tuple(faults))


def refused(fault: Fault) -> Problem:
    """A fault that is one of all records.

    Args:
        fault: what is wrong with the first

    Returns:
        the problem
    """
    message = f"no record can be read; of {fault.place}: {fault.message}"
    return Problem(field=fault.field, code="unreadable", message=message, fix=fault.fix)


def _header(lines: Sequence[str]) -> Header:
    first = lines[0].removesuffix("\r")
    if not first.strip():
        raise Refused(_problem("empty", "there is nothing in it", f"give what this prints: {COMMAND}"))
    if any(first.count(mark) > MOST_COLUMNS for mark in DELIMITERS):
        message = f"the first row has more than {MOST_COLUMNS} columns, and sacct knows fewer"
        raise Refused(_problem("too_many_columns", message, f"print those that are needed: {COMMAND}"))
    header = max(
        (_columns(first, mark) for mark in DELIMITERS), key=lambda one: sum(name in NAMES for name in one.names)
    )
    if not any(name in NAMES for name in header.names) or len(header.names) == 1:
        raise Refused(_no_header(first))
    missing = [names for names in NEEDED if not set(names) & set(header.names)]
    if missing:
        raise Refused(*(_missing(names, header) for names in missing))
    return header


def _columns(first: str, mark: str) -> Header:
    names = [KNOWN.get(name.strip().lower(), name.strip()) for name in first.split(mark)]
    is_closed = len(names) > 1 and not names[-1]
    return Header(tuple(names[:-1] if is_closed else names), mark, is_closed)


def _no_header(first: str) -> Problem:
    if len([word for word in first.split() if word.lower() in KNOWN]) > 1:
        message = "its columns are set in spaces, which cut what is longer"
        return _problem("not_parsable", message, f"print whole fields: {COMMAND}")
    if len([word for word in first.split(",") if word.strip().lower() in KNOWN]) > 1:
        message = "its delimiter is a comma, which resources hold too"
        return _problem("comma", message, f"print it with | between the columns: {COMMAND}")
    fix = f"leave out --noheader; this prints what is needed: {COMMAND}"
    return _problem("no_header", "the first row names no columns of sacct", fix)


def _missing(names: tuple[str, ...], header: Header) -> Problem:
    near = did_you_mean(nearest(names[0], [name[:64] for name in header.names], likeness=0.8))
    typed = " (a column is spelled almost so)" if near else ""
    message = f"there is no column {' or '.join(names)}{typed}"
    return Problem(field=names[0], code="missing_column", message=message, fix=f"call it so: {COMMAND}")


def _problem(code: str, message: str, fix: str) -> Problem:
    return Problem(field="", code=code, message=message, fix=fix)


def _record(header: Header, line: str, place: str) -> SlurmRecord | None:
    """The record of a row; None where it is a step."""
    cells = {name: cell.strip() for name, cell in header.cells(line).items()}
    lost = [name for names in NEEDED[:-1] for name in names if name in header.names and name not in cells]
    if lost:
        fix = f"print free text last: {COMMAND}"
        raise FaultFound(lost[0], "a comment holds the delimiter, so this column cannot be told", fix)
    job = JOB_ID.fullmatch(cells["JobID"])
    if job is None:
        raise FaultFound("JobID", "this is no job like 12, 12_3, 12+1 or 12.batch", "print it by sacct itself")
    if job[2] is not None:
        return None
    state = known_state(cells["State"], "State")
    gpus, is_partition = _gpus(cells)
    raw = "ElapsedRaw" in cells
    restarts = cells.get("Restarts", "")
    return SlurmRecord(
        place=place,
        cluster=cells.get("Cluster", ""),
        job_id=job[1],
        state=state,
        elapsed_seconds=whole_seconds(cells["ElapsedRaw"], "ElapsedRaw")
        if raw
        else duration_seconds(cells["Elapsed"], "Elapsed"),
        gpus=gpus,
        is_partition=is_partition,
        started=moment_of(cells["Start"], "Start"),
        comment=cells[""],
        restarts=int(restarts) if restarts.isascii() and restarts.isdigit() and len(restarts) < 9 else 0,
    )


def _gpus(cells: dict[str, str]) -> tuple[int | None, bool]:
    """GPUs that were held, or asked for where what was held is not told."""
    told = [name for name in ("AllocTRES", "ReqTRES") if cells.get(name)]
    return gpus_of(cells[told[0]], told[0]) if told else (None, False)
