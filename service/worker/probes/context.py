"""Bytes of a process before it computes anything: a bare context, the first kernels, communicators."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.worker.bare_process import resident_bytes
from service.worker.probing import CannotRun, ProbeContext, ProbeResult, measurement, process_group

PROCESSES = 2
"""Repeats, one process each. Source: a choice."""

GAINED = {"bare_context": ("open", "bare"), "context": ("compute", "bare"), "matrix_product": ("multiply", "compute")}
"""Reported differences: bytes after one step beyond those after another. `context` has the first kernel in it."""

COMMUNICATOR_BYTES = 2**26
"""Size of the sum that makes a communicator allocate all of its buffers. Source: a choice."""


def run(parameters: Mapping[str, Any], context: ProbeContext) -> ProbeResult:  # noqa: ARG001 - there is nothing to choose
    """Count bytes of processes that compute next to nothing."""
    counts: list[dict[str, float]] = []
    longest = 0.0
    while len(counts) < PROCESSES and (not counts or context.left_seconds() > longest):
        begun = time.monotonic()
        counts.append(dict(_steps_bytes(context.device)))
        longest = max(longest, time.monotonic() - begun)
        context.report(len(counts) / PROCESSES, f"{len(counts)} of {PROCESSES} processes")
    measurements = [
        measurement(name, {}, "bytes", [count[after] - count[before] for count in counts])
        for name, (after, before) in GAINED.items()
    ]
    if context.ranks > 1:
        import torch

        part = torch.ones(COMMUNICATOR_BYTES // 4, device=context.device)
        part.add_(1)
        before = _used_bytes(context.device)
        with process_group(context) as group:
            group.distributed.all_reduce(part)
            float(part[0])
            gained = group.largest(float(_used_bytes(context.device) - before))  # on the rank with the most
        measurements.append(measurement("communicator", {"ranks": context.ranks}, "bytes", gained))
    counted = "resident memory of a process" if context.device == "cpu" else "memory of the device, by its driver"
    return ProbeResult(measurements=tuple(measurements), summary={"counted": counted})


def _steps_bytes(device: str) -> Iterator[tuple[str, float]]:
    used_before = _used_bytes(device)
    words: Sequence[str] = (sys.executable, "-m", "service.worker.bare_process", device)
    with subprocess.Popen(  # noqa: S603 - the words are this program's own
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise CannotRun("this system starts no process with pipes")
        for line in process.stdout:
            report = json.loads(line)
            used = report["resident_bytes"] if device == "cpu" else _used_bytes(device) - used_before
            yield report["step"], float(used - report["allocator_bytes"])
            process.stdin.write("\n")
            process.stdin.flush()
    if process.returncode:
        raise CannotRun(f"a process that only opens {device} ended with code {process.returncode}; the log says why")


def _used_bytes(device: str) -> int:
    """Memory of a GPU in use by all processes; of this process on a processor."""
    if device == "cpu":
        return resident_bytes()
    import torch

    free, whole = torch.cuda.mem_get_info(device)
    return int(whole) - int(free)
