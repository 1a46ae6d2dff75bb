"""What do Slurm's texts mean: a length of time, resources, a moment?"""

import re

from service.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from service.workflows.reconciliation.records import FaultFound

DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2})(?:\.(\d{1,6}))?")
"""Source: Slurm's manual of sacct: [days-]hours:minutes:seconds[.microseconds]; hours may be left out."""

GPU = re.compile(r"gres/gpu(?::([\w.-]{1,80}))?")
"""Name of GPUs among resources, with their model where it is counted apart."""

PARTITION = re.compile(r"\d+g\.\d+gb")
"""What NVIDIA calls slices of a GPU, e.g. a100_3g.20gb."""

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?|\d{9,12}")
"""ISO 8601, or seconds since 1970."""

NEVER = frozenset({"", "Unknown", "None", "N/A", "0"})
"""What stands for a moment that did not come."""

NO_TIME_FORMAT = "unset SLURM_TIME_FORMAT, or set it to standard, and call sacct again"
LOCALE = "call sacct with LC_ALL=C, and do not let a spreadsheet save its output"


def duration_seconds(written: str, field: str) -> float:
    """Seconds of a length of time.

    Args:
        written: such as 1-02:03:04 or 02:03.456
        field: its column

    Returns:
        seconds

    Raises:
        FaultFound: it is none

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


def whole_seconds(written: str, field: str) -> float:
    """Seconds of a length of time that is printed in seconds.

    Args:
        written: such as 3600
        field: its column

    Returns:
        seconds

    Raises:
        FaultFound: it is none
    """
    if not (written.isascii() and written.isdigit() and len(written) <= 12):
        fix = "give ElapsedRaw as sacct prints it; a length of time like 01:00:00 belongs under Elapsed"
        raise FaultFound(field, "this is no whole number of seconds", fix)
    return float(written)


def gpus_of(written: str, field: str) -> tuple[int | None, bool]:
    """GPUs among resources.

    Args:
        written: such as billing=64,cpu=16,gres/gpu:h100=8,gres/gpu=8,mem=180G,node=1
        field: its column

    Returns:
        how many, None where GPUs are not counted, and whether they are slices

    Raises:
        FaultFound: the number of GPUs is none

    >>> gpus_of("cpu=16,gres/gpu:h100=8,gres/gpu=8,mem=180G,node=1", "AllocTRES")
    (8, False)
    >>> gpus_of("cpu=9,gres/gpu:a100_3g.20gb=1,gres/gpu=1", "AllocTRES"), gpus_of("cpu=1,mem=1000M", "AllocTRES")
    ((1, True), (None, False))
    """
    counts: dict[str | None, int] = {}
    for resource in written.split(","):
        name, _, amount = resource.partition("=")
        if (found := GPU.fullmatch(name.strip())) is not None:
            if not (amount.isascii() and amount.isdigit() and len(amount) <= 9):
                fix = "count GPUs without a unit, as sacct does: gres/gpu=8, or gres/gpu:h100=8"
                raise FaultFound(field, "the number of GPUs is none", fix)
            counts[found[1]] = int(amount)
    return counted(counts)


def counted(counts: dict[str | None, int]) -> tuple[int | None, bool]:
    """GPUs of which the models may be counted apart, beside the sum of all or without it.

    Args:
        counts: by model; under None the sum

    Returns:
        how many, None where none are counted, and whether they are slices
    """
    models = [name for name in counts if name is not None]
    is_partition = any(PARTITION.search(name) for name in models)
    if not counts:
        return None, False
    return counts.get(None, sum(counts[name] for name in models)), is_partition


def moment_of(written: str, field: str) -> str:
    """A moment as it is written; empty where it did not come.

    Args:
        written: such as 2026-11-23T07:23:23, or Unknown
        field: its column

    Returns:
        the moment

    Raises:
        FaultFound: it is none
    """
    if written in NEVER:
        return ""
    if MOMENT.fullmatch(written) is None:
        raise FaultFound(field, "this is no moment like 2026-11-23T07:23:23 or 1795418603", NO_TIME_FORMAT)
    return written
