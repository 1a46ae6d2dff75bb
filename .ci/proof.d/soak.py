"""An hour of mixed load on one service: its memory and that of its processes, its answers and its open files."""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import linear_regression, median, quantiles

from tests.load import Found, keep_asking, open_files, processor_seconds, resident_bytes, serving
from tests.mixed import KINDS, requests

MOST_GROWTH_FRACTION = 0.05
"""Memory at the end beside that after the first sixth; the processes that the service starts are part of both."""
MOST_P99_RATIO = 1.2
MOST_FILES = 3
"""Files more at the end than after the first sixth: connections to the database come and go."""
CLIENTS = 8
LOOK_SECONDS = 1.0


class Looks:
    """What a process has, looked at again and again on a thread."""

    def __init__(self, process: int) -> None:
        self.rows: list[tuple[float, int, int]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(process,))
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self, process: int) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            held = sum(map(_held_bytes, family(process)))
            self.rows.append((time.monotonic(), held, open_files(process)))


def family(process: int) -> list[int]:
    """A process and all that it started."""
    with suppress(OSError):
        started = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
        return [process, *(one for child in started for one in family(int(child)))]
    return [process]


def _held_bytes(process: int) -> int:
    """Memory of a process; none of one that has just ended."""
    with suppress(OSError, ValueError):
        return resident_bytes(process)
    return 0


def p99(found: Found, begin: float, end: float) -> float:
    """p99 of what was sent in a while [second]."""
    seconds = [took for sent, took in found.seconds if begin <= sent < end]
    return quantiles(seconds, n=100)[-1]


def judged(found: Found, rows: Sequence[tuple[float, int, int]], started: float, seconds: float) -> list[str]:
    """Print what was found; what is not as it should be."""
    window = seconds / 6
    later = [row for row in rows if row[0] >= started + window]
    slope, _ = linear_regression([row[0] for row in later], [row[1] for row in later])
    first, last = p99(found, started, started + window), p99(found, started + seconds - window, started + seconds)
    edge = max(1, len(later) // 10)
    files = [median(row[2] for row in part) for part in (later[:edge], later[-edge:])]
    memory = [median(row[1] for row in part) for part in (later[:edge], later[-edge:])]
    print(
        f"{len(found.seconds)} requests of {len(KINDS)} kinds by {CLIENTS} clients in {seconds:.0f} s, "
        f"{sum(found.faults.values())} faults {dict(found.faults) or ''}; memory {memory[0] / 1e6:.1f} MB after "
        f"{window:.0f} s, {memory[1] / 1e6:.1f} MB at the end "
        f"({memory[1] / memory[0] - 1:+.1%}), slope {600 * slope / 1e6:+.2f} MB per 10 min; "
        f"p99 {1e3 * first:.0f} ms in the first {window:.0f} s, {1e3 * last:.0f} ms in the last; "
        f"files {files[0]:.0f}, then {files[1]:.0f}; "
        f"load of the machine {os.getloadavg()[1]:.2f} on {os.cpu_count()} cores"
    )
    faults = ["requests failed"] if found.faults else []
    faults += ["memory grows"] if memory[1] > (1 + MOST_GROWTH_FRACTION) * memory[0] else []
    faults += ["answers slow down"] if last > MOST_P99_RATIO * first else []
    return faults + (["files stay open"] if files[1] > files[0] + MOST_FILES else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--pause", type=float, default=0.1, help="of a client, between two requests [second]")
    given = parser.parse_args()
    asked = requests()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as replica:
        process = replica.process.pid
        looks, before, started = Looks(process), processor_seconds(process), time.monotonic()
        found = asyncio.run(
            keep_asking(replica.address, CLIENTS, given.seconds, lambda: next(asked), pause_seconds=given.pause)
        )
        share = (processor_seconds(process) - before) / given.seconds
        looks.end()
    print(f"the process was busy for {100 * share:.0f} % of the time")
    faults = judged(found, looks.rows, started, given.seconds)
    if faults:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
