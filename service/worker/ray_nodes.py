"""Nodes of a cluster as Ray reports them, the placement of ranks on them, and the part of a task on one node."""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from service.worker.probing import CannotRun
from service.worker.runners import RECORD, LocalRunner, LocalRunning, Task, job_folder, remove_abandoned

KIND = "accelerator_type:"
"""Prefix of the resource by which Ray names the kind of a node's GPUs."""

A_LITTLE = 0.001
"""Amount of that resource in a request: a node has one of it, whatever the number of its GPUs."""

OWN_LABELS = "ray.io/"
"""Prefix of Ray's own labels of a node."""

Strategy = Literal["STRICT_PACK", "STRICT_SPREAD"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that is up."""

    id: str
    cpus: int
    gpus: int
    kind: str
    """Kind of its GPUs; empty where there are none or the kind is unknown."""
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    bundles: tuple[Mapping[str, float], ...]
    ranks: tuple[tuple[int, ...], ...]
    """Ranks on each node; empty where a single node starts all of them itself."""
    strategy: Strategy
    """All on one node, or each bundle on another one."""


def nodes_of(reports: Sequence[Mapping[str, Any]]) -> tuple[Node, ...]:
    """The nodes that are up, those with the most GPUs first."""
    nodes = []
    for report in reports:
        if report["Alive"]:
            resources: Mapping[str, float] = report["Resources"]
            gpus = int(resources.get("GPU", 0))
            kinds = [name.removeprefix(KIND) for name in resources if name.startswith(KIND)]
            labels = (report.get("Labels") or {}).items()
            nodes.append(
                Node(
                    id=report["NodeID"],
                    cpus=int(resources.get("CPU", 0)),
                    gpus=gpus,
                    kind=kinds[0] if kinds and gpus else "",
                    labels={name: value for name, value in labels if not name.startswith(OWN_LABELS)},
                )
            )
    return tuple(sorted(nodes, key=lambda node: (-node.gpus, -node.cpus, node.id)))


def common_labels(nodes: Sequence[Node]) -> dict[str, str]:
    """Labels of all nodes, so that a job with them as requirements may run on any.

    >>> common_labels([])
    {}
    """
    shared = set.intersection(*(set(node.labels.items()) for node in nodes)) if nodes else set()
    return dict(sorted(shared))


def placement_of(nodes: Sequence[Node], kind: str | None, ranks: int) -> Placement:
    """Placement of the ranks of a task: on one node where one has enough GPUs, else on as few as suffice."""
    if kind is None:
        cpus = min(ranks, max((node.cpus for node in nodes), default=0))
        if not cpus:
            raise CannotRun("no node of the cluster has a processor to give: start nodes with CPUs")
        return Placement(bundles=({"CPU": cpus},), ranks=((),), strategy="STRICT_PACK")
    sizes = _sizes([node.gpus for node in nodes if node.gpus and node.kind == kind], ranks)
    if sum(sizes) < ranks:
        raise CannotRun(f"{ranks} GPUs of kind {kind or 'unknown'} are needed, and the cluster has {sum(sizes)} now")
    own = {KIND + kind: A_LITTLE} if kind else {}
    bundles = tuple({"CPU": 1, "GPU": size, **own} for size in sizes)
    if len(sizes) == 1:
        return Placement(bundles=bundles, ranks=((),), strategy="STRICT_PACK")
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    ranks_of = tuple(tuple(range(end - size, end)) for end, size in zip(ends, sizes, strict=True))
    return Placement(bundles=bundles, ranks=ranks_of, strategy="STRICT_SPREAD")


def _sizes(gpus: Sequence[int], ranks: int) -> list[int]:
    """GPUs of each node, the largest first, until there are enough.

    >>> _sizes([4, 4, 2], 7), _sizes([4, 4], 3)
    ([4, 3], [3])
    """
    sizes: list[int] = []
    for one in gpus:
        left = ranks - sum(sizes)
        if left <= 0:
            break
        sizes.append(min(one, left))
    return sizes


NODE = "TRAINCOST_NODE"
"""Variable with the node of a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a task on one node."""

    task: Task
    """The task; its folder is on the worker's own host."""
    ranks: Sequence[int]
    """Ranks on this node; empty where its process starts all of them itself."""
    meeting: tuple[str, int] | None = None
    """Rendezvous address and port of ranks on several nodes; None where all are here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    record: dict[str, Any] | None
    """Record of the first rank, or of one that failed; None while it runs."""
    progress: dict[str, Any]
    files: Mapping[str, bytes]


class NodeRunner:
    """Runs a node's part of a task. Everything that it started ends with its process."""

    def __init__(self, node: str = "") -> None:
        self._node = node
        remove_abandoned()  # of processes on this node that were made to end
        self._resources = ExitStack()
        self._folder = self._resources.enter_context(job_folder())
        self._running: dict[int, LocalRunning] = {}

    def port(self) -> int:
        """A free port of this node."""
        with socket.socket() as one:
            one.bind(("", 0))
            number: int = one.getsockname()[1]
        return number

    def start(self, share: Share) -> None:
        """Start the node's part."""
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), NODE: self._node}
        address, port = share.meeting or ("127.0.0.1", 0)
        for place, rank in enumerate(share.ranks or (0,)):
            folder = self._work(rank)
            folder.mkdir(parents=True)
            if share.ranks:
                ranks, local = share.task.task["ranks"], len(share.ranks)
                torchrun = {"RANK": rank, "LOCAL_RANK": place, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": local}
                meeting = {"MASTER_ADDR": address, "MASTER_PORT": port}
                variables |= {name: str(value) for name, value in {**torchrun, **meeting}.items()}
            self._running[rank] = LocalRunner(variables).start(replace(share.task, folder=folder, device=None))

    def state(self) -> NodeState:
        records = {rank: self._record(rank, running) for rank, running in self._running.items()}
        progress = next(iter(self._running.values())).progress()
        failed = [record for record in records.values() if record is not None and record["status"] != "succeeded"]
        if failed or None in records.values():
            return NodeState(record=failed[0] if failed else None, progress=progress, files={})
        first = min(records)
        record = records[first]
        return NodeState(record=record, progress=progress, files=self._files(first, record or {}))

    def end(self) -> None:
        """End everything that it started; returns once that has ended."""
        for running in self._running.values():
            running.kill()
        self._resources.close()

    def _record(self, rank: int, running: LocalRunning) -> dict[str, Any] | None:
        """The record of a rank; ranks other than the first use names of their own."""
        record = running.poll()
        own = self._work(rank) / f"rank-{rank}.json"
        if record is None or not rank or (self._work(rank) / RECORD).is_file() or not own.is_file():
            return record
        own_record: dict[str, Any] = json.loads(own.read_text(encoding="utf-8"))
        return own_record

    def _files(self, rank: int, record: Mapping[str, Any]) -> dict[str, bytes]:
        folder = self._work(rank)
        paths = {name: folder / name for name in (record.get("summary") or {}).get("files", ())}
        return {name: path.read_bytes() for name, path in paths.items() if path.parent == folder and path.is_file()}

    def _work(self, rank: int) -> Path:
        return self._folder / f"{rank}" / "work"
