"""The group of ranks of a probe: rendezvous, barriers and agreement."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from service.worker.probing import ProbeContext
from service.worker.ranks import rendezvous

LEAST_WAIT_SECONDS = 10.0
"""Shortest timeout of a barrier: each rank imports torch first. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All ranks of a probe, as one of them sees the others."""

    context: ProbeContext
    """Context of the probe."""
    distributed: Any
    """torch.distributed."""
    backend: str
    """Library of collectives."""
    token: Any
    """A number on the device for barriers."""

    def largest(self, *values: float) -> list[float]:
        """The largest of each value over all ranks."""
        import torch

        tensor = torch.tensor(values, dtype=torch.float64, device=self.context.device)
        self.distributed.all_reduce(tensor, op=self.distributed.ReduceOp.MAX)
        return [float(value) for value in tensor.tolist()]

    def meet(self) -> None:
        """Wait for all ranks: on a GPU its stream waits, and this process goes on."""
        if self.context.device == "cpu":
            self.distributed.barrier()
        else:
            self.distributed.all_reduce(self.token)

    def left_seconds(self) -> float:
        """Shortest time left of any rank."""
        return -self.largest(-self.context.left_seconds())[0]

    def named(self, *names: str) -> Any:
        """A function of torch that was renamed, by the newest name that this version has."""
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


def any_failed(group: Group, errors: Sequence[BaseException]) -> bool:
    """Whether any rank failed; all ranks agree on it before their next barrier."""
    return bool(group.largest(float(len(errors)))[0])
