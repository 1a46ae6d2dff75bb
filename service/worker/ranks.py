"""Ranks: the place of this process among those that measure together, and the start of the others.

The variables are torchrun's, so that torchrun may start the ranks, over many nodes, or a worker, on one. A task of
one rank ignores them: a training image may set them for something else.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_SECONDS = 1.0
"""Time in which the other ranks report their error after one has failed. Source: a choice."""

POLL_SECONDS = 0.05
"""Period of checks whether they have ended. Source: a choice."""

RENDEZVOUS = "rendezvous"
"""Rendezvous file of ranks on one machine."""

STARTED_BY = "TRAINCOST_STARTED_BY"
"""Variable with the process that started this one and whose end it shares."""

_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG. Source: Linux, include/uapi/linux/prctl.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of this process among the ranks."""

    rank: int = 0
    ranks: int = 1
    """Number of ranks."""
    local_rank: int = 0
    """Rank on this machine."""


def place_of(ranks: int, variables: Mapping[str, str]) -> Place | None:
    """The place of this process among the ranks of a task.

    >>> place_of(8, {"RANK": "9", "WORLD_SIZE": "16"}) is None
    True
    >>> place_of(16, {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"})
    Place(rank=9, ranks=16, local_rank=1)
    """
    if ranks == 1:
        return Place()
    if variables.get("WORLD_SIZE") != str(ranks) or "RANK" not in variables:
        return None
    rank = int(variables["RANK"])
    return Place(rank=rank, ranks=ranks, local_rank=int(variables.get("LOCAL_RANK", rank)))


def end_with_starter() -> None:
    """Have the kernel end this process when its parent ends, for whatever reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        starter = os.environ.get(STARTED_BY)
        if starter is not None and starter != str(os.getppid()):
            os.kill(os.getpid(), signal.SIGKILL)


def start_ranks(ranks: int, words: Sequence[str]) -> int | None:
    """Run a program once for each rank on this machine, until all have ended or one has failed."""
    threads = max(1, (os.cpu_count() or 1) // ranks)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}
    running = {}
    for rank in range(ranks):
        assigned = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": ranks,
            "LOCAL_WORLD_SIZE": ranks,
            STARTED_BY: os.getpid(),
        }
        variables = {
            "OMP_NUM_THREADS": str(threads),
            **inherited,
            **{name: str(value) for name, value in assigned.items()},
        }
        running[rank] = subprocess.Popen(words, env=variables)  # noqa: S603 - the words are this program's own
    try:
        return _first_failure(running)
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def _first_failure(running: dict[int, subprocess.Popen[bytes]]) -> int | None:
    left = dict(running)
    while left:
        for rank, process in tuple(left.items()):
            code = process.poll()
            if code:
                time.sleep(GRACE_SECONDS)
                return rank
            if code == 0:
                del left[rank]
        time.sleep(POLL_SECONDS)
    return None


def nodes_of(ranks: int, variables: Mapping[str, str]) -> int:
    """Machines of the ranks.

    >>> nodes_of(16, {"LOCAL_WORLD_SIZE": "8"}), nodes_of(2, {})
    (2, 1)
    """
    return max(1, ranks // int(variables.get("LOCAL_WORLD_SIZE", ranks)))


def rendezvous(folder: Path, variables: Mapping[str, str]) -> str:
    """Rendezvous of the ranks.

    Another process cannot take a file meanwhile, as it can a port; machines without a shared file use torchrun's
    address.
    """
    return "env://" if "MASTER_ADDR" in variables else f"file://{folder.absolute()}/{RENDEZVOUS}"
