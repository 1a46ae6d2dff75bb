"""Which amounts of memory does a message tell, and how exactly?"""

import re
from collections.abc import Iterator

from service.answers.diagnoses import SaidNumber

AMOUNT = r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]iB|[kKMGT]B|bytes|B)\b"
"""A number with its unit, bounded so that no text takes longer than its length."""

SCALES = {"b": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
"""Bytes of a unit by its first letter: GB too means 2^30 here. Source: torch memory_summary, the kernel's kB."""

MOST_BYTES = 2.0**50
"""An amount from which on no device has it. Source: a message of a virtual GPU that told 2^64 bytes."""

PHRASES: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (name, re.compile(pattern.replace("@", AMOUNT)), words)
    for name, pattern, words in (
        ("requested_bytes", r"[Tt]ried to allocate @", "Tried to allocate #"),
        ("capacity_bytes", r"total capac(?:i)?ty of @", "total capacity of #"),
        ("capacity_bytes", r"@ total capacity", "# total capacity"),
        ("free_bytes", r"of which @ is free", "of which # is free"),
        ("free_bytes", r"already allocated; @ free", "# free"),
        ("allowed_bytes", r"@ allowed;", "# allowed"),
        ("process_bytes", r"this process has @ memory in use", "this process has # memory in use"),
        ("allocated_bytes", r"@ is allocated by PyTorch", "# is allocated by PyTorch"),
        ("allocated_bytes", r"@ already allocated", "# already allocated"),
        ("private_pools_bytes", r"@ allocated in private pools", "# allocated in private pools"),
        ("unallocated_bytes", r"@ is reserved by PyTorch but unallocated", "# is reserved by PyTorch but unallocated"),
        ("unallocated_bytes", r"@ cached\)", "# cached"),
        ("reserved_bytes", r"@ reserved in total by PyTorch", "# reserved in total by PyTorch"),
        ("requested_bytes", r"[Oo]ut of memory (?:while trying to allocate|allocating) @", "trying to allocate #"),
        ("requested_bytes", r"Failed to CUDA (?:calloc|malloc) @", "Failed to CUDA calloc #"),
        ("requested_bytes", r"you tried to allocate @", "you tried to allocate #"),
        ("process_bytes", r"anon-rss:@", "anon-rss:#"),
    )
)
"""Where numbers stand. Source: c10/cuda/CUDACachingAllocator.cpp of torch 1.0 to 2.9 (the same for HIP and XPU), XLA,
NCCL's alloc.h, torch's CPU allocator, Linux mm/oom_kill.c."""

OTHERS = re.compile(rf"Process \d{{1,10}} has {AMOUNT} memory in use")
OTHERS_SAY = "Process # has # memory in use"


def amounts_in(text: str) -> Iterator[SaidNumber]:
    """The amounts of a message, each once.

    Args:
        text: the message, in one line

    Yields:
        the numbers, those that no device has left out
    """
    seen: set[str] = set()
    for name, pattern, words in PHRASES:
        found = None if name in seen else pattern.search(text)
        number = None if found is None else said_number(name, found[1], found[2], words)
        if number is not None:
            seen.add(name)
            yield number
    others = [said_number("", one[1], one[2], "") for one in OTHERS.finditer(text)]
    known = [one for one in others if one is not None]
    if known:
        total, precision = sum(one.bytes for one in known), sum(one.precision_bytes for one in known)
        yield SaidNumber(name="other_processes_bytes", bytes=total, precision_bytes=precision, words=OTHERS_SAY)


def said_number(name: str, digits: str, unit: str, words: str) -> SaidNumber | None:
    """A number of a message.

    Args:
        name: what it is
        digits: as it is written
        unit: KiB, MiB, GiB, bytes and the like
        words: the words around it

    Returns:
        the number; None where no device has so much

    >>> said_number("requested_bytes", "1.50", "GiB", "Tried to allocate #").bytes / 2**30
    1.5
    """
    scale = SCALES[unit[0].lower()]
    amount = float(digits) * scale
    step = scale / 10 ** len(digits.partition(".")[2])
    if amount >= MOST_BYTES:
        return None
    return SaidNumber(name=name, bytes=amount, precision_bytes=step / 2, words=words)
