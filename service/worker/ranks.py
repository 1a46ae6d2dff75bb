"""Ranks of a probe: the place of this process, the start of the others, and their group with barriers and agreement.

The variables are torchrun's: torchrun may start the ranks, over many nodes, or a worker, on one node. A task of one
rank ignores them, because a training image may set them for another purpose.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from service.worker.probing import ProbeContext
from service.worker.supervisor import STARTED_BY

GRACE_SECONDS = 1.0
"""Time in which the other ranks report their error after one has failed. Source: a choice."""

POLL_SECONDS = 0.05
"""Period of checks whether ranks have ended. Source: a choice."""

RENDEZVOUS = "rendezvous"
"""Rendezvous file of ranks on one machine."""


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


def start_ranks(ranks: int, command: Sequence[str]) -> int | None:
    """Run a program once for each rank on this machine; return the first rank that fails, or None."""
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
        running[rank] = subprocess.Popen(command, env=variables)  # noqa: S603 - the command is this program's own
    try:
        return _first_failure(running)
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def _first_failure(running: dict[int, subprocess.Popen[bytes]]) -> int | None:
    waiting = dict(running)
    while waiting:
        for rank, process in tuple(waiting.items()):
            code = process.poll()
            if code:
                time.sleep(GRACE_SECONDS)
                return rank
            if code == 0:
                del waiting[rank]
        time.sleep(POLL_SECONDS)
    return None


def nodes_of(ranks: int, variables: Mapping[str, str]) -> int:
    """Machines of the ranks.

    >>> nodes_of(16, {"LOCAL_WORLD_SIZE": "8"}), nodes_of(2, {})
    (2, 1)
    """
    return max(1, ranks // int(variables.get("LOCAL_WORLD_SIZE", ranks)))


def rendezvous(folder: Path, variables: Mapping[str, str]) -> str:
    """URL of the rendezvous of the ranks.

    On one machine it is a file, because another process could take a port before the ranks do. Ranks of torchrun use
    its address.
    """
    return "env://" if "MASTER_ADDR" in variables else f"file://{folder.absolute()}/{RENDEZVOUS}"


LEAST_WAIT_SECONDS = 10.0
"""Shortest timeout of a barrier: each rank imports torch first. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Process group of all ranks of a probe."""

    context: ProbeContext
    """Context of the probe."""
    distributed: Any
    """torch.distributed."""
    backend: str
    """Library of collectives."""
    token: Any
    """A tensor of one number on the device, for barriers."""

    def largest(self, *values: float) -> list[float]:
        """The largest of each value over all ranks."""
        import torch

        tensor = torch.tensor(values, dtype=torch.float64, device=self.context.device)
        self.distributed.all_reduce(tensor, op=self.distributed.ReduceOp.MAX)
        return [float(value) for value in tensor.tolist()]

    def wait_for_all(self) -> None:
        """Wait for all ranks; on a GPU its stream waits, and this process continues."""
        if self.context.device == "cpu":
            self.distributed.barrier()
        else:
            self.distributed.all_reduce(self.token)

    def left_seconds(self) -> float:
        """Shortest time left of any rank."""
        return -self.largest(-self.context.left_seconds())[0]

    def named(self, *names: str) -> Any:
        """A function of torch.distributed, by the first of its names that this version has."""
        return next(getattr(self.distributed, name) for name in names if hasattr(self.distributed, name))


@contextmanager
def joined(context: ProbeContext) -> Iterator[Group]:
    """The group of all ranks of a probe, until its end."""
    import torch
    from torch import distributed

    backend = "gloo" if context.device == "cpu" else "nccl"
    distributed.init_process_group(
        backend,
        init_method=rendezvous(context.folder, os.environ),
        rank=context.rank,
        world_size=context.ranks,
        timeout=timedelta(seconds=max(LEAST_WAIT_SECONDS, context.left_seconds())),
    )
    try:
        token = torch.zeros(1, device=context.device)
        yield Group(context=context, distributed=distributed, backend=backend, token=token)
    finally:
        distributed.destroy_process_group()
