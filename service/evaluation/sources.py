"""What does a source not say of its figures? Decided once for each, with the reason; nothing is decided row by row."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.calibration.tables import MOST_BYTES, MeasuredRow, NotExpressible, read_measured_rows
from service.errors import TraincostError

MemoryClass = Literal["allocated", "reserved", "device"]
"""Which of the three peaks a figure is: live tensors, what the allocator holds, or what the device shows."""

Place = Literal["fullest", "first", "last", "ends"]
"""Whose figure it is: the fullest rank's, that of a rank of the first or the last stage, or the larger of both."""

GIB, GB, MIB = float(1 << 30), 1e9, float(1 << 20)


@dataclass(frozen=True, slots=True)
class Reading:
    """How the figures of a source are read where it does not say."""

    memory_class: MemoryClass = "allocated"
    """Which peak it is."""
    unit_bytes: float = GB
    """Bytes of its G or GB."""
    why: str = "software that logs torch's own counter is the usual case; GB is 1e9 bytes by its definition"
    """Why this is believed."""


UNSAID: Mapping[str, Reading] = {
    "bloom": Reading(
        "device",
        GB,
        "read off nvidia-smi; GB is 1e9 bytes by its definition, and 80 GB in GiB are more than the device has",
    ),
    "qwen_readme": Reading(
        "device",
        GB,
        "a whole process was watched; GB is 1e9 bytes by its definition, and 81.0 GiB are more than the device has",
    ),
    "internevo": Reading(
        "device", GB, "whole numbers beside the size of the device; GB is 1e9 bytes by its definition"
    ),
    "nanotron": Reading("reserved", GIB, "helpers.py divides by 1024^3; the log line shows what the allocator holds"),
    "torchtune": Reading("allocated", GIB, "its README calls the column peak memory active, torch's counter in GiB"),
    "colossalai": Reading("allocated", GIB, "its benchmark prints torch.cuda.max_memory_allocated"),
    "mbridge_skills": Reading("allocated", GB, "Megatron-Bridge logs torch's allocated peak in 1e9 bytes"),
}
"""The decision for each source that leaves class or unit open."""

CLASSES: Mapping[str, MemoryClass] = {
    "exact bytes": "allocated",
    "torch allocated": "allocated",
    "torch reserved": "reserved",
    "nvidia-smi like": "device",
}

UNSAID_CLASSES = frozenset({"", "not told", "torch peak, allocated or reserved not told"})
"""Texts that leave the class to what is decided for the source."""

UNITS = (
    (re.compile(r"\bbytes$(?<!1e9 bytes)"), 1.0),
    (re.compile(r"^GB=1e9"), GB),
    (re.compile(r"^GiB"), GIB),
    (re.compile(r"^MiB"), MIB),
)
"""Bytes of one unit, by what the unit's cell says."""

PLACES: tuple[tuple[re.Pattern[str], Place], ...] = (
    (re.compile(r"^last global rank"), "last"),
    (re.compile(r"^first/last"), "ends"),
    (re.compile(r"^rank 0"), "first"),
)
"""Ranks are numbered tensor first and pipeline last, so the last one is of the last stage; all else is the fullest."""


MFU_CONVENTIONS: Mapping[str, Literal["causal", "full"]] = {"korthikanti2022_t5": "full"}
"""Whose FLOP a source divides by where it gives no time and no rate, only MFU: all pairs of tokens, no recompute
(Korthikanti et al. 2022, arXiv:2205.05198, appendix A)."""

COUNTED_APART: Mapping[str, tuple[str, bool, str]] = {
    "mtnlg": (
        "",
        True,
        "one run at three sizes of its cluster: too few rows to judge the stack that they stand for",
    ),
    "megatron2021_t2": ("3", False, "DeepSpeed's ZeRO-3 of 2021 gathered every parameter alone: bound by latency"),
}
"""Sources whose rows are printed beside the others and counted apart, at the ZeRO stage named (at any where it is
empty), whether a fit may learn from them, and why."""

SUMMED = "per GPU average"
"""Rank of a figure that is printed as the sum over all GPUs."""


def is_apart(row: MeasuredRow) -> bool:
    """Whether a row's step is counted apart."""
    if "power limited" in row.text("gpu"):
        return True
    stage, _, _ = COUNTED_APART.get(row.text("source_key"), ("none", True, ""))
    return stage in ("", row.text("zero_stage"))


def gives_constants(row: MeasuredRow) -> bool:
    """Whether a fit may learn from a row."""
    return not is_apart(row) or COUNTED_APART.get(row.text("source_key"), ("", False, ""))[1]


def reading_of(row: MeasuredRow) -> Reading:
    """How a row's source is read where it does not say."""
    return UNSAID.get(row.text("source_key"), Reading())


def memory_class_of(row: MeasuredRow) -> MemoryClass:
    """Which peak a row's figure is."""
    return CLASSES.get(row.text("mem_class"), reading_of(row).memory_class)


def refuse_unknown_words(row: MeasuredRow) -> None:
    """Refuse a row whose class or outcome is a text that nobody has decided on."""
    if row.text("mem_class") not in {*CLASSES, *UNSAID_CLASSES}:
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
        return printed * reading_of(row).unit_bytes
    for pattern, scale in UNITS:
        if pattern.search(unit):
            return printed * scale
    raise NotExpressible("unit: not known")


def measured_static_bytes(row: MeasuredRow) -> float | None:
    """What stays allocated between steps, where a row reports it."""
    printed = row.number_of("static_mem_gib")
    return printed * GIB if printed else None


def place_of(row: MeasuredRow) -> Place:
    """Whose figure a row reports."""
    said = row.text("mem_rank")
    return next((place for pattern, place in PLACES if pattern.search(said)), "fullest")


class Unreadable(TraincostError):
    """A file that was named cannot be read, or not be written."""


def content_of(name: str) -> bytes:
    """What a file holds."""
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
