"""What does torch's allocator say of itself: memory_summary() as a table, memory_stats() as numbers?"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from service.answers.diagnoses import SaidNumber
from service.workflows.diagnosis.amounts import MOST_BYTES, said_number

ROWS = {"Allocated memory": "allocated_bytes", "GPU reserved memory": "reserved_bytes"}
"""Rows of the summary that are read, by their names. Source: torch/cuda/memory.py, memory_summary."""

PEAKS = {"allocated_bytes": "peak_allocated_bytes"}

CELL = re.compile(r"\s{0,20}(\d{1,15}) ([KMGT]?i?B)\s{0,20}")

LONGEST_ROW = 200

STATS = {
    "allocated_bytes.all.current": "allocated_bytes",
    "allocated_bytes.all.peak": "peak_allocated_bytes",
    "reserved_bytes.all.current": "reserved_bytes",
}
"""Keys of memory_stats that are read. Source: torch/cuda/memory.py, memory_stats."""


def numbers_of_summary(text: str) -> Iterator[SaidNumber]:
    """Numbers of torch.cuda.memory_summary(), as it is now and at its peak.

    Args:
        text: what holds the table, among other lines

    Yields:
        the numbers
    """
    for line in text.split("\n"):
        cells = line[:LONGEST_ROW].split("|")
        name = ROWS.get(cells[1].strip()) if len(cells) >= 4 else None
        if name is not None:
            columns = ((name, cells[2], "Cur Usage"), (PEAKS.get(name), cells[3], "Peak Usage"))
            for quantity, cell, column in columns:
                found = None if quantity is None else CELL.fullmatch(cell)
                number = found and said_number(quantity or "", found[1], found[2], f"{cells[1].strip()} {column} #")
                if number:
                    yield number


def numbers_of_stats(stats: Mapping[str, Any]) -> Iterator[SaidNumber]:
    """Numbers of torch.cuda.memory_stats().

    Args:
        stats: the statistics, flat as torch gives them

    Yields:
        the numbers
    """
    for key, name in STATS.items():
        value = stats.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_BYTES:
            yield SaidNumber(name=name, bytes=float(value), precision_bytes=0.5, words=f"{key} #")
