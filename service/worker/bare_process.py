"""Memory of a process that computes nothing: `python -m service.worker.bare_process DEVICE`.

The process goes step by step. It prints each step with its own count of bytes, and reads a line before the next
step, so that its parent can query the driver in between.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

RESIDENT = Path("/proc/self/statm")

SIDE = 256
"""Rows and columns of the matrix product: enough for a library's own kernels. Source: a choice."""


def main(words: Sequence[str]) -> None:
    """Go through the steps on a device."""
    (device,) = words
    _report("bare", 0)
    import torch

    if device != "cpu":
        torch.cuda.set_device(device)
    for step in ("open", "compute", "multiply"):
        if step == "compute":  # the first kernel
            torch.ones((1, 1)).to(device).add_(1)
        elif step == "multiply":  # the first matrix product, for which a library is loaded
            square = torch.ones((SIDE, SIDE), device=device)
            square.mm(square)
        elif device != "cpu":  # a context without a kernel: asking for free memory opens one
            torch.cuda.mem_get_info(device)
        if device != "cpu":
            torch.cuda.synchronize(device)
        _report(step, 0 if device == "cpu" else torch.cuda.memory_reserved(device))


def _report(step: str, allocator_bytes: int) -> None:
    counted = {"step": step, "allocator_bytes": allocator_bytes, "resident_bytes": resident_bytes()}
    sys.stdout.write(json.dumps(counted) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def resident_bytes() -> int:
    if not RESIDENT.is_file():
        return 0
    import resource

    return int(RESIDENT.read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main(sys.argv[1:])
