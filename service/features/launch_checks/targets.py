"""Target machine of a launch check: the live worker that suits it best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.answers.launch_checks import Where
from service.answers.workers import Device, Requirements, SeenWorker
from service.catalogue import Catalogue
from service.catalogue.catalogue import calibrated_gpu
from service.errors import NoWorker, Problem
from service.estimator.question import Gpu

MOST_RANKS = 8
"""Processes of one probe: those of a node. Source: a choice."""

CPU_RANKS = 2
"""Processes of a collective on a machine without a GPU. Source: a choice; the fewest that exchange anything."""

UNSEEN_THREADS = 2
"""Threads assumed of a worker that has not connected yet. Source: a choice."""

UNSEEN_MEMORY_BYTES = 4e9
"""Memory that probes may fill where the worker did not report it. Source: a choice; a small machine has it."""


NO_WORKER_FIX = 'start `traincost worker` on a machine that has it, or say "on": "any", which leads to caution at best'


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The machine that tasks are sized for."""

    on: Where
    """Whether it must have the cluster's own GPU."""
    is_matching: bool
    """Whether it has that GPU."""
    gpu: Gpu | None = None
    """Its GPU, used for predictions; None without a GPU or outside the catalogue."""
    device: str | None = None
    """Name of its GPU; None for a processor."""
    devices: int = 1
    """Number of devices."""
    memory_bytes: float = UNSEEN_MEMORY_BYTES
    """Memory of one device."""
    threads: int = UNSEEN_THREADS
    """Threads of its processors."""
    measures: bool = False
    """Whether a live worker of the kind has torch."""

    @property
    def is_gpu(self) -> bool:
        """Whether it has a GPU."""
        return self.device is not None

    @property
    def ranks(self) -> int:
        """Processes in which a collective can run on it, one a device [1]."""
        return min(self.devices, MOST_RANKS) if self.is_gpu else CPU_RANKS

    def requires(self, ranks: int) -> Requirements:
        """Requirements for a worker that runs the tasks of this machine."""
        slug = None if self.gpu is None else self.gpu.slug
        return Requirements(gpu=slug, gpus=ranks if self.is_gpu else 0, measures=self.measures)


def target_of(on: Where | None, gpu: Gpu, workers: Sequence[SeenWorker], catalogue: Catalogue) -> Target:
    """The machine that a launch check is sized for."""
    found = [
        _target(device, worker, catalogue)
        for worker in workers
        if worker.is_alive
        for device in worker.capabilities.devices or (None,)
    ]
    targets = [_marked(one, gpu) for one in found]
    matching = [one for one in targets if one.is_matching]
    if on == "matching" and not matching:
        raise NoWorker(_none_matches(gpu, workers))
    chosen: Where = on or ("matching" if matching else "any")
    best = max(matching if chosen == "matching" else targets, key=_worth, default=Target(on="any", is_matching=False))
    return replace(best, on=chosen)


def _target(device: Device | None, worker: SeenWorker, catalogue: Catalogue) -> Target:
    able = worker.capabilities
    if device is None:
        return Target(on="any", is_matching=False, threads=max(1, able.cpu_threads), measures=able.measures)
    memory_bytes = device.memory_bytes or 0.0
    slug = device.gpu
    known = None if slug is None or slug not in catalogue.gpus else calibrated_gpu(slug, catalogue)
    return Target(
        on="any",
        is_matching=False,
        gpu=known,
        device=device.name,
        devices=max(1, device.count),
        memory_bytes=memory_bytes or (known.memory_bytes if known is not None else UNSEEN_MEMORY_BYTES),
        threads=max(1, able.cpu_threads),
        measures=able.measures,
    )


def _marked(target: Target, gpu: Gpu) -> Target:
    return replace(target, is_matching=target.gpu is not None and target.gpu.slug == gpu.slug)


def _worth(target: Target) -> tuple[bool, bool, bool, int, float, int]:
    """Sort key of machines: torch first, because nothing is measured without it."""
    return (
        target.measures, target.is_matching, target.is_gpu, target.devices, target.memory_bytes, target.threads,
    )  # fmt: skip


def _none_matches(gpu: Gpu, workers: Sequence[SeenWorker]) -> Problem:
    seen = "; ".join(
        f"{worker.id}{'' if worker.is_alive else ' (gone)'}: {_describe(worker)}" for worker in workers[:10]
    )
    return Problem(
        field="on",
        code="no_matching_worker",
        message=f"no live worker has the GPU {gpu.slug}; workers seen: {seen or 'none'}",
        fix=NO_WORKER_FIX,
    )


def _describe(worker: SeenWorker) -> str:
    able = worker.capabilities
    devices = ", ".join(f"{one.count} x {one.gpu or one.name}" for one in able.devices)
    return devices or f"no GPU, {able.cpu_threads} threads"
