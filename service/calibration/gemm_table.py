"""Matrix products of a table: CSV with one product a line, and its time or rate.

Columns, in any order; those in brackets may be left out:
device, dtype, rows, columns, inner, one of seconds | milliseconds | microseconds | flop_per_s | tflop_per_s,
[operation], [copies], [repeats], [low_seconds], [high_seconds], [memory_bytes], [threads], [instructions].
The result has rows x columns numbers; each is a sum over inner terms. Instructions are the instruction sets of a
processor, as /proc/cpuinfo names them; its peak follows from them.
"""

import csv
import io
from collections.abc import Iterator, Mapping

from service.calibration.observations import INSTRUCTION_FLOP, format_named
from service.calibration.records import Environment, Measurement, ProbeRecord
from service.calibration.tables import refuse_empty, refused
from service.text_bounds import MOST_COLUMNS, MOST_DIGITS

SECONDS: Mapping[str, float] = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}
"""Columns of a time, with their unit in seconds."""
RATES: Mapping[str, float] = {"flop_per_s": 1.0, "tflop_per_s": 1e12}
"""Columns of a rate, with their unit in FLOP/s."""
REQUIRED = ("device", "dtype", "rows", "columns", "inner")
OPTIONAL = ("operation", "copies", "repeats", "low_seconds", "high_seconds", "memory_bytes", "threads", "instructions")
COLUMNS = (*REQUIRED, *SECONDS, *RATES, *OPTIONAL)
MOST_LINES = 4_096
"""Products of one table. Source: a choice; each is predicted and stored in a fraction of a millisecond."""
MOST_DEVICES = 64
"""Devices of one table. Source: a choice, equal to the records of one request."""
SECONDS_BOUNDS = 1e-9, 1e7
"""Least and most time that one product takes [second]. Source: a choice; a launch alone takes some 1e-6."""

LEAST_NUMBER, LARGEST_NUMBER = 1e-12, 1e24
"""Least and largest number of a cell, in any unit.
Source: a choice: 1e-12 s, and 1e24 FLOP/s, a million exascale machines."""

PROCESSOR_MARKS = ("epyc", "xeon", "ryzen", "core(tm)", "graviton", "neoverse", "cpu")
"""Words in the names of processors; processors with other names need the column threads."""


_Product = tuple[Environment, Measurement]
"""One line of a table."""


def read_gemm_table(text: str) -> tuple[ProbeRecord, ...]:
    """The matrix products of a table."""
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
    """The lines of a table with their numbers."""
    number = 0
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(text.lstrip("\ufeff"), newline="")), start=1):
            yield number, cells
    except csv.Error:
        message = f"the line is no CSV, or a cell of it has more than {csv.field_size_limit()} characters"
        raise refused("", "not_csv", message, "close every quote, and shorten the cell", number + 1) from None


def _time_column(names: list[str]) -> str:
    """The column with the time or rate of a product."""
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
    columns = [name for name in names if name in SECONDS or name in RATES]
    if len(columns) != 1:
        message = f"the header has {len(columns)} columns that tell a time or a rate, and needs one, with its unit"
        fix = f"give one of {', '.join((*SECONDS, *RATES))}"
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
    figure = _positive_number(time_column, cells[time_column], line)
    flop = 2.0 * sizes["rows"] * sizes["columns"] * sizes["inner"] * copies
    seconds = figure * SECONDS[time_column] if time_column in SECONDS else flop / (figure * RATES[time_column])
    if not SECONDS_BOUNDS[0] <= seconds <= SECONDS_BOUNDS[1]:
        message = f"{time_column} makes the product take {seconds:.3g} s, which no device does"
        raise refused(time_column, "out_of_range", message, "check the unit that the column's name says", line)
    low, high = (
        _positive_number(name, cells[name], line) if cells.get(name) else seconds
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
    return _environment(cells, line), measurement


def _environment(cells: Mapping[str, str], line: int) -> Environment:
    threads = _whole_number("threads", cells["threads"], line) if cells.get("threads") else None
    is_processor = threads is not None or any(mark in cells["device"].lower() for mark in PROCESSOR_MARKS)
    return Environment(
        kind="cpu" if is_processor else "cuda",
        device=cells["device"],
        devices=1,
        memory_bytes=_positive_number("memory_bytes", cells["memory_bytes"], line)
        if cells.get("memory_bytes")
        else 0.0,
        threads=threads,
        instructions=_instructions(cells.get("instructions", ""), line),
    )


def _instructions(text: str, line: int) -> tuple[str, ...]:
    named = sorted(set(text.lower().split()))
    if named and not INSTRUCTION_FLOP.keys() & named:
        message = "none of the instructions is one that formulas know"
        fix = f"name them as /proc/cpuinfo does, a blank between two: {', '.join(INSTRUCTION_FLOP)}; or leave it empty"
        raise refused("instructions", "not_a_choice", message, fix, line)
    return tuple(named)


def _records(products: list[_Product]) -> tuple[ProbeRecord, ...]:
    """A record for each device."""
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


def _positive_number(column: str, text: str, line: int) -> float:
    try:
        value = float(text) if len(text) <= MOST_DIGITS else 0.0
    except ValueError:
        value = 0.0
    if not LEAST_NUMBER <= value <= LARGEST_NUMBER:
        message = f"{column} is no number between {LEAST_NUMBER:g} and {LARGEST_NUMBER:g}"
        raise refused(column, "not_a_number", message, "write it with a point", line)
    return value


def _whole_number(column: str, text: str, line: int) -> int:
    is_whole = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    if not is_whole or not 1 <= int(text) <= 1 << 40:
        raise refused(column, "not_a_whole_number", f"{column} is no whole number from 1 on", "write it out", line)
    return int(text)
