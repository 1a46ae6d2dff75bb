"""Requests for a diagnosis, and the parser of out-of-memory messages. Answers repeat no text of a message."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any, get_args

from annotated_types import Len

from service.answers.diagnoses import LONGEST_MESSAGE, MessageKind, Said, SaidNumber
from service.errors import Problem, Refused
from service.estimator.memory.memory import Moment
from service.validation.forms import DescribedAs
from service.validation.question_parts import PARTS, QuestionRequest
from service.validation.reading import adapter_of, field_names

AMOUNT = r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]iB|[kKMGT]B|bytes|B)\b"
"""Pattern of a number with its unit; bounded, so that matching is linear in the text."""

SCALES = {"b": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
"""Bytes of a unit by its first letter: GB too means 2^30 here. Source: torch memory_summary, the kernel's kB."""

MOST_BYTES = 2.0**50
"""Amount above the memory of any device. Source: a message of a virtual GPU with 2^64 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Texts of out-of-memory messages."""

    numbers: tuple[tuple[str, str, str], ...]
    """Patterns of numbers: name, pattern, words."""
    kinds: tuple[tuple[MessageKind, re.Pattern[str]], ...]
    """Marker of each kind of message, the most specific first."""
    moments: tuple[tuple[Moment, re.Pattern[str]], ...]
    """Lines of a traceback by moment of a step; the first match counts."""


MESSAGES: Messages = adapter_of(Messages).validate_python(
    tomllib.loads(Path(__file__).with_name("messages.toml").read_text(encoding="utf-8"))
)
PHRASES = tuple((name, re.compile(pattern.replace("@", AMOUNT)), words) for name, pattern, words in MESSAGES.numbers)

LISTED_PROCESS = re.compile(rf"Process \d{{1,10}} has {AMOUNT} memory in use")
PROCESS_WORDS = "Process # has # memory in use"
"""A process by its number. Inside a container torch does not know its own, and lists its own process so too; that is
the smallest one that holds what torch reserved. Source: c10/cuda/driver_api.cpp, NVML's numbers are the host's."""


def amounts_in(text: str) -> Iterator[SaidNumber]:
    """Amounts of a message, each once."""
    seen: dict[str, float] = {}
    for name, pattern, words in PHRASES:
        match = None if name in seen else pattern.search(text)
        number = None if match is None else parse_number(name, match[1], match[2], words)
        if number is not None:
            seen[name] = number.bytes
            yield number
    reserved_bytes = seen.get("allocated_bytes", inf) + seen.get("unallocated_bytes", 0.0)
    yield from _listed_processes(text, inf if "process_bytes" in seen else reserved_bytes)


def _listed_processes(text: str, reserved_bytes: float) -> Iterator[SaidNumber]:
    """Memory of the processes that a message lists: its own (the smallest with `reserved_bytes`), and all others."""
    listed = (parse_number("process_bytes", one[1], one[2], PROCESS_WORDS) for one in LISTED_PROCESS.finditer(text))
    others = sorted((one for one in listed if one is not None), key=lambda one: one.bytes)
    own = next((one for one in others if one.bytes + one.precision_bytes >= reserved_bytes), None)
    if own is not None:
        others.remove(own)
        yield own
    if others:
        total, precision = sum(one.bytes for one in others), sum(one.precision_bytes for one in others)
        yield SaidNumber(name="other_processes_bytes", bytes=total, precision_bytes=precision, words=PROCESS_WORDS)


def parse_number(name: str, digits: str, unit: str, words: str) -> SaidNumber | None:
    """Parse a number of a message.

    >>> parse_number("requested_bytes", "1.50", "GiB", "Tried to allocate #").bytes / 2**30
    1.5
    """
    scale = SCALES[unit[0].lower()]
    amount = float(digits) * scale
    step = scale / 10 ** len(digits.partition(".")[2])
    if amount >= MOST_BYTES:
        return None
    return SaidNumber(name=name, bytes=amount, precision_bytes=step / 2, words=words)


ROWS = {"Allocated memory": "allocated_bytes", "GPU reserved memory": "reserved_bytes"}
"""Rows of the summary to read, by name. Source: torch/cuda/memory.py, memory_summary."""

PEAKS = {"allocated_bytes": "peak_allocated_bytes"}

CELL = re.compile(r"\s{0,20}(\d{1,15}) ([KMGT]?i?B)\s{0,20}")

LONGEST_ROW = 200

STATS = {
    "allocated_bytes.all.current": "allocated_bytes",
    "allocated_bytes.all.peak": "peak_allocated_bytes",
    "reserved_bytes.all.current": "reserved_bytes",
}
"""Keys of memory_stats to read. Source: torch/cuda/memory.py, memory_stats."""


def numbers_of_summary(text: str) -> Iterator[SaidNumber]:
    """Numbers of torch.cuda.memory_summary(), current and peak."""
    for line in text.split("\n"):
        cells = line[:LONGEST_ROW].split("|")
        name = ROWS.get(cells[1].strip()) if len(cells) >= 4 else None
        if name is not None:
            columns = ((name, cells[2], "Cur Usage"), (PEAKS.get(name), cells[3], "Peak Usage"))
            for quantity, cell, column in columns:
                match = None if quantity is None else CELL.fullmatch(cell)
                number = match and parse_number(quantity or "", match[1], match[2], f"{cells[1].strip()} {column} #")
                if number:
                    yield number


def numbers_of_stats(stats: Mapping[str, Any]) -> Iterator[SaidNumber]:
    """Numbers of torch.cuda.memory_stats()."""
    for key, name in STATS.items():
        value = stats.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_BYTES:
            yield SaidNumber(name=name, bytes=float(value), precision_bytes=0.5, words=f"{key} #")


LONGEST_PHRASE = 4_000
"""Characters after a marker in which its numbers occur. Source: a choice; a message has some 700."""

KILLED = re.compile(r"exitcode: ?-9\b|Signal 9 \(SIGKILL\)|(?:^|\n) ?Killed\b")
"""Text of a shell or torchrun for a killed process."""

ESCAPES = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]|\[rank\d{1,6}\]:|[^\S\n]+")

EXAMPLE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 1.25 GiB is free. Including non-PyTorch memory, this process has 77.84 GiB memory in use. Of the "
    "allocated memory 75.02 GiB is allocated by PyTorch, and 1.90 GiB is reserved by PyTorch but unallocated."
)

SUPPORTED_MESSAGES = (
    "messages of torch (CUDA, HIP, XPU), torch.cuda.memory_summary(), cuBLAS, NCCL, XLA, torch on CPUs, Linux's and "
    "Slurm's OOM killer"
)


def read_message(text: str, stats: Mapping[str, Any] | None) -> Said:
    """Parse a message and the statistics of the allocator."""
    if len(text) > LONGEST_MESSAGE:
        message = f"the message has {len(text)} characters; {LONGEST_MESSAGE} are read"
        fix = "send the part that begins with the traceback"
        raise Refused(Problem(field="message", code="too_long", message=message, fix=fix))
    plain = ESCAPES.sub(" ", text)
    flat = " ".join(plain.split())
    match = next(((kind, mark.start()) for kind, pattern in MESSAGES.kinds if (mark := pattern.search(flat))), None)
    if match is None and KILLED.search(plain):
        match = "killed", 0
    window = flat[max(match[1] - 200, 0) : match[1] + LONGEST_PHRASE] if match else ""
    sources = (numbers_of_stats(stats or {}), numbers_of_summary(plain), amounts_in(window))  # later ones override
    numbers = {one.name: one for source in sources for one in source}
    if match is None and not numbers:
        message = "the text is none of the known messages about memory that ran out"
        fix = f"send one of {SUPPORTED_MESSAGES}, e.g. {EXAMPLE}"
        raise Refused(Problem(field="message", code="not_understood", message=message, fix=fix))
    moment = next((moment for moment, pattern in MESSAGES.moments if pattern.search(plain)), None)
    return _amounts("torch_memory_summary" if match is None else match[0], numbers, moment)


def _amounts(kind: MessageKind, numbers: Mapping[str, SaidNumber], moment: Moment | None) -> Said:
    amounts: dict[str, float | None] = {name: numbers[name].bytes if name in numbers else None for name in _AMOUNTS}
    allocated, reserved, unallocated = (amounts[f"{name}_bytes"] for name in ("allocated", "reserved", "unallocated"))
    if reserved is None and allocated is not None and unallocated is not None:
        amounts["reserved_bytes"] = allocated + unallocated
    if unallocated is None and allocated is not None and reserved is not None:
        amounts["unallocated_bytes"] = max(reserved - allocated, 0.0)
    return Said(kind=kind, moment=moment, numbers=tuple(numbers.values()), **amounts)


_AMOUNTS = tuple(
    name for name, kind in Said.__annotations__.items() if name.endswith("_bytes") and type(None) in get_args(kind)
)

Message = Annotated[str, Len(0, LONGEST_MESSAGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseRequest(QuestionRequest):
    """A configuration that ran out of memory, with its message, its statistics, or both."""

    message: Annotated[Any, DescribedAs(Message | None)] = None
    """The message, with its traceback, or torch.cuda.memory_summary()."""
    memory_stats: Annotated[Any, DescribedAs(Mapping[str, float] | None)] = None
    """Result of torch.cuda.memory_stats()."""


OTHER_FIELDS = tuple(name for name in field_names(DiagnoseRequest) if name not in PARTS)


def read_report(body: Mapping[str, Any]) -> Said:
    """The message and the statistics of a request."""
    text, stats = body.get("message"), body.get("memory_stats")
    if text is None and stats is None:
        fix = f'give message, e.g. "{EXAMPLE}", or memory_stats, the result of torch.cuda.memory_stats()'
        raise Refused(Problem(field="message", code="required", message="there is nothing to diagnose", fix=fix))
    if text is not None and not isinstance(text, str):
        raise Refused(Problem(field="message", code="not_text", message="it is not text", fix="send it as a string"))
    if stats is not None and not isinstance(stats, Mapping):
        fix = "send the result of torch.cuda.memory_stats() as JSON"
        raise Refused(Problem(field="memory_stats", code="not_object", message="it is not an object", fix=fix))
    return read_message(text or "", stats)
