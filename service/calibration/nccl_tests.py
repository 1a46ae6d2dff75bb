"""Output of nccl-tests: collectives that all_reduce_perf and its like measured, of NVIDIA and of AMD.

Launchers put their mark before each line, and logs of NCCL are mixed in: lines that belong to no table are skipped.
Columns are known by their names, so both tables are read, the older ones too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from service.calibration.observations import bus_fraction
from service.calibration.records import DeviceKind, Environment, Measurement, ProbeRecord
from service.calibration.tables import refuse_empty, refused
from service.estimator.degrees import CollectiveName
from service.text_bounds import MOST_DIGITS

MARK = re.compile(r"^\s*(?:\[[\d,]+\](?:<std(?:out|err)>:?)?\s?)+|^\s*\d+:\s(?=\s*[#\d])")
"""Marks of mpirun --tag-output, and of srun --label, before a line."""

DEVICE = re.compile(
    r"Rank\s++([0-9]{1,6})\s++(?:Group\s++[0-9]{1,6}\s++)?Pid\s++[0-9]{1,12}\s++on\s++(\S{1,255})\s++device\s++"
    r"[0-9]{1,6}\s++\[[^\]]{0,64}\]\s++(.+)"
)
"""Rank, host and device of a process."""

NCCL = re.compile(r"(?:NCCL|RCCL) version\s*:?\s*([\d.]+)")
STARTED = re.compile(r"Collective test starting:\s*(\w+?)_perf")
UNITS = re.compile(r"\((us|ms|s|ns)\)")
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

PROGRAMS: dict[str, CollectiveName] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send",
}
"""Collectives with formulas, by the names of the programs. Source: NVIDIA/nccl-tests@v2.13 src."""

LEAST_WORDS = 4
"""Fewest words of a row: size, count, type, operation or time."""

TIMED = ("time", "algbw", "busbw")
"""Columns of one table, in their order; the next one counts wrong numbers."""

RATIO_TOLERANCE = 0.05
"""Tolerance of busbw / algbw: both are printed with two decimals."""

LONGEST_LINE = 4_096
"""Characters of the longest line of a table."""

LONGEST_NAME = 200
"""Characters of a device's name."""

MOST_TABLES = 8
"""Tables side by side; there are two."""

MOST_ROWS = 10_000
"""Rows of one output. Source: a choice; sizes by powers of two give some 40."""

LARGEST = 1e24
"""Largest number of a row, in any unit."""

LEAST_PRINTED = 1.0
"""GB/s from which two decimals tell the ratio."""


@dataclass(frozen=True, slots=True)
class _Head:
    """Head of a table."""

    unit_seconds: float
    places: tuple[int, ...]
    """Place of each table's time in a row."""
    has_redop: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of one table."""

    line: int
    size_bytes: float
    dtype: str
    redop: str
    seconds: float
    algbw: float
    busbw: float
    wrong: int | None
    in_place: bool


def read_nccl_tests(text: str, operation: CollectiveName | None = None) -> tuple[ProbeRecord, ...]:
    """The collectives that an output of nccl-tests holds."""
    refuse_empty(text, "rows of a collective")
    lines = [MARK.sub("", line) if len(line) <= LONGEST_LINE else "" for line in text.split("\n")]
    devices = _devices(lines)
    rows = list(islice(_rows(lines), MOST_ROWS + 1))
    if len(rows) > MOST_ROWS:
        raise refused("", "too_long", f"an output has at most {MOST_ROWS} rows", "send it in parts", rows[-1].line)
    if not rows:
        message = "no row of a table of nccl-tests stands in the text: size, count, type, time, algbw, busbw"
        raise refused("", "no_rows", message, "send what all_reduce_perf or its like printed, with its head")
    ranks = len(devices)
    named = operation or _named(lines) or _deduced(rows, ranks)
    _refuse_other_ratio(rows, named, ranks)
    environment = _environment(lines, devices)
    nodes = len({host for host, _ in devices})
    measurements = tuple(_measurement(row, named, ranks, nodes) for row in rows if row.seconds > 0 and row.size_bytes)
    return (ProbeRecord(probe="collective", status="succeeded", environment=environment, measurements=measurements),)


def _devices(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Host and device of each rank."""
    result: dict[int, tuple[str, str]] = {}
    for line in lines:
        known = DEVICE.search(line)
        if known:
            result[int(known[1])] = (known[2], known[3].rstrip()[:LONGEST_NAME])
    kinds = sorted({device for _, device in result.values()})
    if not result:
        message = "the text does not say which devices ran: no line `Rank 0 ... device 0 [...] NAME`"
        raise refused("devices", "no_devices", message, "send the whole output, head included")
    if len(kinds) > 1:
        message = f"ranks ran on {len(kinds)} kinds of devices: {', '.join(kinds[:4])}"
        raise refused("devices", "several_devices", message, "measure one kind at a time")
    if len(result) < 2:
        message = "one rank alone exchanges nothing, so its times say nothing of a link"
        raise refused("devices", "one_rank", message, "run it on two GPUs or more, with -g or mpirun")
    return [result[rank] for rank in sorted(result)]


def _rows(lines: Sequence[str]) -> Iterator[_Row]:
    head: _Head | None = None
    for number, line in enumerate(lines, start=1):
        words = line.lstrip("# ").split()
        if {"size", "time", "busbw"} <= set(words):
            head = _head(words, lines[number] if number < len(lines) else "", number)
        elif head is not None and words and words[0].isdigit() and not line.lstrip().startswith("#"):
            yield from _tables(words, head, number)


def _head(names: Sequence[str], units: str, line: int) -> _Head:
    """The head from its two lines."""
    unit = UNITS.search(units)
    if unit is None:
        raise refused(
            "time", "unknown_unit", "the head does not say in which unit time is", "keep its line of units", line
        )
    missing = [name for name in ("type", *TIMED) if name not in names]
    if missing:
        raise refused(
            missing[0], "missing_column", f"the head has no column {missing[0]}", "keep the whole table", line
        )
    places = tuple(place for place, name in enumerate(names) if name == "time")[:MOST_TABLES]
    return _Head(SECONDS[unit[1]], places, "redop" in names)


def _tables(words: Sequence[str], head: _Head, line: int) -> Iterator[_Row]:
    """The rows of the tables side by side: out of place, and in place."""
    for table, place in enumerate(head.places):
        cells = words[place : place + len(TIMED)]
        if len(cells) < len(TIMED) or len(words) < LEAST_WORDS:
            raise refused("time", "short_row", "the row ends before its times", "send the whole output", line)
        numbers = [_number(name, cell, line) for name, cell in zip(TIMED, cells, strict=True)]
        wrong = words[place + len(TIMED)] if place + len(TIMED) < len(words) else ""
        yield _Row(
            line=line,
            size_bytes=_number("size", words[0], line),
            dtype=words[2],
            redop=words[3] if head.has_redop else "",
            seconds=numbers[0] * head.unit_seconds,
            algbw=numbers[1],
            busbw=numbers[2],
            wrong=int(wrong) if wrong.isascii() and wrong.isdigit() and len(wrong) <= MOST_DIGITS else None,
            in_place=table == 1,
        )


def _number(column: str, cell: str, line: int) -> float:
    try:
        value = float(cell) if len(cell) <= MOST_DIGITS else LARGEST * 10
    except ValueError:
        value = LARGEST * 10
    if not 0 <= value <= LARGEST:
        message = f"{column} is no number from 0 to {LARGEST:g}"
        raise refused(column, "not_a_number", message, "send the output as it was", line)
    return value


def _named(lines: Sequence[str]) -> CollectiveName | None:
    """The collective that the output names itself."""
    started = next((result[1] for line in lines if (result := STARTED.search(line))), None)
    if started is None:
        return None
    if started not in PROGRAMS:
        message = f"formulas do not speak of {started}; they do of {', '.join(PROGRAMS)}"
        raise refused("operation", "unknown_collective", message, "send the output of one of those")
    return PROGRAMS[started]


def _deduced(rows: Sequence[_Row], ranks: int) -> CollectiveName:
    """The collective, from busbw over algbw and from whether numbers are reduced."""
    known = [row.busbw / row.algbw for row in rows if row.algbw >= LEAST_PRINTED]
    reduces = any(row.redop == "sum" for row in rows)
    names: tuple[CollectiveName, ...] = ("all_reduce", "reduce_scatter") if reduces else ()
    fitting = [name for name in names if known and abs(known[-1] / bus_fraction(name, ranks) - 1) < RATIO_TOLERANCE]
    if len(fitting) != 1:
        message = "the output does not say which collective was measured, as that of newer releases does"
        fix = "name it as operation: all_reduce, all_gather, reduce_scatter, all_to_all or send"
        raise refused("operation", "unknown_collective", message, fix)
    return fitting[0]


def _refuse_other_ratio(rows: Sequence[_Row], named: CollectiveName, ranks: int) -> None:
    """Refuse rows whose bandwidths contradict the collective or the number of ranks."""
    expected = bus_fraction(named, ranks)
    for row in rows:
        if row.algbw >= 10 * LEAST_PRINTED and abs(row.busbw / row.algbw / expected - 1) > RATIO_TOLERANCE:
            message = (
                f"busbw is {row.busbw / row.algbw:.3g} times algbw, and {named} of {ranks} ranks has {expected:.3g}: "
                "another collective was measured, or lines of ranks are missing"
            )
            raise refused(
                "busbw", "contradiction", message, "name the right operation, or send the whole head", row.line
            )


def _environment(lines: Sequence[str], devices: Sequence[tuple[str, str]]) -> Environment:
    device = devices[0][1]
    nccl = next((result[1] for line in lines if (result := NCCL.search(line))), None)
    kind: DeviceKind = "rocm" if "AMD" in device or "Instinct" in device else "cuda"
    return Environment(kind=kind, device=device, devices=len(devices), memory_bytes=0.0, nccl=nccl)


def _measurement(row: _Row, named: CollectiveName, ranks: int, nodes: int) -> Measurement:
    return Measurement(
        operation=named,
        shape={
            "size_bytes": int(row.size_bytes),
            "ranks": ranks,
            "nodes": nodes,
            "backend": "nccl",
            "dtype": row.dtype,
            "in_place": row.in_place,
        },
        quantity="seconds",
        value=row.seconds,
        low=row.seconds,
        high=row.seconds,
        repeats=1,
        relative_error_fraction=None if row.wrong is None else float(row.wrong > 0),
    )
