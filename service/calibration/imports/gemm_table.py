"""Which matrix products does a table hold? CSV with one product a line; how long it took, or its rate.

Columns, in any order; those in brackets may be left out:
device, dtype, rows, columns, inner, one of seconds | milliseconds | microseconds | flop_per_s | tflop_per_s,
[operation], [copies], [repeats], [low_seconds], [high_seconds], [memory_bytes], [threads], [instructions].
The result has rows x columns numbers, each of which sums inner products. Instructions are those of a processor, as
/proc/cpuinfo names them: they tell its peak.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass

from service.calibration.imports.refusals import refuse_empty, refused
from service.calibration.predicted import format_named
from service.calibration.processors import INSTRUCTION_FLOP
from service.calibration.records import Environment, Measurement, ProbeRecord

SECONDS: Mapping[str, float] = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}
"""Columns that tell a time, with their unit in seconds."""
RATES: Mapping[str, float] = {"flop_per_s": 1.0, "tflop_per_s": 1e12}
"""Columns that tell a rate, with their unit in FLOP/s."""
REQUIRED = ("device", "dtype", "rows", "columns", "inner")
OPTIONAL = ("operation", "copies", "repeats", "low_seconds", "high_seconds", "memory_bytes", "threads", "instructions")
COLUMNS = (*REQUIRED, *SECONDS, *RATES, *OPTIONAL)
MOST_LINES = 100_000
"""Products of one table. Source: a choice."""

PROCESSOR_MARKS = ("epyc", "xeon", "ryzen", "core(tm)", "graviton", "neoverse", "cpu")
"""Words in the names of processors; a table tells threads for any other."""


@dataclass(frozen=True, slots=True)
class _Product:
    """One line of a table."""

    environment: Environment
    measurement: Measurement


def read_gemm_table(text: str) -> tuple[ProbeRecord, ...]:
    """The matrix products that a table holds.

    Args:
        text: CSV in UTF-8

    Returns:
        one record of the probe `gemm` for each device

    Raises:
        Refused: a column is unknown, missing or there twice, its unit is, or a cell cannot be read; with its line
    """
    refuse_empty(text, "matrix products")
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    names = [name.strip().lower() for name in next(lines)]
    timed = _timed(names)
    products = []
    for number, cells in enumerate(lines, start=2):
        if any(cell.strip() for cell in cells):
            if len(cells) != len(names):
                message = f"the line has {len(cells)} cells, the header {len(names)}"
                raise refused("", "ragged", message, "give each line one cell for each column", number)
            products.append(_product(dict(zip(names, map(str.strip, cells), strict=True)), timed, number))
        if len(products) > MOST_LINES:
            raise refused("", "too_long", f"a table holds at most {MOST_LINES} products", "send it in parts", number)
    if not products:
        raise refused("", "empty", "below the header stands no line", "check what wrote the table, and send it again")
    return _records(products)


def _timed(names: list[str]) -> str:
    """The column that tells how long a product took."""
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
    told = [name for name in names if name in SECONDS or name in RATES]
    if len(told) != 1:
        message = f"the header has {len(told)} columns that tell a time or a rate, and needs one, with its unit"
        fix = f"give one of {', '.join((*SECONDS, *RATES))}"
        raise refused("seconds", "unknown_unit", message, fix, 1)
    return told[0]


def _product(cells: Mapping[str, str], timed: str, line: int) -> _Product:
    number_format = format_named(cells["dtype"])
    if number_format is None:
        message = "dtype is no number format that formulas know"
        raise refused("dtype", "not_a_choice", message, "use fp32, fp16, bf16, fp8, fp4 or int8", line)
    if not cells["device"]:
        raise refused("device", "required", "device is empty", "name the device as its driver does", line)
    sides = {name: _whole(name, cells[name], line) for name in ("rows", "columns", "inner")}
    copies = _whole("copies", cells.get("copies") or "1", line)
    told = _positive(timed, cells[timed], line)
    flop = 2.0 * sides["rows"] * sides["columns"] * sides["inner"] * copies
    seconds = told * SECONDS[timed] if timed in SECONDS else flop / (told * RATES[timed])
    low, high = (
        _positive(name, cells[name], line) if cells.get(name) else seconds for name in ("low_seconds", "high_seconds")
    )
    if not low <= seconds <= high:
        message = "the time is not between low_seconds and high_seconds"
        raise refused("low_seconds", "contradiction", message, "give all three in seconds", line)
    measurement = Measurement(
        operation=cells.get("operation") or "forward",
        shape={**sides, "dtype": number_format, "copies": copies},
        quantity="seconds",
        value=seconds,
        low=low,
        high=high,
        repeats=_whole("repeats", cells.get("repeats") or "1", line),
    )
    return _Product(_environment(cells, line), measurement)


def _environment(cells: Mapping[str, str], line: int) -> Environment:
    threads = _whole("threads", cells["threads"], line) if cells.get("threads") else None
    is_processor = threads is not None or any(mark in cells["device"].lower() for mark in PROCESSOR_MARKS)
    return Environment(
        kind="cpu" if is_processor else "cuda",
        device=cells["device"],
        devices=1,
        memory_bytes=_positive("memory_bytes", cells["memory_bytes"], line) if cells.get("memory_bytes") else 0.0,
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
    own: dict[Environment, list[Measurement]] = {}
    for one in products:
        own.setdefault(one.environment, []).append(one.measurement)
    return tuple(
        ProbeRecord(probe="gemm", status="succeeded", environment=environment, measurements=tuple(measurements))
        for environment, measurements in own.items()
    )


def _positive(column: str, text: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise refused(column, "not_a_number", f"{column} is no number above zero", "write it with a point", line)
    return value


def _whole(column: str, text: str, line: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1 << 40:
        raise refused(column, "not_a_whole_number", f"{column} is no whole number from 1 on", "write it out", line)
    return int(text)
