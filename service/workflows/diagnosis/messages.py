"""What does a message say that tells that memory ran out? Read in one pass, and never repeated."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from service.answers.diagnoses import LONGEST_MESSAGE, MessageKind, Said, SaidNumber
from service.errors import Problem, Refused
from service.estimator.first_step import Moment
from service.workflows.diagnosis.amounts import amounts_in
from service.workflows.diagnosis.memory_tables import numbers_of_stats, numbers_of_summary

LONGEST_PHRASE = 4_000
"""Characters after the words that tell it in which its numbers stand. Source: a choice; a message has some 700."""

MARKS: tuple[tuple[MessageKind, re.Pattern[str]], ...] = (
    ("torch_allocator", re.compile(r"(?:CUDA|HIP|XPU) out of memory\. ?Tried to allocate|\(GPU \d{1,3}; \d")),
    ("nccl", re.compile(r"NCCL WARN (?:Cuda failure[^\n]{0,20} 'out of memory'|Failed to CUDA \w{1,12})")),
    ("cublas", re.compile(r"(?:CUBLAS|CUDNN|HIPBLAS|ROCBLAS)_STATUS_ALLOC_FAILED")),
    ("xla", re.compile(r"(?:RESOURCE_EXHAUSTED|Resource exhausted): ?Out of memory", re.IGNORECASE)),
    ("cpu_allocator", re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory")),
    ("oom_killer", re.compile(r"oom[-_]kill|OOMKilled|OOM Killed|Out of memory: Killed process|oom_reaper")),
    ("cuda_error", re.compile(
        r"(?:CUDA|HIP)(?: driver)? error: ?out of memory|cuda runtime error \(2\) ?: out of memory"
        r"|(?:cudaErrorMemoryAllocation|hipErrorOutOfMemory)")),
    ("torch_memory_summary", re.compile(r"CUDA memory summary, device ID")),
)  # fmt: skip
"""Words by which each kind is known, the ones that tell most first."""

KILLED = re.compile(r"exitcode: ?-9\b|Signal 9 \(SIGKILL\)|(?:^|\n) ?Killed\b")
"""What a shell or torchrun says of a process that was killed, by whomever."""

PLACES: tuple[tuple[Moment, re.Pattern[str]], ...] = (
    ("optimizer", re.compile(r"optimizer\.step\(|_multi_tensor_adam|torch/optim/|initialize_optimizer_states|exp_avg")),
    ("backward", re.compile(r"\.backward\(|run_backward|_engine_run_backward")),
    ("loss", re.compile(r"cross_entropy|loss_function\(|lm_head\(|logits\.float\(|log_softmax")),
    ("forward", re.compile(r"in forward\b|\.forward\(|_call_impl")),
)  # fmt: skip
"""Lines of a traceback by the moment of a step that they belong to; the first kind that is found counts."""

ESCAPES = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]|\[rank\d{1,6}\]:|[^\S\n]+")

EXAMPLE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 1.25 GiB is free. Including non-PyTorch memory, this process has 77.84 GiB memory in use. Of the "
    "allocated memory 75.02 GiB is allocated by PyTorch, and 1.90 GiB is reserved by PyTorch but unallocated."
)

UNDERSTOOD = (
    "messages of torch (CUDA, HIP, XPU), torch.cuda.memory_summary(), cuBLAS, NCCL, XLA, torch on CPUs, Linux's and "
    "Slurm's OOM killer"
)


def read_message(text: str, stats: Mapping[str, Any] | None) -> Said:
    """What a message says, and the statistics of the allocator beside it.

    Args:
        text: the message, with its traceback where there is one; empty where statistics alone are given
        stats: what torch.cuda.memory_stats() gave; None where it is not given

    Returns:
        what was said

    Raises:
        Refused: it is too long, or it does not tell that memory ran out
    """
    if len(text) > LONGEST_MESSAGE:
        message = f"the message has {len(text)} characters; {LONGEST_MESSAGE} are read"
        raise Refused(_problem("too_long", message, "send what begins with the traceback"))
    plain = ESCAPES.sub(" ", text)
    flat = " ".join(plain.split())
    found = next(((kind, mark.start()) for kind, pattern in MARKS if (mark := pattern.search(flat))), None)
    if found is None and KILLED.search(plain):
        found = "killed", 0
    window = flat[max(found[1] - 200, 0) : found[1] + LONGEST_PHRASE] if found else ""
    numbers = dict(_merged(plain, window, stats or {}))
    if found is None and not numbers:
        message = "it does not tell that memory ran out in words that are known here"
        raise Refused(_problem("not_understood", message, f"send one of {UNDERSTOOD}, e.g. {EXAMPLE}"))
    return _said("torch_memory_summary" if found is None else found[0], numbers, _moment(plain))


def _merged(text: str, window: str, stats: Mapping[str, Any]) -> Iterator[tuple[str, SaidNumber]]:
    """Numbers by name: those of the statistics, over them those of a table, over them those of the message itself."""
    sources: tuple[Iterable[SaidNumber], ...] = (numbers_of_stats(stats), numbers_of_summary(text), amounts_in(window))
    for numbers in sources:
        yield from ((one.name, one) for one in numbers)


def _said(kind: MessageKind, numbers: Mapping[str, SaidNumber], moment: Moment | None) -> Said:
    told: dict[str, float | None] = {name: numbers[name].bytes if name in numbers else None for name in _AMOUNTS}
    allocated, reserved, spare = told["allocated_bytes"], told["reserved_bytes"], told["unallocated_bytes"]
    if reserved is None and allocated is not None and spare is not None:
        told["reserved_bytes"] = allocated + spare
    if spare is None and allocated is not None and reserved is not None:
        told["unallocated_bytes"] = max(reserved - allocated, 0.0)
    return Said(kind=kind, moment=moment, numbers=tuple(numbers.values()), **told)


_AMOUNTS = tuple(
    name for name, kind in Said.__annotations__.items() if name.endswith("_bytes") and type(None) in get_args(kind)
)
"""Amounts that a message may tell."""


def _moment(text: str) -> Moment | None:
    return next((moment for moment, pattern in PLACES if pattern.search(text)), None)


def _problem(code: str, message: str, fix: str) -> Problem:
    return Problem(field="message", code=code, message=message, fix=fix)
