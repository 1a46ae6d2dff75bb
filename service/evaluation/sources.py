"""Conventions of published sources that their tables do not state, one decision a source with its reason.

Files of measurements are read and written here too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.calibration.tables import MOST_BYTES, MeasuredRow, NotExpressible, read_measured_rows
from service.errors import TraincostError

MemoryClass = Literal["allocated", "reserved", "device"]
"""Which peak a figure is: live tensors, the allocator's reserved memory, or the memory in use on the device."""

MeasuredRank = Literal["fullest", "first", "last", "ends"]
"""Rank of a figure: that of the fullest stage, of the first or last stage, or the larger of these two."""

GIB, GB, MIB = float(1 << 30), 1e9, float(1 << 20)


@dataclass(frozen=True, slots=True)
class SourceConvention:
    """Convention of a source for what its rows leave open."""

    memory_class: MemoryClass = "allocated"
    unit_bytes: float = GB
    """Bytes of its G or GB."""
    why: str = "software that logs torch's own counter is the usual case; GB is 1e9 bytes by its definition"
    """Reason for the convention."""


SOURCE_CONVENTIONS: Mapping[str, SourceConvention] = {
    "bloom": SourceConvention(
        "device",
        GB,
        "read off nvidia-smi; GB is 1e9 bytes by its definition, and 80 GB in GiB are more than the device has",
    ),
    "qwen_readme": SourceConvention(
        "device",
        GB,
        "a whole process was watched; GB is 1e9 bytes by its definition, and 81.0 GiB are more than the device has",
    ),
    "internevo": SourceConvention(
        "device", GB, "whole numbers beside the size of the device; GB is 1e9 bytes by its definition"
    ),
    "nanotron": SourceConvention(
        "reserved", GIB, "helpers.py divides by 1024^3; the log line shows what the allocator holds"
    ),
    "torchtune": SourceConvention(
        "allocated", GIB, "its README calls the column peak memory active, torch's counter in GiB"
    ),
    "colossalai": SourceConvention("allocated", GIB, "its benchmark prints torch.cuda.max_memory_allocated"),
    "mbridge_skills": SourceConvention("allocated", GB, "Megatron-Bridge logs torch's allocated peak in 1e9 bytes"),
}
"""Conventions of sources that leave class or unit open."""

CLASSES: Mapping[str, MemoryClass] = {
    "exact bytes": "allocated",
    "torch allocated": "allocated",
    "torch reserved": "reserved",
    "nvidia-smi like": "device",
}

UNSTATED_CLASSES = frozenset({"", "not told", "torch peak, allocated or reserved not told"})
"""Cells that leave the class to the source's convention."""

UNITS = (
    (re.compile(r"\bbytes$(?<!1e9 bytes)"), 1.0),
    (re.compile(r"^GB=1e9"), GB),
    (re.compile(r"^GiB"), GIB),
    (re.compile(r"^MiB"), MIB),
)
"""Bytes of one unit, by the unit's cell."""

MEASURED_RANKS: tuple[tuple[re.Pattern[str], MeasuredRank], ...] = (
    (re.compile(r"^last global rank"), "last"),
    (re.compile(r"^first/last"), "ends"),
    (re.compile(r"^rank 0"), "first"),
)
"""Ranks are numbered tensor first and pipeline last, so the last one belongs to the last stage; every other cell means
the fullest."""


MFU_CONVENTIONS: Mapping[str, Literal["causal", "full"]] = {"korthikanti2022_t5": "full"}
"""FLOP convention of sources that give only MFU, no time and no rate: all pairs of tokens, no recompute (Korthikanti et
al. 2022, arXiv:2205.05198, appendix A)."""

COUNTED_APART: Mapping[str, tuple[str, bool, str]] = {
    "mtnlg": (
        "",
        True,
        "one run at three sizes of its cluster: too few rows to judge the stack that they stand for",
    ),
    "megatron2021_t2": ("3", False, "DeepSpeed's ZeRO-3 of 2021 gathered every parameter alone: bound by latency"),
}
"""Sources whose rows are listed and counted apart: the ZeRO stage that this applies to (any if empty), whether fits may
use them, and the reason."""

SUMMED = "per GPU average"
"""Rank cell of a figure that is the sum over all GPUs."""


def is_apart(row: MeasuredRow) -> bool:
    """Whether a row's step is counted apart."""
    if "power limited" in row.text("gpu"):
        return True
    stage, _, _ = COUNTED_APART.get(row.text("source_key"), ("none", True, ""))
    return stage in ("", row.text("zero_stage"))


def gives_constants(row: MeasuredRow) -> bool:
    """Whether a fit may use a row."""
    return not is_apart(row) or COUNTED_APART.get(row.text("source_key"), ("", False, ""))[1]


def convention_of(row: MeasuredRow) -> SourceConvention:
    """The convention of a row's source."""
    return SOURCE_CONVENTIONS.get(row.text("source_key"), SourceConvention())


def memory_class_of(row: MeasuredRow) -> MemoryClass:
    """Which peak a row's figure is."""
    return CLASSES.get(row.text("mem_class"), convention_of(row).memory_class)


def refuse_unknown_words(row: MeasuredRow) -> None:
    """Refuse a row with an unknown memory class or outcome."""
    if row.text("mem_class") not in {*CLASSES, *UNSTATED_CLASSES}:
        raise NotExpressible("mem_class: not known")
    if row.text("outcome") not in ("", "ok") and not ran_out(row):
        raise NotExpressible("outcome: not known")


def ran_out(row: MeasuredRow) -> bool:
    """Whether a row's job ran out of memory."""
    return row.text("outcome").startswith("OOM")


def measured_peak_bytes(row: MeasuredRow) -> float | None:
    """The peak that a row reports."""
    printed = row.number_of("peak_mem_reported")
    if not printed:
        return None
    unit = row.text("peak_mem_unit")
    if row.text("mem_rank") == SUMMED:
        printed /= row.count("n_gpus")
    if "base unknown" in unit:
        return printed * convention_of(row).unit_bytes
    for pattern, scale in UNITS:
        if pattern.search(unit):
            return printed * scale
    raise NotExpressible("unit: not known")


def measured_static_bytes(row: MeasuredRow) -> float | None:
    """Bytes that stay allocated between steps, if the row reports them."""
    printed = row.number_of("static_mem_gib")
    return printed * GIB if printed else None


def measured_rank_of(row: MeasuredRow) -> MeasuredRank:
    """The rank of a row's figure."""
    cell = row.text("mem_rank")
    return next((rank for pattern, rank in MEASURED_RANKS if pattern.search(cell)), "fullest")


class Unreadable(TraincostError):
    """A file named on the command line cannot be read or written."""


def content_of(name: str) -> bytes:
    """Content of a file."""
    try:
        with Path(name).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Unreadable(f"the table of measurements cannot be read: {_cause(error)}") from None


def read_file(name: str) -> tuple[MeasuredRow, ...]:
    """The measurements of a file."""
    return read_measured_rows(content_of(name))


def refuse_same_file(table: str | Path, rows: str) -> None:
    """Refuse to write rows over the table that they come from."""
    try:
        is_same = Path(rows).is_file() and Path(rows).samefile(table)
    except (OSError, ValueError):
        return
    if is_same:
        message = "the rows would be written over the table that they come from; name another file after --rows"
        raise Unreadable(message)


def write_file(name: str, text: str) -> None:
    """Write a text to a file."""
    try:
        Path(name).write_text(text, encoding="utf-8", newline="")
    except (OSError, ValueError) as error:
        raise Unreadable(f"the rows cannot be written: {_cause(error)}") from None


def _cause(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "its name is none"
