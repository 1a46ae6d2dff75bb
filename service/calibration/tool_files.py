"""Measurements in files of other tools: output of nccl-tests, tables of matrix products, memory snapshots of torch."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from service.calibration.observations import INSTRUCTION_FLOP, format_named
from service.calibration.records import DeviceKind, Environment, Measurement, ProbeRecord, bus_fraction
from service.calibration.tables import refuse_empty, refused
from service.estimator.answer import CollectiveName
from service.text_bounds import MOST_COLUMNS, MOST_DIGITS

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
MOST_TABLES = 8
"""Tables side by side; there are two."""
MOST_ROWS = 10_000
"""Rows of one output. Source: a choice; sizes by powers of two give some 40."""
LARGEST = 1e24
"""Largest number of a row, in any unit. Source: a choice: 1e24 FLOP/s, a million exascale machines."""
LEAST_PRINTED = 1.0
"""GB/s from which two decimals tell the ratio."""


class _Head(NamedTuple):
    unit_seconds: float
    places: tuple[int, ...]
    """Place of each table's time in a row."""
    has_redop: bool


class _Row(NamedTuple):
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
    """The collectives in an output of nccl-tests or rccl-tests, whose lines may have prefixes and stand among logs."""
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
    device, nodes = devices[0][1], len({host for host, _ in devices})
    nccl = next((result[1] for line in lines if (result := NCCL.search(line))), None)
    kind: DeviceKind = "rocm" if "AMD" in device or "Instinct" in device else "cuda"
    environment = Environment(kind=kind, device=device, devices=ranks, memory_bytes=0.0, nccl=nccl)
    shape = {"ranks": ranks, "nodes": nodes, "backend": "nccl"}
    measurements = tuple(
        replace(
            _single(
                named,
                {"size_bytes": int(row.size_bytes), **shape, "dtype": row.dtype, "in_place": row.in_place},
                "seconds",
                row.seconds,
            ),
            relative_error_fraction=None if row.wrong is None else float(row.wrong > 0),
        )
        for row in rows
        if row.seconds > 0 and row.size_bytes
    )
    return (ProbeRecord(probe="collective", status="succeeded", environment=environment, measurements=measurements),)


def _single(operation: str, shape: Mapping[str, Any], quantity: str, value: float) -> Measurement:
    return Measurement(
        operation=operation, shape=shape, quantity=quantity, value=value, low=value, high=value, repeats=1
    )


def _devices(lines: Sequence[str]) -> list[tuple[str, str]]:
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


def _number(column: str, text: str, line: int, least: float = 0.0) -> float:
    with suppress(ValueError):
        if len(text) <= MOST_DIGITS and least <= (value := float(text)) <= LARGEST:
            return value
    span, fix = f"between {least:g} and", "write it with a point"
    if not least:
        span, fix = "from 0 to", "send the output as it was"
    raise refused(column, "not_a_number", f"{column} is no number {span} {LARGEST:g}", fix, line)


def _named(lines: Sequence[str]) -> CollectiveName | None:
    started = next((result[1] for line in lines if (result := STARTED.search(line))), None)
    if started is None:
        return None
    if started not in PROGRAMS:
        message = f"formulas do not speak of {started}; they do of {', '.join(PROGRAMS)}"
        raise refused("operation", "unknown_collective", message, "send the output of one of those")
    return PROGRAMS[started]


def _deduced(rows: Sequence[_Row], ranks: int) -> CollectiveName:
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


TIME_COLUMNS: Mapping[str, float] = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}
"""Columns of a time, with their unit in seconds."""
RATE_COLUMNS: Mapping[str, float] = {"flop_per_s": 1.0, "tflop_per_s": 1e12}
"""Columns of a rate, with their unit in FLOP/s."""
REQUIRED = ("device", "dtype", "rows", "columns", "inner")
OPTIONAL = ("operation", "copies", "repeats", "low_seconds", "high_seconds", "memory_bytes", "threads", "instructions")
COLUMNS = (*REQUIRED, *TIME_COLUMNS, *RATE_COLUMNS, *OPTIONAL)
MOST_LINES = 4_096
"""Products of one table. Source: a choice; each is predicted and stored in a fraction of a millisecond."""
MOST_DEVICES = 64
"""Devices of one table. Source: a choice, equal to the records of one request."""
SECONDS_BOUNDS = 1e-9, 1e7
"""Least and most time that one product takes [second]. Source: a choice; a launch alone takes some 1e-6."""

LEAST_NUMBER = 1e-12
"""Least number of a cell of a table of products, in any unit. Source: a choice: 1e-12 s."""

PROCESSOR_MARKS = ("epyc", "xeon", "ryzen", "core(tm)", "graviton", "neoverse", "cpu")
"""Words in the names of processors; processors with other names need the column threads."""


_Product = tuple[Environment, Measurement]


def read_gemm_table(text: str) -> tuple[ProbeRecord, ...]:
    """The matrix products of a table: CSV with one product a line, and its time or rate.

    Columns, in any order; those in brackets may be left out:
    device, dtype, rows, columns, inner, one of seconds | milliseconds | microseconds | flop_per_s | tflop_per_s,
    [operation], [copies], [repeats], [low_seconds], [high_seconds], [memory_bytes], [threads], [instructions].
    The result has rows x columns numbers; each is a sum over inner terms. Instructions are the instruction sets of a
    processor, as /proc/cpuinfo names them; its peak follows from them.
    """
    refuse_empty(text, "matrix products")
    lines = _lines(text)
    names = [name.strip().lower() for name in next(lines, (1, []))[1]]
    time_column = _time_column(names)
    products = []
    for number, cells in lines:
        if any(cell.strip() for cell in cells):
            if len(cells) != len(names):
                message = f"the line has {len(cells)} cells, the header {len(names)}"
                raise refused("", "ragged", message, "give each line one cell for each column", number)
            products.append(_product(dict(zip(names, map(str.strip, cells), strict=True)), time_column, number))
        if len(products) > MOST_LINES:
            raise refused("", "too_long", f"a table holds at most {MOST_LINES} products", "send it in parts", number)
    if not products:
        raise refused("", "empty", "below the header stands no line", "check what wrote the table, and send it again")
    return _records(products)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    number = 0
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(text.lstrip("\ufeff"), newline="")), start=1):
            yield number, cells
    except csv.Error:
        message = f"the line is no CSV, or a cell of it has more than {csv.field_size_limit()} characters"
        raise refused("", "not_csv", message, "close every quote, and shorten the cell", number + 1) from None


def _time_column(names: list[str]) -> str:
    if len(names) > MOST_COLUMNS:
        message = f"the header has {len(names)} columns, and a table has at most {MOST_COLUMNS}"
        raise refused("", "too_many_columns", message, f"columns are {', '.join(COLUMNS)}", 1)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        message = "the header has a column that no product has; it would change nothing, so it is refused"
        place = names.index(unknown[0]) + 1
        fix = f"rename or leave out column {place}; columns are {', '.join(COLUMNS)}"
        raise refused(f"column {place}", "unknown_column", message, fix, 1)
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise refused(repeated, "repeated_column", f"{repeated} is there twice", "keep one of them", 1)
    missing = next((name for name in REQUIRED if name not in names), None)
    if missing:
        fix = f"add the column {missing}"
        raise refused(missing, "missing_column", f"the header has no {missing}", fix, 1)
    columns = [name for name in names if name in TIME_COLUMNS or name in RATE_COLUMNS]
    if len(columns) != 1:
        message = f"the header has {len(columns)} columns that tell a time or a rate, and needs one, with its unit"
        fix = f"give one of {', '.join((*TIME_COLUMNS, *RATE_COLUMNS))}"
        raise refused("seconds", "unknown_unit", message, fix, 1)
    return columns[0]


def _product(cells: Mapping[str, str], time_column: str, line: int) -> _Product:
    number_format = format_named(cells["dtype"])
    if number_format is None:
        message = "dtype is no number format that formulas know"
        raise refused("dtype", "not_a_choice", message, "use fp32, fp16, bf16, fp8, fp4 or int8", line)
    if not cells["device"]:
        raise refused("device", "required", "device is empty", "name the device as its driver does", line)
    sizes = {name: _whole_number(name, cells[name], line) for name in ("rows", "columns", "inner")}
    copies = _whole_number("copies", cells.get("copies") or "1", line)
    figure = _number(time_column, cells[time_column], line, LEAST_NUMBER)
    flop = 2.0 * sizes["rows"] * sizes["columns"] * sizes["inner"] * copies
    seconds = (
        figure * TIME_COLUMNS[time_column]
        if time_column in TIME_COLUMNS
        else flop / (figure * RATE_COLUMNS[time_column])
    )
    if not SECONDS_BOUNDS[0] <= seconds <= SECONDS_BOUNDS[1]:
        message = f"{time_column} makes the product take {seconds:.3g} s, which no device does"
        raise refused(time_column, "out_of_range", message, "check the unit that the column's name says", line)
    low, high = (
        _number(name, cells[name], line, LEAST_NUMBER) if cells.get(name) else seconds
        for name in ("low_seconds", "high_seconds")
    )
    if not low <= seconds <= high:
        message = "the time is not between low_seconds and high_seconds"
        raise refused("low_seconds", "contradiction", message, "give all three in seconds", line)
    measurement = Measurement(
        operation=cells.get("operation") or "forward",
        shape={**sizes, "dtype": number_format, "copies": copies},
        quantity="seconds",
        value=seconds,
        low=low,
        high=high,
        repeats=_whole_number("repeats", cells.get("repeats") or "1", line),
    )
    return _product_environment(cells, line), measurement


def _product_environment(cells: Mapping[str, str], line: int) -> Environment:
    threads = _whole_number("threads", cells["threads"], line) if cells.get("threads") else None
    is_processor = threads is not None or any(mark in cells["device"].lower() for mark in PROCESSOR_MARKS)
    memory = cells.get("memory_bytes")
    named = sorted(set(cells.get("instructions", "").lower().split()))
    if named and not INSTRUCTION_FLOP.keys() & named:
        message = "none of the instructions is one that formulas know"
        fix = f"name them as /proc/cpuinfo does, a blank between two: {', '.join(INSTRUCTION_FLOP)}; or leave it empty"
        raise refused("instructions", "not_a_choice", message, fix, line)
    return Environment(
        kind="cpu" if is_processor else "cuda",
        device=cells["device"],
        devices=1,
        memory_bytes=_number("memory_bytes", memory, line, LEAST_NUMBER) if memory else 0.0,
        threads=threads,
        instructions=tuple(named),
    )


def _records(products: list[_Product]) -> tuple[ProbeRecord, ...]:
    by_device: dict[Environment, list[Measurement]] = {}
    for environment, measurement in products:
        by_device.setdefault(environment, []).append(measurement)
    if len(by_device) > MOST_DEVICES:
        message = f"the table tells of {len(by_device)} devices, and one request takes {MOST_DEVICES}"
        raise refused("device", "too_long", message, "send it in parts")
    return tuple(
        ProbeRecord(probe="gemm", status="succeeded", environment=environment, measurements=tuple(measurements))
        for environment, measurements in by_device.items()
    )


def _whole_number(column: str, text: str, line: int) -> int:
    is_whole = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    if not is_whole or not 1 <= int(text) <= 1 << 40:
        raise refused(column, "not_a_whole_number", f"{column} is no whole number from 1 on", "write it out", line)
    return int(text)


PICKLES = (".pickle", ".pkl", ".pt", ".pth", ".bin")

FIRST_BYTES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
"""First bytes of pickles, and of archives of them. Source: Python, pickle protocol opcodes (PROTO); zip."""

TO_JSON = (
    "python -c \"import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout, default=str)\" "
    "snapshot.pickle > snapshot.json, on the machine that wrote it"
)

SEND = "send what torch.cuda.memory._snapshot() gives"

MOST_SNAPSHOT_DEVICES = 128
"""Devices of one snapshot. Source: a choice; a host has 8 or 16."""
MOST_BYTES = 1 << 60
"""Largest size of a block or a segment [byte]."""
MOST_EVENTS = 2_000_000
"""Events of one trace. Source: a choice; twenty times the default of torch."""

SIGNS = {
    "allocated_peak": {"alloc": 1, "free_completed": -1},
    "reserved_peak": {"segment_alloc": 1, "segment_free": -1, "segment_map": 1, "segment_unmap": -1},
}
"""Events that add to the bytes in use, and those that free some."""


def refuse_pickle(content: bytes, name: str = "") -> None:
    """Refuse a pickle before anything reads it."""
    if name.lower().endswith(PICKLES) or content.startswith(FIRST_BYTES):
        message = "this is a pickle: reading it would run whatever it says, so it is not read"
        raise refused("", "pickle", message, f"turn it into JSON: {TO_JSON}")


def read_memory_snapshot(text: str, device: str, memory_bytes: float = 0.0) -> tuple[ProbeRecord, ...]:
    """The peaks of bytes that a process reserved on a GPU, in a snapshot of torch in its JSON form.

    torch writes a pickle, which runs its code when it is read, so it is refused by its name and first bytes; JSON is
    the output of `json.dump(torch.cuda.memory._snapshot(), file)`. The peak is found by going back through the trace
    from the bytes at its end; where the trace was cut short, it is a lower bound.
    """
    refuse_pickle(text[:8].encode("utf-8", "replace"))
    refuse_empty(text, "snapshot")
    segments, traces = _parts(text)
    environment = Environment(kind="cuda", device=device, devices=max(1, len(traces)), memory_bytes=memory_bytes)
    own: dict[int, list[Mapping[str, Any]]] = {}
    for one in segments:
        place = one.get("device", 0) if isinstance(one, Mapping) else None
        if isinstance(place, int):
            own.setdefault(place, []).append(one)
    measurements = tuple(
        one
        for place in range(max(1, len(traces)))
        for one in _peaks(place, own.get(place, []), traces[place : place + 1])
    )
    if not measurements:
        message = "the snapshot holds no segment and no event, so nothing was allocated when it was taken"
        raise refused("segments", "empty", message, "record a history, and take the snapshot before memory is freed")
    return (ProbeRecord(probe="step", status="succeeded", environment=environment, measurements=measurements),)


def _parts(text: str) -> tuple[list[Any], list[Any]]:
    try:
        snapshot = json.loads(text)
    except (ValueError, RecursionError):
        raise refused("", "not_json", "the file is no JSON", f"a pickle is turned into JSON so: {TO_JSON}") from None
    if not isinstance(snapshot, Mapping):
        raise refused("", "not_an_object", "the file is no JSON object", SEND)
    segments, traces = snapshot.get("segments"), snapshot.get("device_traces", [])
    if not isinstance(segments, list) or not isinstance(traces, list):
        name = "segments" if not isinstance(segments, list) else "device_traces"
        message = f"{name} is not there, or no list, as in a snapshot of torch 2.1 and later"
        raise refused(name, "missing_column", message, SEND)
    if len(traces) > MOST_SNAPSHOT_DEVICES:
        message = f"the snapshot has traces of {len(traces)} devices, and no host has more than {MOST_SNAPSHOT_DEVICES}"
        raise refused("device_traces", "too_long", message, SEND)
    if sum(len(trace) for trace in traces if isinstance(trace, list)) > MOST_EVENTS:
        fix = "record fewer with max_entries"
        raise refused("device_traces", "too_long", f"a trace holds at most {MOST_EVENTS} events", fix)
    return segments, traces


def _peaks(place: int, own: Sequence[Mapping[str, Any]], traces: Sequence[Any]) -> Iterator[Measurement]:
    trace = traces[0] if traces and isinstance(traces[0], list) else []
    for operation, field in (("allocated_peak", "allocated_size"), ("reserved_peak", "total_size")):
        used = sum(_size(one, field) for one in own)
        peak = max(_back_through(trace, used, operation), default=used)
        if max(peak, used) > 0:
            shape = {"device": place, "events": len(trace)}
            yield _single(operation, shape, "bytes", float(max(peak, used)))


def _back_through(trace: Sequence[Any], used: int, operation: str) -> Iterator[int]:
    """The bytes in use after each event, from the last one to the first."""
    for event in reversed(trace):
        yield used
        if isinstance(event, Mapping):
            used -= SIGNS[operation].get(str(event.get("action", "")), 0) * _size(event, "size")
    yield used


def _size(one: Mapping[str, Any], field: str) -> int:
    value = one.get(field, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_BYTES:
        raise refused(field, "not_a_whole_number", f"{field} is no whole number of bytes up to 2^60", SEND)
    return value
