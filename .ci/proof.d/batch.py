"""Time of 100 different questions in one request over HTTP, against the same questions answered in process."""

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from check import questions

from service.answers.checks import BatchKind
from service.catalogue import Catalogue, shipped_catalogue
from service.client import Client, Problem
from service.features.batch.batch import ANSWERERS
from tests.live import serving

TOGETHER = 100
MOST_RATIO = 1.3

Asked = Sequence[tuple[BatchKind, dict[str, Any]]]


def batches() -> list[Asked]:
    """Questions of all kinds, no two alike, none refused; a check waits for no alternatives."""
    asked: list[tuple[BatchKind, dict[str, Any]]] = []
    for kind, question in zip(cycle(ANSWERERS), questions(), strict=False):
        limits = question.pop("limits")
        asked.append((kind, {**question, "limits": limits, "deadline_seconds": 0} if kind == "check" else question))
    return [asked[start : start + TOGETHER] for start in range(0, len(asked), TOGETHER)]


def children_seconds() -> float:
    """Processor time of the processes that this one started, all of their threads."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    spent = [path for child in children for path in Path(f"/proc/{child}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in spent) / 1e9


def in_process_seconds(asked: Asked, catalogue: Catalogue) -> float:
    """Processor time of the answers alone, one after the other."""
    started = time.process_time()
    for kind, question in asked:
        ANSWERERS[kind](question, catalogue, lambda _: None)
    return time.process_time() - started


def over_http_seconds(asked: Asked, client: Client) -> tuple[float, float]:
    """Processor time that the service spends on them in one request, and time until the answers are read."""
    before, started = children_seconds(), time.perf_counter()
    answers = list(client.batch(asked))
    spent, waited = children_seconds() - before, time.perf_counter() - started
    refused = [answer for answer in answers if isinstance(answer, Problem)]
    if refused or len(answers) != len(asked):
        sys.exit(f"{len(answers)} answers to {len(asked)} questions; refused: {refused[:1]}")
    return spent, waited


def main() -> None:
    catalogue, (first, *others) = shipped_catalogue(), batches()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as address,
        Client(f"http://{address}") as client,
    ):
        over_http_seconds(first, client)  # what a process does once is not what a question takes
        in_process_seconds(first, catalogue)
        found = [(*over_http_seconds(asked, client), in_process_seconds(asked, catalogue)) for asked in others]
    spent, waited, alone = (median(seconds) for seconds in zip(*found, strict=True))
    ratio = median(one / other for one, _, other in found)
    print(
        f"{TOGETHER} different questions of {len(ANSWERERS)} kinds, median of {len(found)} requests: "
        f"over HTTP {1e3 * spent:.0f} ms of the service's processor, {1e3 * waited:.0f} ms until they are read; "
        f"in process {1e3 * alone:.0f} ms of a processor; ratio {ratio:.2f}; "
        f"load of the machine {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"
    )
    if ratio > MOST_RATIO:
        sys.exit(f"a question in a batch costs more than {MOST_RATIO} times what it costs in process")


if __name__ == "__main__":
    main()
