"""An hour of mixed load on one service: memory of all its processes, processor time of an answer, open files."""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median, quantiles

from tests.load import Found, keep_asking, open_files, processor_seconds, resident_bytes, serving
from tests.mixed import requests
from tests.sequences import Sequences

MOST_GROWTH_FRACTION = 0.05
"""Memory at the end beside that after the first sixth; the processes that the service starts are part of both."""
MOST_COST_RATIO = 1.2
"""Processor time of a request in the last sixth beside that in the second."""
MOST_FILES = 3
"""Files more at the end than after the first sixth: connections to the database come and go."""
CLIENTS = 4
SAMPLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes of a service have at a moment."""

    at: float
    """When, on the monotonic clock [second]."""
    service_bytes: int
    """Memory of the process that answers."""
    other_bytes: int
    """Memory of the processes that it started."""
    others: int
    files: int
    processor_seconds: float

    @property
    def held_bytes(self) -> int:
        """Memory of all processes."""
        return self.service_bytes + self.other_bytes


class Samples:
    """Samples of a process and all that it started, taken again and again on a thread."""

    def __init__(self, process: int) -> None:
        self.rows: list[Sample] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._take, args=(process,))
        self._thread.start()

    def end(self) -> None:
        """Take no more."""
        self._ended.set()
        self._thread.join()

    def _take(self, process: int) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            first, *others = family(process)
            held = [held_bytes(one) for one in others]
            seconds = sum(spent_seconds(one) for one in (first, *others))
            self.rows.append(
                Sample(time.monotonic(), held_bytes(first), sum(held), len(others), open_files(process), seconds)
            )


def family(process: int) -> list[int]:
    """A process and all that it started."""
    with suppress(OSError):
        started = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
        return [process, *(one for child in started for one in family(int(child)))]
    return [process]


def held_bytes(process: int) -> int:
    """Memory of a process; none of one that has just ended."""
    with suppress(OSError, ValueError):
        return resident_bytes(process)
    return 0


def spent_seconds(process: int) -> float:
    """Processor time of a process and its ended children; none of one that has just ended."""
    with suppress(OSError):
        return processor_seconds(process, with_ended_children=True)
    return 0.0


def p99(found: Found, begin: float, end: float) -> float:
    """p99 of what was sent in a while [second]."""
    seconds = [took for sent, took in found.seconds if begin <= sent < end]
    return quantiles(seconds, n=100)[-1]


def cost(found: Found, rows: Sequence[Sample], begin: float, end: float) -> float:
    """Processor time of the service for one request of the clients in a while [second]."""
    within = [row for row in rows if begin <= row.at < end]
    sent = sum(within[0].at <= at < within[-1].at for at, _ in found.seconds)
    return (within[-1].processor_seconds - within[0].processor_seconds) / sent


def print_statuses(statuses: Counter[tuple[str, int]]) -> None:
    """Print how often each kind of request had each status."""
    for (kind, status), times in sorted(statuses.items()):
        print(f"  {times:>7} x {status} {kind}")


def print_minutes(rows: Sequence[Sample], started: float) -> None:
    """Print the memory of each minute [MB]."""
    print("minute  service  processes of it  sum [MB, medians]  files")
    for minute in range(int((rows[-1].at - started) // 60) + 1):
        within = [row for row in rows if started + 60 * minute <= row.at < started + 60 * (minute + 1)]
        if within:
            own, others, both = (
                median(figures) / 1e6
                for figures in zip(
                    *((one.service_bytes, one.other_bytes, one.held_bytes) for one in within), strict=True
                )
            )
            files = median(one.files for one in within)
            print(f"{minute:>6}  {own:>7.1f}  {within[-1].others} with {others:>7.1f}  {both:>7.1f}  {files:>5.0f}")


def judged(found: Found, rows: Sequence[Sample], started: float, seconds: float) -> list[str]:
    """Print what was found; what is not as it should be."""
    window = seconds / 6
    later = [row for row in rows if row.at >= started + window]
    slope, _ = linear_regression([row.at for row in later], [row.held_bytes for row in later])
    ends = ((started + window, started + 2 * window), (started + seconds - window, started + seconds))
    first, last = (p99(found, *end) for end in ends)
    early, late = (cost(found, rows, *end) for end in ends)
    edge = max(1, len(later) // 10)
    parts = (later[:edge], later[-edge:])
    files, memory = ([median(read) for read in reads] for reads in (
        [[row.files for row in part] for part in parts], [[row.held_bytes for row in part] for part in parts],
    ))  # fmt: skip
    print(
        f"{found.statuses.total()} requests of {len({kind for kind, _ in found.statuses})} kinds in {seconds:.0f} s, "
        f"{found.faults.total()} faults {dict(found.faults) or ''}; memory {memory[0] / 1e6:.1f} MB after "
        f"{window:.0f} s, {memory[1] / 1e6:.1f} MB at the end "
        f"({memory[1] / memory[0] - 1:+.1%}), slope {600 * slope / 1e6:+.2f} MB per 10 min; "
        f"processor time of a request {1e3 * early:.1f} ms in the second {window:.0f} s, {1e3 * late:.1f} ms in the "
        f"last; p99 {1e3 * first:.0f} ms, then {1e3 * last:.0f} ms; files {files[0]:.0f}, then {files[1]:.0f}; "
        f"load of the machine {os.getloadavg()[1]:.2f} on {os.cpu_count()} cores"
    )
    faults = ["requests failed"] if found.faults else []
    faults += ["memory grows"] if memory[1] > (1 + MOST_GROWTH_FRACTION) * memory[0] else []
    faults += ["answers cost more"] if late > MOST_COST_RATIO * early else []
    return faults + (["files stay open"] if files[1] > files[0] + MOST_FILES else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--pause", type=float, default=0.15, help="of a client, between two requests [second]")
    parser.add_argument("--sequence-pause", type=float, default=5.0, help="between two sequences [second]")
    given = parser.parse_args()
    asked = requests()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as replica:
        process = replica.process.pid
        samples, started = Samples(process), time.monotonic()
        with Sequences(replica.address, given.sequence_pause) as sequences:
            found = asyncio.run(
                keep_asking(replica.address, CLIENTS, given.seconds, lambda: next(asked), pause_seconds=given.pause)
            )
        samples.end()
    found.statuses += sequences.statuses
    found.faults += sequences.faults
    share = (samples.rows[-1].processor_seconds - samples.rows[0].processor_seconds) / given.seconds
    print_minutes(samples.rows, started)
    print_statuses(found.statuses)
    print(f"the processes of the service were busy for {100 * share:.0f} % of the time")
    faults = judged(found, samples.rows, started, given.seconds)
    if faults:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
